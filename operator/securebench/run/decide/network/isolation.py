"""Judges what canary and control Pod reached, and what that says of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.probe import GATEWAY_TARGET, ProbeTarget
from securebench.run.plan.cluster_facts import ClusterFacts, PodUserNamespaces
from securebench.run.state.entries import IsolationResult

NO_CANARY = IsolationResult(
    verified=False,
    user_namespaces=False,
    message="spec.isolation.require is Declared: no canary ran",
    declared=True,
)

NODE_ADVICE = (
    "; spec.isolation.allow: [Node] accepts addresses of the node, and every record then says"
    " labels.node_reachable: true"
)


def cluster_facts(found: IsolationResult | None, gateway: str, process_limit: int) -> ClusterFacts:
    """Return what the cluster has told of a run so far.

    Args:
        found: What the canary found, or None before that.
        gateway: Address of the run's gateway, or empty.
        process_limit: Processes of a Pod with a user namespace.
    """
    if found is None or not found.user_namespaces:
        return ClusterFacts(gateway, PodUserNamespaces.OFF, 0)
    return ClusterFacts(gateway, PodUserNamespaces.ON, process_limit)


def judge(
    control: Mapping[str, str],
    canary: Mapping[str, str],
    *,
    user_namespaces: bool,
    has_gateway: bool = False,
    node: Sequence[ProbeTarget] = (),
    is_node_allowed: bool = False,
) -> IsolationResult:
    """Compare what the control reached with what the canary reached.

    Args:
        control: State by target without the policy.
        canary: State by target with the policy.
        user_namespaces: Whether the canary had a user namespace.
        has_gateway: Whether the run has a gateway, the only target that the canary must reach.
        node: The targets of the node.
        is_node_allowed: Whether the canary may reach these.

    Returns:
        The finding; ``verified`` only where at least one target answered the control alone and none
        answered the canary but those of the node that may, and where the run's gateway, if it has
        one, did.
    """
    at_node = [target for target in node if canary.get(target.name) == OPEN]
    names = {target.name for target in at_node}
    may_open = names if is_node_allowed else set()
    must_open = {GATEWAY_TARGET} if has_gateway else set()
    proven = sorted({name for name, state in control.items() if state == OPEN} - may_open)
    must_close = {*canary, *proven} - must_open - may_open
    reached = sorted(name for name in must_close if canary.get(name, "not probed") != CLOSED)
    problem = ""
    if reached:
        policies = "the run's policies" if has_gateway else "the deny-all policy"
        advice = NODE_ADVICE if names.issuperset(reached) else ""
        problem = f"a Pod under {policies} reached: {', '.join(reached)}{advice}"
    elif any(canary.get(name) != OPEN for name in must_open):
        problem = "a Pod of the run did not reach the run's gateway"
    elif not proven:
        problem = "no target answered without the policy, so closed targets prove nothing"
    unproven = sorted({*control}.difference(proven, may_open))
    return IsolationResult(
        verified=not problem,
        user_namespaces=user_namespaces,
        message=problem or _proof(proven, unproven, at_node, has_gateway=has_gateway),
        node_reachable=bool(at_node),
    )


def _proof(
    proven: Sequence[str],
    unproven: Sequence[str],
    at_node: Sequence[ProbeTarget],
    *,
    has_gateway: bool,
) -> str:
    """Return the sentence of a run whose Pods are cut off."""
    parts = [f"closed: {', '.join(proven)}"]
    if has_gateway:
        parts.append("open: gateway")
    if at_node:
        places = ", ".join(f"{target.name} ({target.authority})" for target in at_node)
        parts.append(f"open on the node, which spec.isolation.allow accepts: {places}")
    if unproven:
        parts.append(f"unproven (do not answer without the policy either): {', '.join(unproven)}")
    return "; ".join(parts)
