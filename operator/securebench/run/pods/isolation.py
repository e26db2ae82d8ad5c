"""The network policies of a run, and the Pods that prove them.

One policy denies all traffic, the others add exceptions: Kubernetes takes the union of all policies
that select a Pod, and none takes back what another allows.

A canary, which the policies select, and a control, which they do not select, try the same targets.
A target counts as proven when the control reaches it and the canary does not.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.protocol.gateway import GATEWAY_PORT
from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.supervise import (
    CANARY_GATEWAY_SECONDS,
    CANARY_QUIET_SECONDS,
    CANARY_SETTLE_SECONDS,
    GATEWAY_TARGET,
    PROBE_TRY_SECONDS,
    ProbedState,
    ProbeSpec,
    ProbeTarget,
    TargetSpec,
)
from securebench.run import layout
from securebench.run.artifacts import MountProbe, Taken
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan
from securebench.run.pods import volumes
from securebench.run.pods.containers import POD_SUPERVISE, supervise_argv, trusted_container
from securebench.run.pods.frame import Containers, Frame, Manifest, owner, pod, run_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.run.plan.model import ClusterFacts

DENIED_ROLES = (Role.CANARY, Role.HARNESS, Role.VERIFIER)
"""Control Pods are left out: they show that a probe's target answers at all."""

CONNECTED_ROLES = (Role.CANARY, Role.HARNESS)
"""May reach the run's gateway. A verifier never has a network."""

OUTSIDE_PORTS: Final = (443, 80)
DNS_PORT: Final = 53

OUTSIDE: Final = {
    "0.0.0.0/0": (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("168.63.129.16/32", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
    ),
    "2000::/3": ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
}
"""Public unicast networks with what is reserved in them: by the IANA special-purpose registries,
and 168.63.129.16, the host of Azure's virtual machines. All that lies outside of 2000::/3 is no
global unicast; 2001::/23 and 2002::/16 hold tunnels that lead to IPv4 addresses."""

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The API server sets it on every namespace."""

CLUSTER_DNS: Final[Manifest] = {
    "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
"""By the labels that every usual installation of the cluster's DNS has."""


def run_policies(plan: RunPlan, nameservers: Sequence[str] = ()) -> tuple[Manifest, ...]:
    """Return all policies of a run; they are there before its first Pod.

    Args:
        plan: The run.
        nameservers: Addresses that a gateway asks for names; empty: the cluster's DNS Pods.
    """
    if not plan.has_gateway:
        return (deny_policy(plan),)
    return deny_policy(plan), egress_policy(plan), gateway_policy(plan, nameservers)


def deny_policy(plan: RunPlan) -> Manifest:
    """Return the policy that closes a run's Pods in both directions.

    It exists before the first Pod. Policies are additive, so it has no rule at all.
    """
    spec: Manifest = {
        "podSelector": _selector(plan, *DENIED_ROLES),
        "policyTypes": ["Ingress", "Egress"],
    }
    return _policy(plan, layout.policy_name(plan.identity.uid), spec)


def egress_policy(plan: RunPlan) -> Manifest:
    """Return the policy that lets harness and canary Pods reach their run's gateway only."""
    gateway = {"podSelector": _selector(plan, Role.GATEWAY)}
    spec: Manifest = {
        "podSelector": _selector(plan, *CONNECTED_ROLES),
        "policyTypes": ["Egress"],
        "egress": [{"to": [gateway], "ports": _ports("TCP", GATEWAY_PORT)}],
    }
    return _policy(plan, layout.egress_policy_name(plan.identity.uid), spec)


def gateway_policy(plan: RunPlan, nameservers: Sequence[str] = ()) -> Manifest:
    """Return the policy of the gateway: in from the run's agents, out to public web servers.

    A provider inside the cluster opens its namespace and port, another one its port outside.

    Args:
        plan: The run.
        nameservers: Addresses that the gateway asks for names; empty: the cluster's DNS Pods.
    """
    agents = {"podSelector": _selector(plan, *CONNECTED_ROLES)}
    outside = [
        {"ipBlock": {"cidr": network, "except": list(reserved)}}
        for network, reserved in OUTSIDE.items()
    ]
    resolvers = [_single_address(address) for address in nameservers] or [CLUSTER_DNS]
    dns_ports = [*_ports("UDP", DNS_PORT), *_ports("TCP", DNS_PORT)]
    spec: Manifest = {
        "podSelector": _selector(plan, Role.GATEWAY),
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [agents], "ports": _ports("TCP", GATEWAY_PORT)}],
        "egress": [
            {"to": outside, "ports": _ports("TCP", *_outside_ports(plan))},
            {"to": resolvers, "ports": dns_ports},
            *_inside(plan),
        ],
    }
    return _policy(plan, layout.gateway_policy_name(plan.identity.uid), spec)


