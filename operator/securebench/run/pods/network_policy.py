"""The network policies of a run: one denies all traffic, the others add exceptions.

Kubernetes takes the union of all policies that select a Pod: none takes back what another allows.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.protocol.gateway import GATEWAY_PORT
from securebench.run import layout
from securebench.run.plan.model import Role, RunPlan
from securebench.run.pods.parts.frame import Manifest, owner, run_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

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
