"""Labels of a record: the conditions under which it was produced.

Source: contract 21.8, threats 5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from securebench.run.plan.model import RunPlan, TaskPlan
from securebench.run.state.attempts import Runtime, runtime_of

if TYPE_CHECKING:
    from securebench.run.state.attempts import AttemptHistory


class Grading(StrEnum):
    """What a verdict rests on; no text that a scorer compared has one."""

    VALUES = "values"
    """Tests of code_completion compared plain values alone."""
    OBJECTS = "objects"
    """An object of the candidate stood between its tests and a value."""
    IN_PROCESS = "in-process"
    """Tests and candidate ran in one interpreter (``tests.isolation: shared``)."""
    TESTS = "tests"
    """Our runner counted the tests, beside which candidate code may have run."""
    EXIT_CODE = "exit-code"
    """Nothing but the exit code of a command or script."""


class IsolationLabel(StrEnum):
    """What is known about the network of the run's Pods."""

    VERIFIED = "verified"
    DECLARED = "declared"


class Network(StrEnum):
    """Whether the harness Pods have egress."""

    NONE = "none"
    EGRESS = "egress"


class Credentials(StrEnum):
    """Whether secret values were within the agent's reach."""

    NONE = "none"
    BROKERED = "brokered"
    """Only the run's gateway holds the model provider's key."""
    EXPOSED = "exposed"


_SAID = frozenset({Grading.VALUES, Grading.OBJECTS})
"""What the runner of ``separate`` tests may say."""


def credentials(plan: RunPlan) -> Credentials:
    """Return the credentials label: exposed if any value enters the Pods, else brokered or none."""
    if plan.harness.env and plan.harness.secret:
        return Credentials.EXPOSED
    is_brokered = plan.egress is not None and plan.egress.provider is not None
    return Credentials.BROKERED if is_brokered else Credentials.NONE


def network(plan: RunPlan) -> Network:
    """Return whether the run's harness Pods have egress."""
    return Network.NONE if plan.egress is None else Network.EGRESS


def _confidential(plan: RunPlan) -> dict[str, object]:
    """Return whether task text can only reach the model provider; a tunnel can leak it anywhere."""
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

    The runtime is the one measured in the attempt's Pods, and the user namespace is the harness
    Pod's own: without one that ended, nothing is claimed.
    """
    facts = None if history.production is None else history.production.facts
    return {
        **_grading(task, history),
        "network": network(plan).value,
        **_confidential(plan),
        "credentials": credentials(plan).value,
        "isolation": isolation.value,
        "node_reachable": node_reachable,
        "runtime": _runtime(history).value,
        "user_namespace": facts is not None and facts.user_namespace,
        "external_tools": _external_tools(plan),
        "audit": plan.audit,
        "pack_audit": plan.pack_audit.value,
    }


def _grading(task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    """Return what the verdict of a Pod rests on; of ``separate`` tests their runner says it."""
    verification = history.verification
    if verification is None:
        return {}
    if task.check is not None:
        found = Grading.TESTS if task.check.counts_tests else Grading.EXIT_CODE
    elif task.code is not None and task.code.is_shared:
        found = Grading.IN_PROCESS
    elif task.code is not None and (said := verification.command.grading.split("-")[0]) in _SAID:
        found = Grading(said)
    else:
        return {}
    return {"grading": found.value}


def record_digests(plan: RunPlan, task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    """Return the digests of everything that a record depends on, including the images that ran."""
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


def _runtime(history: AttemptHistory) -> Runtime:
    """Return the weakest runtime of an attempt's Pods."""
    launches = (history.production, history.verification)
    measured = {runtime_of(launch.facts.kernel) for launch in launches if launch is not None}
    weakest_first = (Runtime.RUNC, Runtime.GVISOR)
    return next((runtime for runtime in weakest_first if runtime in measured), Runtime.UNKNOWN)
