"""The Pod in which an agent works.

The tool of a model provider comes beside the task image: its volumes, its mounts and what supervise
runs of it are at the end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from securebench.agents.harness import ORACLE
from securebench.protocol.messages import FRAMEWORK_FOLDER, DigestedPath
from securebench.protocol.supervise import (
    SOURCES,
    CandidateSource,
    CopySpec,
    Phase,
    RunSpec,
    Transfer,
)
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.artifacts import Part
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    CourierJob,
    TaskContainer,
    base_spec,
    courier,
    seal_spec,
    task_container,
)
from securebench.run.pods.frame import (
    TASK_IMAGE_PULL_POLICY,
    Containers,
    Frame,
    Manifest,
    launch_frame,
    pod,
)
from securebench.run.pods.gateway import (
    egress_sidecar,
    egress_volumes,
    host_aliases,
    proxy_environment,
    sidecar_addresses,
)
from securebench.run.pods.volumes import (
    asset_mounts,
    asset_places,
    beside_mounts,
    beside_volume,
    lane_mount,
    part_mount,
    tools_mount,
)

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import AgentPlan, ClusterFacts, LaunchKey, RunPlan, TaskPlan


OVERLAY: Final = "overlay"


HARNESS_PHASE: Final = "harness"
"""The agent's own command; when the preflight before it fails nothing is known of the agent
(contract 12.3)."""


def harness_pod(
    plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet, facts: ClusterFacts
) -> Manifest:
    """Return the Pod of one harness launch.

    It names nothing but the public lane: the other lanes are neither mounted nor spelled out. Only
    that of an oracle names the folder of the task's reference answer besides.

    Args:
        plan: The run.
        task: The task.
        launch: Role ``harness``.
        lanes: What the task takes in.
        facts: What the cluster has told of the run.

    Raises:
        InvariantViolationError: It has egress, and the address of its gateway is not known.
    """
    init = [_courier(plan, task, launch, lanes)]
    if plan.egress is not None:
        init.append(egress_sidecar(plan, facts.gateway))
    if task.environment.starts_filled:
        init.append(_materialize(plan, task, asset_places(lanes)))
    return pod(
        plan,
        _frame(plan, task, launch, facts),
        Containers(_harness(plan, task, lanes, facts), _volumes(plan, task, lanes), init),
    )


def _frame(plan: RunPlan, task: TaskPlan, launch: LaunchKey, facts: ClusterFacts) -> Frame:
    seconds = _harness_seconds(plan, task)
    if seconds is not None:
        seconds += _source(task).seconds
    frame = launch_frame(plan, launch, seconds, facts)
    return frame if plan.egress is None else replace(frame, host_aliases=host_aliases())


def _courier(plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet) -> Manifest:
    places = asset_places(lanes)
    beside = beside_mounts(places, layout.COURIER_WORKSPACE)
    job = CourierJob(
        spec=seal_spec(plan, task, [FRAMEWORK_FOLDER, *places]),
        mounts=(
            # Mount points are made in it; without any it is only read.
            volumes.mount(volumes.WORKSPACE, layout.COURIER_WORKSPACE, read_only=not beside),
            *beside,
            part_mount(plan, launch, Part.CANDIDATE, layout.COURIER_CANDIDATE),
            part_mount(plan, launch, Part.PRODUCER, layout.COURIER_PRODUCER),
        ),
    )
    return courier(plan.pods, job)


def _materialize(plan: RunPlan, task: TaskPlan, places: list[str]) -> Manifest:
    container = TaskContainer(
        name=layout.MATERIALIZE,
        image=task.environment.image,
        resources=_resources(plan, task),
        tools=tools_mount(plan.pods),
        mounts=(
            volumes.mount(volumes.WORKSPACE, layout.MATERIALIZED),
            *beside_mounts(places, layout.MATERIALIZED),
        ),
        shared_memory=layout.HARNESS,
    )
    return task_container(container, CopySpec(task.environment.workspace, layout.MATERIALIZED))


def _harness(plan: RunPlan, task: TaskPlan, lanes: LaneSet, facts: ClusterFacts) -> Manifest:
    container = TaskContainer(
        name=layout.HARNESS,
        image=task.environment.image,
        resources=_resources(plan, task),
        tools=tools_mount(plan.pods),
        mounts=(
            volumes.mount(volumes.WORKSPACE, task.environment.workspace),
            *beside_mounts(asset_places(lanes), task.environment.workspace),
            *asset_mounts(plan, task, lanes),
            *(lane_mount(plan, task, lane, path) for lane, path, _ in _lanes(plan, lanes)),
            volumes.mount(volumes.OUTPUT, layout.OUTPUT),
            volumes.mount(volumes.TEMPORARY, layout.TEMPORARY),
            *_own_mounts(plan, task),
        ),
        shared_memory=layout.HARNESS,
        read_only_root=not task.environment.writable_root,
    )
    result = task_container(container, _run_spec(plan, task, lanes, facts))
    environment = _environment(plan)
    if environment:
        result["env"] = environment
    return result


def _source(task: TaskPlan) -> CandidateSource:
    return SOURCES[task.extraction.mode]


def _own_mounts(plan: RunPlan, task: TaskPlan) -> list[Manifest]:
    agent = plan.harness.agent
    mounts = [] if agent is None else _overlay_mounts(agent)
    scratch = _source(task).scratch
    if scratch:
        mounts.append(volumes.mount(_scratch_volume(scratch), scratch))
    return mounts


def _run_spec(plan: RunPlan, task: TaskPlan, lanes: LaneSet, facts: ClusterFacts) -> RunSpec:
    environment = task.environment
    spec = replace(
        base_spec(plan, facts, volumes.head_bytes(task, plan.limits)),
        lanes=tuple(DigestedPath(path, digest) for _, path, digest in _lanes(plan, lanes)),
        copies=(Transfer(layout.PUBLIC_FILES, environment.workspace),),
        protected=tuple(environment.inside(place) for place in asset_places(lanes)),
        phases=tuple(_harness_phases(plan, task)),
        open_modes=(environment.workspace, layout.OUTPUT),
        awaits=tuple(sidecar_addresses(plan)),
    )
    return _source(task).added(spec, environment.workdir, plan.limits)


def _lanes(plan: RunPlan, lanes: LaneSet) -> list[tuple[str, str, str]]:
    """Return what the harness container gets of the task: folder, place and digest of each."""
    public = (layout.LANE_PUBLIC, layout.PUBLIC, lanes.public_digest)
    if plan.harness.type != ORACLE:
        return [public]
    return [public, (layout.LANE_ORACLE, layout.ORACLE, lanes.oracle_digest)]


def _environment(plan: RunPlan) -> list[Manifest]:
    """Names without a value are skipped silently (contract 12.2); the proxy's are ours alone."""
    proxy = proxy_environment(plan)
    taken = {variable["name"] for variable in proxy}
    names = [name for name in plan.harness.env if name not in taken]
    return [*(_from_secret(plan.harness.secret, name) for name in names), *proxy]


