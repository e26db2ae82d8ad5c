"""The Pod in which a candidate is judged; texts share it: one candidate, or a batch.

Source: decision 0061.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.errors import InvariantViolationError
from securebench.names import MEMBERS_ANNOTATION
from securebench.protocol.grading import MEMBER_SECONDS, VERDICTS_FOLDER, MemberSpec, TextSpec
from securebench.protocol.messages import DigestedPath
from securebench.run import layout
from securebench.run.plan.model import VerifierKind, member_name
from securebench.run.pods import volumes
from securebench.run.pods.containers import module_argv, trusted_container
from securebench.run.pods.frame import Containers, Manifest, launch_frame, pod
from securebench.run.pods.verify.check import check_containers
from securebench.run.pods.verify.code_check import code_containers, code_seconds
from securebench.run.pods.verify.repository_check import check_seconds, repository_containers
from securebench.run.pods.volumes import candidate_file, candidate_mount, lane_mount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.run.plan.model import ClusterFacts, LaunchKey, RunPlan
    from securebench.run.pods.verify.check import Member


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


TEXT_SECONDS = 120
"""Time of a text verifier, which computes for milliseconds (contract 15.8: bounded by us)."""


def text_pod(
    plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
) -> Manifest:
    """Return the Pod that judges candidates.

    Each member has two read-only mounts of its own. The only folder that a batch can write is its
    first launch's folder of verification; a Pod with one member can write nothing.

    Args:
        plan: The run.
        first: The launch after which the Pod is named.
        members: At least one, each of a text family.
        facts: What the cluster has told of the run.
    """
    is_batch = len(members) > 1
    seconds = TEXT_SECONDS + (MEMBER_SECONDS * len(members)) * is_batch
    frame = launch_frame(plan, first, seconds, facts)
    if is_batch:
        names = " ".join(member_name(member.launch) for member in members)
        frame = replace(frame, annotations={**frame.annotations, MEMBERS_ANNOTATION: names})
    mounts = [mount for number, each in enumerate(members) for mount in _mounts(plan, number, each)]
    if is_batch:
        mounts.append(volumes.verification_mount(plan, first, VERDICTS_FOLDER))
    main = trusted_container(
        replace(plan.pods, image=plan.pods.text_verifier_image),
        layout.VERIFIER,
        volumes.container_resources(volumes.VERIFIER_REQUESTS, volumes.VERIFIER_LIMITS),
        mounts,
    )
    spec = TextSpec(tuple(_spec(number, member) for number, member in enumerate(members)))
    main["command"] = module_argv("grading.verify_text", spec)
    return pod(plan, frame, Containers(main, (volumes.claim(plan.pods.claim),)))


def _mounts(plan: RunPlan, number: int, member: Member) -> tuple[Manifest, Manifest]:
    candidate, hidden = layout.member_folders(number)
    return (
        candidate_mount(plan, member.launch, member.candidate, candidate),
        lane_mount(plan, member.task, layout.LANE_HIDDEN, hidden),
    )


def _spec(number: int, member: Member) -> MemberSpec:
    candidate, hidden = layout.member_folders(number)
    return MemberSpec(
        name=member_name(member.launch),
        family=member.task.task.task_type,
        candidate=candidate_file(member.candidate, candidate),
        hidden=DigestedPath(hidden, member.lanes.hidden_digest),
    )
