"""The Pod in which a candidate is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.core.errors import InvariantViolationError
from securebench.run import layout
from securebench.run.plan.model import CheckPlan, LaunchKey, RunPlan, TaskPlan, VerifierKind
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import lane_spec, module_argv
from securebench.run.pods.parts.containers import trusted_container
from securebench.run.pods.parts.frame import Containers, Manifest, launch_frame, pod
from securebench.run.pods.parts.volumes import (
    candidate_mount,
    candidate_spec,
    lane_mount,
)
from securebench.run.pods.verify.check import check_containers
from securebench.run.pods.verify.code_check import code_containers, code_seconds
from securebench.run.pods.verify.repository_check import check_seconds, repository_containers

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.state.attempts import SealedCandidate

TEXT_SECONDS = 120
"""Time of a text verifier, which computes for milliseconds (contract 15.8: bounded by us)."""


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
        seconds: float = TEXT_SECONDS
        containers = _text_containers(plan, task, launch, lanes, candidate)
    elif task.code is not None:
        seconds = code_seconds(task.code)
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


def _text_containers(
    plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet, candidate: SealedCandidate
) -> Containers:
    spec = {
        "family": task.task.task_type,
        "candidate": candidate_spec(candidate, layout.VERIFIER_CANDIDATE),
        "hidden": lane_spec(layout.VERIFIER_HIDDEN, lanes.hidden_digest),
    }
    main = trusted_container(
        plan.pods,
        layout.VERIFIER,
        sizes.fixed_resources(sizes.VERIFIER_REQUESTS, sizes.VERIFIER_LIMITS),
        (
            candidate_mount(plan, launch, candidate, layout.VERIFIER_CANDIDATE),
            lane_mount(plan, task, layout.LANE_HIDDEN, layout.VERIFIER_HIDDEN),
        ),
    )
    main["command"] = module_argv("grading.verify_text", spec)
    return Containers(main, (volumes.claim(plan.pods.claim),))
