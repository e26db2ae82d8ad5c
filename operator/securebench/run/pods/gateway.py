"""The gateway of a run: the sidecar by which a harness Pod reaches it, its Pod and its Service.

The gateway is the only Pod of a run that has egress from the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from securebench.errors import InvariantViolationError
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.protocol.gateway import (
    GATEWAY_PORT,
    NO_PROXY,
    PROVIDER_KEY,
    PROVIDER_PORT,
    PROXY_NAME,
    PROXY_PORT,
    READY_FILE,
    GatewayConfig,
    GatewayLimits,
    Route,
)
from securebench.protocol.supervise import EgressSpec, GatewayAddress
from securebench.run import layout
from securebench.run.artifacts import GatewayFiles, Given
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan, short_uid
from securebench.run.pods import volumes
from securebench.run.pods.containers import POD_SUPERVISE, PYTHON, supervise_argv, trusted_container
from securebench.run.pods.frame import Containers, Frame, Manifest, owner, pod, resolvers
from securebench.run.pods.frame import labels as pod_labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.run.plan.model import EgressPlan
    from securebench.run.pods.frame import PodMount

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
        token=layout.EGRESS_TOKEN_FILE,
        listen=_ports(egress),
        connections=CONNECTIONS,
        start_seconds=START_SECONDS,
        close_seconds=CLOSE_SECONDS,
    )
    container = trusted_container(
        plan.pods,
        layout.EGRESS_PROXY,
        volumes.container_resources(volumes.SIDECAR_REQUESTS, volumes.SIDECAR_LIMITS),
        (
            volumes.service_account_token(
                volumes.EGRESS_TOKEN, spec.token, audience(plan.identity.uid), TOKEN_SECONDS
            ),
        ),
    )
    container["restartPolicy"] = "Always"
    container["command"] = supervise_argv(POD_SUPERVISE, spec)
    return container


def sidecar_addresses(plan: RunPlan) -> list[str]:
    """Return where the sidecar listens once it is ready; nothing where the run has no network."""
    ports = _ports(plan.egress) if plan.egress is not None else {}
    return [f"{layout.LOOPBACK}:{port}" for port in ports.values()]


def host_aliases() -> list[Manifest]:
    """Return the lines of the hosts file by which the agent finds the sidecar without DNS."""
    return [{"ip": layout.LOOPBACK, "hostnames": [PROXY_NAME]}]


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


DEADLINE_SECONDS: Final = 7 * 24 * 3600
"""Last resort, as every Pod has one; a gateway lives as long as its run."""

CLUSTER_DNS: Final[Manifest] = {
    "dnsPolicy": "ClusterFirst",
    "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
}
"""Names are asked for as they are; otherwise those of the cluster would come first."""

PROBE_PERIOD_SECONDS: Final = 5
PROBE_TIMEOUT_SECONDS: Final = 5

UNTIL_READY: Final = f"until test -e {READY_FILE}; do sleep 0.05; done"
"""The first probe begins with the container and waits for the gateway, so that nobody waits for the
second one."""


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """What the administrator says of every gateway.

    Attributes:
        image: The operator's image.
        memory: Limit, a Kubernetes quantity.
        limits: Bounds of a launch.
        nameservers: Asked for every name; empty: the cluster's own.
        ca_config_map: ConfigMap whose ``ca.crt`` is trusted besides the public authorities, or
            empty.
    """

    image: str
    memory: str
    limits: GatewayLimits
    nameservers: tuple[str, ...] = ()
    ca_config_map: str = ""


def gateway_service(plan: RunPlan) -> Manifest:
    """Return the Service whose address stays when a gateway Pod is replaced.

    It leads to a gateway that is not ready, too: one that misses a probe on a busy node still
    serves. The operator waits for readiness by itself, and policies say who may come.
    """
    identity = plan.identity
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": layout.gateway_name(identity.uid),
            "namespace": identity.namespace,
            "labels": pod_labels(identity, Role.GATEWAY),
            "ownerReferences": [owner(identity)],
        },
        "spec": {
            "type": "ClusterIP",
            "publishNotReadyAddresses": True,
            "selector": {RUN_UID_LABEL: identity.uid, ROLE_LABEL: Role.GATEWAY.value},
            "ports": [{"name": "gateway", "port": GATEWAY_PORT, "protocol": "TCP"}],
        },
    }


def gateway_pod(plan: RunPlan, number: int, policy: GatewayPolicy, parallelism: int) -> Manifest:
    """Return a gateway Pod.

    Args:
        plan: The run; it has an egress plan.
        number: Counts from 1; a Pod that ended is replaced by the next.
        policy: What the administrator says.
        parallelism: Pods of the run in flight, which it serves.

    Raises:
        InvariantViolationError: The run has no egress plan.
    """
    egress = _egress(plan)
    frame = Frame(
        name=layout.gateway_pod_name(plan.identity.uid, number),
        role=Role.GATEWAY,
        deadline_seconds=DEADLINE_SECONDS,
        # It starts beside the first canary, before anybody knows whether they work here.
        user_namespaces=PodUserNamespaces.OFF,
        dns=resolvers(policy.nameservers) if policy.nameservers else CLUSTER_DNS,
    )
    container = _container(plan, egress, policy, volumes.gateway_requests(parallelism))
    return pod(plan, frame, Containers(container))


def gateway_config(plan: RunPlan, policy: GatewayPolicy) -> GatewayConfig:
    """Return the gateway's configuration.

    Args:
        plan: The run; it has an egress plan.
        policy: What the administrator says.

    Raises:
        InvariantViolationError: The run has no egress plan.
    """
    egress = _egress(plan)
    identity = plan.identity
    return GatewayConfig(
        pod_prefix=f"sb-{short_uid(identity.uid)}-",
        namespace=identity.namespace,
        service_account=plan.pods.service_account,
        audience=audience(identity.uid),
        domains=egress.domains,
        provider=None if egress.provider is None else egress.provider.config,
        limits=policy.limits,
        authorities=layout.GATEWAY_AUTHORITIES_FILE if policy.ca_config_map else "",
    )


def _container(
    plan: RunPlan, egress: EgressPlan, policy: GatewayPolicy, requests: Mapping[str, str]
) -> Manifest:
    mounts: list[PodMount] = [
        Given(GatewayFiles(plan.identity.uid), layout.GATEWAY_WORK),
        volumes.empty_dir(volumes.TEMPORARY, volumes.GATEWAY_TEMPORARY_BYTES, layout.TEMPORARY),
        *_optional_volumes(egress, policy),
    ]
    limits = {**volumes.GATEWAY_LIMITS, volumes.MEMORY: policy.memory}
    container = trusted_container(
        replace(plan.pods, image=policy.image),
        layout.GATEWAY,
        volumes.container_resources(volumes.lowered(requests, limits), limits),
        mounts,
    )
    container["command"] = [PYTHON, "-I", "-m", "securebench.gateway", layout.GATEWAY_WORK]
    container["ports"] = [{"name": "gateway", "containerPort": GATEWAY_PORT}]
    container["readinessProbe"] = {
        "exec": {"command": ["sh", "-c", UNTIL_READY]},
        "periodSeconds": PROBE_PERIOD_SECONDS,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
    }
    return container


def _optional_volumes(egress: EgressPlan, policy: GatewayPolicy) -> list[volumes.OwnVolume]:
    found = []
    if egress.provider is not None and egress.provider.secret:
        secret, key = egress.provider.secret, egress.provider.key
        found.append(volumes.secret_key(volumes.PROVIDER, secret, key, PROVIDER_KEY))
    if policy.ca_config_map:
        found.append(
            volumes.config_map_key(
                volumes.AUTHORITIES, policy.ca_config_map, layout.GATEWAY_AUTHORITIES_FILE
            )
        )
    return found


def _egress(plan: RunPlan) -> EgressPlan:
    if plan.egress is None:
        raise InvariantViolationError("a run without egress has no gateway", run=plan.identity.uid)
    return plan.egress
