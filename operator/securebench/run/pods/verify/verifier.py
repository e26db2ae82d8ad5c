"""The Pod in which a candidate is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.errors import InvariantViolationError
from securebench.run.plan.model import VerifierKind
from securebench.run.pods.frame import Manifest, launch_frame, pod
from securebench.run.pods.verify.check import check_containers
from securebench.run.pods.verify.code_check import code_containers, code_seconds
from securebench.run.pods.verify.repository_check import check_seconds, repository_containers
from securebench.run.pods.verify.text import text_pod

if TYPE_CHECKING:
    from securebench.run.plan.model import ClusterFacts, RunPlan
    from securebench.run.pods.verify.member import Member


def verifier_pod(plan: RunPlan, member: Member, facts: ClusterFacts) -> Manifest:
    """Return the Pod of one verifier launch.

    Args:
        plan: The run.
        member: What is judged.
        facts: What the cluster has told of the run.

    Raises:
        InvariantViolationError: There is nothing to judge, or nothing that judges.
    """
    task = member.task
    if member.candidate.file is None:
        raise InvariantViolationError("a verifier needs a candidate's file", task=task.index)
    if task.verifier is VerifierKind.TEXT:
        return text_pod(plan, member.launch, [member], facts)
    if task.code is not None:
        seconds: float = code_seconds(task.code)
        containers = code_containers(plan, task.code, member, facts)
    elif task.check is not None:
        seconds = check_seconds(task.check)
        build = check_containers if task.check.patch is None else repository_containers
        containers = build(plan, task.check, member, facts)
    else:
        raise InvariantViolationError("this task has no verifier Pod", task=task.index)
    return pod(plan, launch_frame(plan, member.launch, seconds, facts), containers)
