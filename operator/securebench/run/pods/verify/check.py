"""The containers that check a candidate workspace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.benchmark.pack.lane_plan import checker_reference
from securebench.benchmark.pack.paths import EVALUATION_ROOT
from securebench.protocol.messages import FRAMEWORK_FOLDER, DigestedPath
from securebench.protocol.supervise import CandidateSpec, RunSpec, Transfer
from securebench.run import layout
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest
from securebench.run.pods.verify.checkers import checker_phases, checker_prechecks
from securebench.run.pods.volumes import (
    asset_mounts,
    asset_places,
    beside_mounts,
    beside_volume,
    candidate_file,
    candidate_mount,
    inside,
    lane_mount,
    tools_mount,
)

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import CheckPlan, ClusterFacts, RunPlan, TaskPlan
    from securebench.run.pods.verify.member import Member


def check_containers(
    plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts
) -> Containers:
    """Return what runs a task's check on a copy of the candidate.

    Args:
        plan: The run.
        check: The task's check.
        member: What is judged; its candidate is a workspace.
        facts: What the cluster has told of the run.
    """
    task, lanes = member.task, member.lanes
    container = TaskContainer(
        name=layout.CHECK,
        image=task.image,
        resources=_resources(plan),
        tools=tools_mount(plan.pods),
        mounts=_mounts(plan, member),
        shared_memory=layout.CHECK,
        read_only_root=False,
        capabilities=check.capabilities,
    )
    return Containers(
        main=task_container(container, _run_spec(plan, check, member, facts)),
        volumes=_volumes(plan, task, lanes),
        init=[verifier_courier(plan, member.launch)],
    )


def _beside(task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    return beside_mounts([EVALUATION_ROOT, *asset_places(lanes)], task.workspace)


def _mounts(plan: RunPlan, member: Member) -> list[Manifest]:
    task, lanes = member.task, member.lanes
    evaluation_inputs = [inside(task, EVALUATION_ROOT)]
    if checker_reference(task.task) is not None:
        evaluation_inputs.append(layout.EVALUATOR)
    return [
        volumes.mount(volumes.WORKSPACE, task.workspace),
        *_beside(task, lanes),
        *asset_mounts(plan, task, lanes),
        *(
            lane_mount(plan, task, layout.LANE_EVALUATION_INPUTS, place)
            for place in evaluation_inputs
        ),
        lane_mount(plan, task, layout.LANE_PUBLIC, layout.PUBLIC),
        candidate_mount(plan, member.launch, member.candidate, layout.CANDIDATE),
        volumes.mount(volumes.OUTPUT, layout.OUTPUT),
        volumes.mount(volumes.HOME, layout.HOME),
        volumes.mount(volumes.TEMPORARY, layout.TEMPORARY),
    ]


def _run_spec(plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts) -> RunSpec:
    task, lanes = member.task, member.lanes
    evaluation_inputs = inside(task, EVALUATION_ROOT)
    archive = candidate_file(member.candidate, layout.CANDIDATE)
    own_files = f"{layout.PUBLIC_FILES}/{FRAMEWORK_FOLDER}"
    return replace(
        base_spec(plan, facts, plan.limits.stream_bytes),
        verdict=True,
        lanes=(
            DigestedPath(layout.PUBLIC, lanes.public_digest),
            DigestedPath(evaluation_inputs, lanes.evaluation_inputs_digest),
        ),
        candidate=CandidateSpec(archive.path, archive.digest, task.workspace),
        copies=(Transfer(own_files, inside(task, FRAMEWORK_FOLDER)),),
        protected=(evaluation_inputs, *(inside(task, place) for place in asset_places(lanes))),
        home=layout.HOME,
        prechecks=tuple(checker_prechecks(task, check, lanes)),
        phases=tuple(checker_phases(task, check, lanes)),
        open_modes=(layout.OUTPUT,),
    )


def _volumes(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    return [
        volumes.claim(plan.pods.claim),
        volumes.empty_dir(volumes.WORKSPACE, volumes.workspace_bytes(plan.pods)),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(plan)),
        volumes.empty_dir(volumes.TEMPORARY, volumes.TEMPORARY_BYTES),
        *beside_volume(_beside(task, lanes), plan.pods),
        volumes.empty_dir(volumes.HOME, volumes.HOME_BYTES),
        volumes.shared_memory(layout.CHECK),
    ]


def _resources(plan: RunPlan) -> Manifest:
    storage = (
        volumes.workspace_bytes(plan.pods)
        + _output_bytes(plan)
        + volumes.TEMPORARY_BYTES
        + volumes.HOME_BYTES
        + volumes.ROOT_BYTES
        + volumes.MARGIN_BYTES
    )
    return volumes.task_resources(plan.pods, storage)


def _output_bytes(plan: RunPlan) -> int:
    return volumes.output_bytes(plan.limits.stream_bytes, plan.limits)
