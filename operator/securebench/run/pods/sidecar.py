"""The sidecar by which a harness Pod reaches its run's gateway, and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.errors import InvariantViolationError
from securebench.protocol.gateway import (
    GATEWAY_PORT,
    NO_PROXY,
    PROVIDER_PORT,
    PROXY_NAME,
    PROXY_PORT,
    Route,
)
from securebench.protocol.supervise import EgressSpec, GatewayAddress
from securebench.run import layout
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import POD_SUPERVISE, supervise_argv
from securebench.run.pods.parts.containers import trusted_container

if TYPE_CHECKING:
    from securebench.run.plan.model import EgressPlan, RunPlan
    from securebench.run.pods.parts.frame import Manifest

LOOPBACK: Final = "127.0.0.1"

TOKEN_SECONDS: Final = 24 * 3600
"""Asked for; the API server may give less, and the kubelet renews the token long before its end."""

CONNECTIONS: Final = 128
"""Open at once in one Pod: above the gateway's own bound, so that the gateway is the one to say."""

START_SECONDS: Final = 60
"""For reaching the gateway at first: the policy may take a moment to cover a new Pod."""

CLOSE_SECONDS: Final = 20
"""For telling the gateway that the harness has ended; the courier needs the rest of the grace."""


def audience(run_uid: str) -> str:
    """Return the audience of the tokens of a run's harness Pods."""
    return f"securebench-gateway-{run_uid}"


def egress_sidecar(plan: RunPlan, gateway: str) -> Manifest:
    """Return the native sidecar ``egress-proxy``.

    It stands behind the courier in the list of init containers: the kubelet ends sidecars in
    reverse, so the gateway has its last word before the courier seals. It listens when it has
    reached the gateway, and supervise in the harness container waits for that.

    Args:
        plan: The run; it has an egress plan.
        gateway: Address of its gateway.

    Raises:
        InvariantViolationError: The run has no gateway, or its address is not known.
    """
    egress = plan.egress
    if egress is None or not gateway:
        raise InvariantViolationError("the gateway's address is not known", run=plan.identity.uid)
    spec = EgressSpec(
        gateway=GatewayAddress(gateway, GATEWAY_PORT),
        token=f"{layout.EGRESS_TOKEN}/{layout.EGRESS_TOKEN_FILE}",
        listen=_ports(egress),
        connections=CONNECTIONS,
        start_seconds=START_SECONDS,
        close_seconds=CLOSE_SECONDS,
    )
    container = trusted_container(
        plan.pods,
        layout.EGRESS_PROXY,
        sizes.container_resources(sizes.SIDECAR_REQUESTS, sizes.SIDECAR_LIMITS),
        (volumes.mount(volumes.EGRESS_TOKEN, layout.EGRESS_TOKEN, read_only=True),),
    )
    container["restartPolicy"] = "Always"
    container["command"] = supervise_argv(POD_SUPERVISE, spec)
    return container


def sidecar_addresses(plan: RunPlan) -> list[str]:
    """Return where the sidecar listens once it is ready; nothing where the run has no network."""
    ports = _ports(plan.egress) if plan.egress is not None else {}
    return [f"{LOOPBACK}:{port}" for port in ports.values()]


def egress_volumes(plan: RunPlan) -> list[Manifest]:
    """Return the volumes that only the sidecar mounts."""
    token = volumes.service_account_token(
        volumes.EGRESS_TOKEN,
        layout.EGRESS_TOKEN_FILE,
        audience(plan.identity.uid),
        TOKEN_SECONDS,
    )
    return [token]


def host_aliases() -> list[Manifest]:
    """Return the lines of the hosts file by which the agent finds the sidecar without DNS."""
    return [{"ip": LOOPBACK, "hostnames": [PROXY_NAME]}]


def proxy_environment(plan: RunPlan) -> list[Manifest]:
    """Return the proxy variables of the harness container; none where no domain is allowed."""
    if plan.egress is None or not plan.egress.domains:
        return []
    proxy = f"http://{PROXY_NAME}:{PROXY_PORT}"
    values = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": NO_PROXY}
    twins = {name.lower(): value for name, value in values.items()}
    return [{"name": name, "value": value} for name, value in (values | twins).items()]


def _ports(egress: EgressPlan) -> dict[str, int]:
    """A route that the gateway would refuse in every case is not offered."""
    ports: dict[str, int] = {}
    if egress.domains:
        ports[Route.PROXY.value] = PROXY_PORT
    if egress.provider is not None:
        ports[Route.PROVIDER.value] = PROVIDER_PORT
    return ports