def _outside_ports(plan: RunPlan) -> tuple[int, ...]:
    provider = None if plan.egress is None else plan.egress.provider
    if provider is None or provider.inside is not None or provider.port in OUTSIDE_PORTS:
        return OUTSIDE_PORTS
    return (*OUTSIDE_PORTS, provider.port)


def _inside(plan: RunPlan) -> list[Manifest]:
    """Return the rule for a provider inside the cluster: its Pods' namespace and port alone."""
    provider = None if plan.egress is None else plan.egress.provider
    if provider is None or provider.inside is None:
        return []
    namespace = {"matchLabels": {NAMESPACE_LABEL: provider.inside.namespace}}
    ports = _ports("TCP", provider.inside.pod_port)
    return [{"to": [{"namespaceSelector": namespace}], "ports": ports}]


def _policy(plan: RunPlan, name: str, spec: Manifest) -> Manifest:
    identity = plan.identity
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": identity.namespace,
            "labels": run_labels(identity),
            "ownerReferences": [owner(identity)],
        },
        "spec": spec,
    }


def _selector(plan: RunPlan, *roles: Role) -> Manifest:
    values = [role.value for role in roles]
    return {
        "matchLabels": {RUN_UID_LABEL: plan.identity.uid},
        "matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": values}],
    }


def _ports(protocol: str, *ports: int) -> list[Manifest]:
    return [{"port": port, "protocol": protocol} for port in ports]


def _single_address(address: str) -> Manifest:
    bits = ip_address(address).max_prefixlen
    return {"ipBlock": {"cidr": f"{address}/{bits}"}}


PROBE_SECONDS = 60
"""Longer than a probing Pod takes, whatever the number of targets: they are tried side by side."""


def canary_pod(
    plan: RunPlan,
    number: int,
    targets: Sequence[ProbeTarget],
    facts: ClusterFacts,
    quiet_seconds: float = CANARY_QUIET_SECONDS,
) -> Manifest:
    """Return the Pod that is as closed in as a harness Pod.

    Args:
        plan: The run.
        number: Counts from 1.
        targets: What it tries to reach.
        facts: The gateway's address, where it is known, is a target besides the others. With user
            namespaces ON the canary also shows that a Pod with a sub-path of the volume, this
            runtime class and a user namespace starts.
        quiet_seconds: How long nothing may answer it.
    """
    gateway = facts.gateway
    settle_seconds = CANARY_GATEWAY_SECONDS if gateway and number == 1 else CANARY_SETTLE_SECONDS
    spec = _spec(CLOSED, targets, quiet_seconds, settle_seconds)
    if gateway:
        spec = replace(spec, must_open=(_gateway_target(gateway),))
    return _probe_pod(plan, Role.CANARY, number, spec, facts.user_namespaces)


def control_pod(plan: RunPlan, number: int, targets: Sequence[ProbeTarget]) -> Manifest:
    """Return the same Pod without the policy: the proof that a closed target would answer.

    Args:
        plan: The run.
        number: Counts from 1.
        targets: What it tries to reach.
    """
    spec = _spec(OPEN, targets, CANARY_QUIET_SECONDS, CANARY_SETTLE_SECONDS)
    return _probe_pod(plan, Role.CONTROL, number, spec, PodUserNamespaces.OFF)


def _spec(
    want: ProbedState,
    targets: Sequence[ProbeTarget],
    quiet_seconds: float,
    settle_seconds: int,
) -> ProbeSpec:
    return ProbeSpec(
        want=want,
        timeout_seconds=PROBE_TRY_SECONDS,
        quiet_seconds=quiet_seconds,
        limit_seconds=quiet_seconds + settle_seconds,
        targets=tuple(
            TargetSpec(target.name, target.host, target.port, target.protocol) for target in targets
        ),
    )


def _probe_pod(
    plan: RunPlan,
    role: Role,
    number: int,
    spec: ProbeSpec,
    user_namespaces: PodUserNamespaces,
) -> Manifest:
    frame = Frame(
        name=layout.probe_name(plan.identity.uid, role, number),
        role=role,
        deadline_seconds=plan.pods.startup_allowance_seconds + PROBE_SECONDS,
        user_namespaces=user_namespaces,
    )
    main = trusted_container(
        plan.pods,
        layout.PROBE,
        volumes.container_resources(volumes.PROBE_REQUESTS, volumes.PROBE_LIMITS),
        (Taken(MountProbe(plan.identity.uid), layout.PROBE_VOLUME),),
    )
    main["command"] = supervise_argv(POD_SUPERVISE, spec)
    return pod(plan, frame, Containers(main))


def _gateway_target(address: str) -> TargetSpec:
    return TargetSpec(GATEWAY_TARGET, address, GATEWAY_PORT, "tcp")
