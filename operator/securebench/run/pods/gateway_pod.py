"""The one Pod of a run that has egress from the cluster, and its Service."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from securebench.errors import InvariantViolationError
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.protocol.gateway import (
    GATEWAY_PORT,
    READY_FILE,
    GatewayConfig,
    GatewayLimits,
    ProviderConfig,
)
from securebench.run import layout
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan, short_uid
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import PYTHON
from securebench.run.pods.parts.containers import trusted_container
from securebench.run.pods.parts.frame import Containers, Frame, Manifest, owner, pod, resolvers
from securebench.run.pods.parts.frame import labels as pod_labels
from securebench.run.pods.sidecar import audience

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.run.plan.model import EgressPlan, ProviderPlan

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
    volume_list = [
        volumes.claim(plan.pods.claim),
        volumes.empty_dir(volumes.TEMPORARY, sizes.GATEWAY_TEMPORARY_BYTES),
        *_optional_volumes(egress, policy),
    ]
    container = _container(plan, egress, policy, sizes.gateway_requests(parallelism))
    return pod(plan, frame, Containers(container, volume_list))


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
    authorities = f"{layout.GATEWAY_AUTHORITIES}/{layout.GATEWAY_AUTHORITIES_FILE}"
    return GatewayConfig(
        pod_prefix=f"sb-{short_uid(identity.uid)}-",
        namespace=identity.namespace,
        service_account=plan.pods.service_account,
        audience=audience(identity.uid),
        domains=egress.domains,
        provider=_provider(egress.provider),
        limits=policy.limits,
        authorities=authorities if policy.ca_config_map else "",
    )


def _provider(provider: ProviderPlan | None) -> ProviderConfig | None:
    if provider is None:
        return None
    return ProviderConfig(
        name=provider.name,
        host=provider.host,
        key_file=f"{layout.GATEWAY_PROVIDER}/{layout.GATEWAY_KEY_FILE}" if provider.secret else "",
        allow_external_tools=provider.allow_external_tools,
        max_requests=provider.max_requests,
        max_tokens=provider.max_tokens,
        port=provider.port,
        base=provider.base,
        is_plain=provider.is_plain,
        is_inside=provider.inside is not None,
        ca=provider.ca,
        run_tokens=provider.run_tokens,
        model=provider.model,
    )


def _container(
    plan: RunPlan, egress: EgressPlan, policy: GatewayPolicy, requests: Mapping[str, str]
) -> Manifest:
    mounts = [
        volumes.mount(
            volumes.RESULTS,
            layout.GATEWAY_WORK,
            sub_path=layout.gateway_folder(plan.identity.uid),
        ),
        volumes.mount(volumes.TEMPORARY, layout.TEMPORARY),
    ]
    if egress.provider is not None and egress.provider.secret:
        mounts.append(volumes.mount(volumes.PROVIDER, layout.GATEWAY_PROVIDER, read_only=True))
    if policy.ca_config_map:
        mounts.append(
            volumes.mount(volumes.AUTHORITIES, layout.GATEWAY_AUTHORITIES, read_only=True)
        )
    limits = {**sizes.GATEWAY_LIMITS, sizes.MEMORY: policy.memory}
    container = trusted_container(
        replace(plan.pods, image=policy.image),
        layout.GATEWAY,
        sizes.container_resources(sizes.lowered(requests, limits), limits),
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


def _optional_volumes(egress: EgressPlan, policy: GatewayPolicy) -> list[Manifest]:
    found: list[Manifest] = []
    if egress.provider is not None and egress.provider.secret:
        secret, key = egress.provider.secret, egress.provider.key
        found.append(
            volumes.secret_key(volumes.PROVIDER, secret, key, layout.GATEWAY_KEY_FILE),
        )
    if policy.ca_config_map:
        file = layout.GATEWAY_AUTHORITIES_FILE
        found.append(volumes.config_map_key(volumes.AUTHORITIES, policy.ca_config_map, file))
    return found


def _egress(plan: RunPlan) -> EgressPlan:
    if plan.egress is None:
        raise InvariantViolationError("a run without egress has no gateway", run=plan.identity.uid)
    return plan.egress
