"""What is known of a run's isolation, and what follows from it for its Pods. Pure."""

from __future__ import annotations

from dataclasses import replace

from securebench.run.plan.model import PodUserNamespaces, RunPlan
from securebench.run.state.entries import Isolated


def plan_as_found(
    plan: RunPlan, found: Isolated | None, gateway: str, process_limit: int
) -> RunPlan:
    """Return the plan with what only the cluster could tell; the plan itself never changes.

    Args:
        plan: As the run was bound.
        found: What the canary found, or None before that.
        gateway: Address of the run's gateway, or empty.
        process_limit: Processes of a Pod with a user namespace.
    """
    if plan.egress is not None and gateway:
        plan = replace(plan, egress=replace(plan.egress, gateway=gateway))
    if found is None:
        return plan
    on = PodUserNamespaces.ON if found.user_namespaces else PodUserNamespaces.OFF
    processes = process_limit if found.user_namespaces else 0
    return replace(plan, pods=replace(plan.pods, user_namespaces=on, max_processes=processes))
