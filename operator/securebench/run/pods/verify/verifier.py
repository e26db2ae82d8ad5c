"""The Pod in which a candidate is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.core.errors import InvariantViolationError
from securebench.run.plan.keys import LaunchKey
from securebench.run.plan.model import CheckPlan, RunPlan, TaskPlan, VerifierKind
from securebench.run.pods.parts.frame import Containers, Manifest, launch_frame, pod
from securebench.run.pods.verify.check import check_containers
from securebench.run.pods.verify.code_check import code_containers, code_seconds
from securebench.run.pods.verify.repository_check import check_seconds, repository_containers
from securebench.run.pods.verify.text import Member, text_pod

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.state.attempts import SealedCandidate


def verifier_pod(
    plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet, candidate: SealedCandidate
) -> Manifest:
    """Return the Pod of one verifier launch.

    Args:
        plan: The run.
        task: It has a verifier.
        launch: Role ``verifier``.
        lanes: What lies on the volume for the task.
        candidate: What the harness left; it has a file.

    Raises:
        InvariantViolationError: There is nothing to judge, or nothing that judges.
    """
    if candidate.file is None:
        raise InvariantViolationError("a verifier needs a candidate's file", task=task.index)
    if task.verifier is VerifierKind.TEXT:
        return text_pod(plan, launch, [Member(task, launch, lanes, candidate)])
    if task.code is not None:
        seconds: float = code_seconds(task.code)
        containers = code_containers(plan, task, task.code, launch, lanes, candidate)
    elif task.check is not None:
        seconds = check_seconds(task.check)
        containers = _check_containers(plan, task, task.check, launch, lanes, candidate)
    else:
        raise InvariantViolationError("this task has no verifier Pod", task=task.index)
    return pod(plan, launch_frame(plan, launch, seconds), containers)


def _check_containers(
    plan: RunPlan,
    task: TaskPlan,
    check: CheckPlan,
    launch: LaunchKey,
    lanes: LaneSet,
    candidate: SealedCandidate,
) -> Containers:
    build = check_containers if check.patch is None else repository_containers
    return build(plan, task, check, launch, lanes, candidate)