def _from_secret(secret: str, name: str) -> Manifest:
    reference = {"name": secret, "key": name, "optional": True}
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _volumes(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    beside = beside_mounts(asset_places(lanes), task.environment.workspace)
    return [
        volumes.empty_dir(volumes.WORKSPACE, volumes.workspace_bytes(plan.pods)),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(plan, task)),
        volumes.empty_dir(volumes.TEMPORARY, volumes.TEMPORARY_BYTES),
        *beside_volume(beside, plan.pods),
        volumes.shared_memory(layout.HARNESS),
        *_own_volumes(plan, task),
    ]


def _own_volumes(plan: RunPlan, task: TaskPlan) -> list[Manifest]:
    agent = plan.harness.agent
    own = [] if agent is None else overlay_volumes(agent)
    if plan.egress is not None:
        own.extend(egress_volumes(plan))
    scratch = _source(task).scratch
    if scratch:
        size_bytes = volumes.workspace_bytes(plan.pods)
        own.append(volumes.empty_dir(_scratch_volume(scratch), size_bytes))
    return own


def _scratch_volume(path: str) -> str:
    return PurePosixPath(path).name


def _resources(plan: RunPlan, task: TaskPlan) -> Manifest:
    storage = (
        volumes.workspace_bytes(plan.pods)
        + _output_bytes(plan, task)
        + volumes.TEMPORARY_BYTES
        + volumes.MARGIN_BYTES
        + (volumes.AGENT_HOME_BYTES if plan.harness.agent is not None else 0)
        + (volumes.ROOT_BYTES if task.environment.writable_root else 0)
        + (volumes.workspace_bytes(plan.pods) if _source(task).scratch else 0)
    )
    return volumes.task_resources(plan.pods, storage)


def _output_bytes(plan: RunPlan, task: TaskPlan) -> int:
    streams = volumes.output_bytes(plan.limits, volumes.head_bytes(task, plan.limits))
    return streams + _source(task).file_bytes(plan.limits)


def overlay_volumes(agent: AgentPlan) -> list[Manifest]:
    """Return the tool's image as a read-only volume, and its home."""
    image = {"reference": agent.overlay, "pullPolicy": TASK_IMAGE_PULL_POLICY}
    return [
        {"name": OVERLAY, "image": image},
        volumes.empty_dir(volumes.HOME, volumes.AGENT_HOME_BYTES),
    ]


def _overlay_mounts(agent: AgentPlan) -> list[Manifest]:
    """Return where the harness container has both."""
    return [
        volumes.mount(OVERLAY, agent.overlay_path, read_only=True),
        volumes.mount(volumes.HOME, agent.home),
    ]


def _harness_phases(plan: RunPlan, task: TaskPlan) -> list[Phase]:
    """Return what supervise runs in the harness container, in order."""
    agent, environment = plan.harness.agent, task.environment
    command = task.command or plan.harness.command
    if agent is None:
        own = plan.harness.environment
        return [
            Phase(HARNESS_PHASE, command, environment.workdir, environment.timeout_seconds, env=own)
        ]
    return [
        Phase(
            name,
            argv,
            environment.workdir,
            environment.timeout_seconds,
            env=agent.environment,
            search=agent.search,
        )
        for name, argv in ((FailurePhase.PREFLIGHT, agent.preflight), (HARNESS_PHASE, command))
        if argv
    ]


def _harness_seconds(plan: RunPlan, task: TaskPlan) -> float | None:
    """Return how long all phases may take together, or None for no limit.

    The preflight has the limit of the harness, counted separately (contract 15.8).
    """
    seconds = task.environment.timeout_seconds
    if seconds is None:
        return None
    return seconds * len(_harness_phases(plan, task))
