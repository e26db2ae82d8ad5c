"""What every record says about the conditions under which it came to be.

Source: contract 21.8, threats 5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from securebench.run.plan.model import PodUserNamespaces, RunPlan, TaskPlan, VerifierKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.run.state.attempts import AttemptHistory, PodFacts

SANDBOX_KERNEL = "gvisor"
"""Stands in the release of the kernel that gVisor shows to a Pod."""


class Grading(StrEnum):
    """How near candidate code comes to what decides."""

    OUT_OF_PROCESS = "out-of-process"
    IN_WORKSPACE = "in-workspace"
    IN_PROCESS = "in-process"
    NONE = "none"


class IsolationLabel(StrEnum):
    """What is known about the network of the run's Pods."""

    VERIFIED = "verified"
    DECLARED = "declared"


class Network(StrEnum):
    """Whether the harness Pods have egress."""

    NONE = "none"
    EGRESS = "egress"


class Credentials(StrEnum):
    """Which secret values were within the agent's reach."""

    NONE = "none"
    BROKERED = "brokered"
    """The run's gateway holds the key of the model provider; no harness has it."""
    EXPOSED = "exposed"


class Runtime(StrEnum):
    """What ran the containers of a Pod, as seen from inside."""

    GVISOR = "gvisor"
    RUNC = "runc"
    """An ordinary kernel: no sandbox was seen, whatever the runtime class promises."""
    UNKNOWN = "unknown"
    """No Pod said what it saw."""


_GRADING: Mapping[VerifierKind, Grading] = {
    VerifierKind.TEXT: Grading.OUT_OF_PROCESS,
    VerifierKind.CHECK: Grading.IN_WORKSPACE,
    VerifierKind.CODE: Grading.OUT_OF_PROCESS,
    VerifierKind.NONE: Grading.NONE,
}


def credentials(plan: RunPlan) -> Credentials:
    """Return the worst of what holds: a forwarded value entered the Pods, or a key is held."""
    if plan.harness.env and plan.harness.secret:
        return Credentials.EXPOSED
    is_brokered = plan.egress is not None and plan.egress.provider is not None
    return Credentials.BROKERED if is_brokered else Credentials.NONE


def network(plan: RunPlan) -> Network:
    """Return whether the run's harness Pods have egress."""
    return Network.NONE if plan.egress is None else Network.EGRESS


def _confidential(plan: RunPlan) -> dict[str, object]:
    """Return whether task text stays with the model provider; a tunnel may lead it anywhere."""
    return {} if plan.egress is None else {"network_confidential": not plan.egress.domains}


def _external_tools(plan: RunPlan) -> bool:
    provider = plan.egress.provider if plan.egress is not None else None
    return provider is not None and provider.allow_external_tools


def record_labels(
    plan: RunPlan,
    task: TaskPlan,
    history: AttemptHistory,
    isolation: IsolationLabel,
    *,
    node_reachable: bool,
) -> dict[str, object]:
    """Return a record's labels.

    Args:
        plan: The run.
        task: The task.
        history: The runtime is what was measured in its Pods; the user namespace is what the
            harness Pod really had, or what the plan says where none ended.
        isolation: What is known about the network.
        node_reachable: Whether the canary reached the node.
    """
    facts = None if history.production is None else history.production.facts
    return {
        "grading": _grading(task).value,
        "network": network(plan).value,
        **_confidential(plan),
        "credentials": credentials(plan).value,
        "isolation": isolation.value,
        "node_reachable": node_reachable,
        "runtime": _runtime(history).value,
        "user_namespace": _user_namespace(plan, facts),
        "external_tools": _external_tools(plan),
        "audit": plan.audit,
        "pack_audit": plan.pack_audit.value,
    }


def _grading(task: TaskPlan) -> Grading:
    if task.check is not None and (task.check.patch is not None or task.check.is_pytest):
        return Grading.IN_PROCESS
    if task.code is not None and task.code.is_shared:
        return Grading.IN_PROCESS
    return _GRADING[task.verifier]


def record_digests(plan: RunPlan, task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    """Return the digests of everything that a record depends on.

    Args:
        plan: The run.
        task: The task.
        history: Says which images ran.
    """
    launches = {"harness": history.production, "verifier": history.verification}
    return {
        "pack": plan.pack_digest,
        "row": task.row_digest,
        "harness": plan.harness.digest,
        "verifier": plan.verifier_version,
        "policy": plan.policy_digest,
        "images": {
            role: launch.facts.image_id
            for role, launch in launches.items()
            if launch is not None and launch.facts.image_id
        },
    }


def runtime_of(kernel: str) -> Runtime:
    """Return the runtime of a Pod.

    Args:
        kernel: Release of the kernel that was measured inside it; empty: none was.
    """
    if not kernel:
        return Runtime.UNKNOWN
    return Runtime.GVISOR if SANDBOX_KERNEL in kernel else Runtime.RUNC


def _runtime(history: AttemptHistory) -> Runtime:
    """Return the weakest runtime of an attempt's Pods."""
    launches = (history.production, history.verification)
    measured = {runtime_of(launch.facts.kernel) for launch in launches if launch is not None}
    weakest_first = (Runtime.RUNC, Runtime.GVISOR)
    return next((runtime for runtime in weakest_first if runtime in measured), Runtime.UNKNOWN)


def _user_namespace(plan: RunPlan, facts: PodFacts | None) -> bool:
    if facts is None:
        return plan.pods.user_namespaces is PodUserNamespaces.ON
    return facts.user_namespace
