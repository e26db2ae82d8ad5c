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
    with_artifacts,
)
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.artifacts import Part
from securebench.run.plan.environment import HEALTHCHECK
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    CourierJob,
    TaskContainer,
    base_spec,
    courier,
    judged_artifacts,
    seal_spec,
    side_pod,
    task_container,
)
from securebench.run.pods.frame import (
    TASK_IMAGE_PULL_POLICY,
    Containers,
    Frame,
    Manifest,
    launch_frame,
)
from securebench.run.pods.gateway import (
    egress_sidecar,
    host_aliases,
    proxy_environment,
    sidecar_addresses,
)
from securebench.run.pods.volumes import (
    OwnVolume,
    asset_mounts,
    asset_places,
    beside_mounts,
    lane_mount,
    part_mount,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.environment import Environment
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
        init.append(_materialize(plan, task, lanes))
    main = _harness(plan, task, lanes, facts)
    frame = _frame(plan, task, launch, facts)
    return side_pod(plan, task.environment, frame, Containers(main, init))


def _frame(plan: RunPlan, task: TaskPlan, launch: LaunchKey, facts: ClusterFacts) -> Frame:
    seconds = _harness_seconds(plan, task)
    if seconds is not None:
        seconds += _source(task).seconds
    frame = launch_frame(plan, launch, seconds, facts)
    return frame if plan.egress is None else replace(frame, host_aliases=host_aliases())


def _courier(plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet) -> Manifest:
    places = asset_places(lanes)
    job = CourierJob(
        spec=seal_spec(plan, task, [FRAMEWORK_FOLDER, *places]),
        mounts=(
            # Mount points are made in it; without any it is only read.
            *_workspace(plan, task, lanes, layout.COURIER_WORKSPACE, is_read=True),
            part_mount(plan, launch, Part.CANDIDATE, layout.COURIER_CANDIDATE),
            part_mount(plan, launch, Part.PRODUCER, layout.COURIER_PRODUCER),
        ),
    )
    return courier(plan.pods, job)


def _workspace(
    plan: RunPlan, task: TaskPlan, lanes: LaneSet, path: str, *, is_read: bool = False
) -> list[OwnVolume]:
    """Return the workspace at a place in a container, with the folders above its mount points."""
    if not task.environment.workspace:
        return []
    beside = beside_mounts(asset_places(lanes), path, plan.pods)
    volume = volumes.workspace(plan.pods, path)
    return [volume._replace(read_only=is_read and not beside), *beside]


def _materialize(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> Manifest:
    environment = task.environment
    container = TaskContainer(
        name=layout.MATERIALIZE,
        environment=replace(environment, writable_root=False),
        mounts=_workspace(plan, task, lanes, layout.MATERIALIZED),
        shared_memory=layout.HARNESS,
    )
    spec = CopySpec(environment.workspace, layout.MATERIALIZED)
    return task_container(plan.pods, container, spec)


def _harness(plan: RunPlan, task: TaskPlan, lanes: LaneSet, facts: ClusterFacts) -> Manifest:
    environment = task.environment
    container = TaskContainer(
        name=layout.HARNESS,
        environment=environment,
        mounts=(
            *_workspace(plan, task, lanes, environment.workspace),
            *asset_mounts(plan, task, lanes),
            *(lane_mount(plan, task, lane, path) for lane, path, _ in _lanes(plan, lanes)),
            volumes.output(_output_bytes(plan, task)),
            *([volumes.temporary()] if environment.workspace else volumes.logs()),
            *_own_mounts(plan, task),
        ),
    )
    result = task_container(plan.pods, container, _run_spec(plan, task, lanes, facts))
    variables = _environment(plan)
    if variables:
        result["env"] = variables
    return result


def _source(task: TaskPlan) -> CandidateSource:
    return SOURCES[task.extraction.mode]


def _own_mounts(plan: RunPlan, task: TaskPlan) -> list[OwnVolume]:
    agent, scratch = plan.harness.agent, _source(task).scratch
    mounts = [] if agent is None else overlay_mounts(agent)
    if scratch:
        mounts.append(volumes.workspace(plan.pods, scratch, PurePosixPath(scratch).name))
    return mounts


def _run_spec(plan: RunPlan, task: TaskPlan, lanes: LaneSet, facts: ClusterFacts) -> RunSpec:
    environment = task.environment
    spec = replace(
        base_spec(plan, facts, volumes.head_bytes(task, plan.limits)),
        lanes=tuple(DigestedPath(path, digest) for _, path, digest in _lanes(plan, lanes)),
        phases=tuple(_harness_phases(plan, task)),
        awaits=tuple(sidecar_addresses(plan)),
        open_modes=(layout.OUTPUT,),
    )
    if environment.workspace:
        spec = replace(
            spec,
            copies=(Transfer(layout.PUBLIC_FILES, environment.workspace),),
            protected=tuple(environment.inside(place) for place in asset_places(lanes)),
            open_modes=(environment.workspace, layout.OUTPUT),
        )
    else:
        spec = replace(spec, temporary="")
    spec = _source(task).added(spec, environment.workdir, plan.limits)
    artifacts = judged_artifacts(task)
    return spec if artifacts is None else with_artifacts(spec, artifacts)


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


def _output_bytes(plan: RunPlan, task: TaskPlan) -> int:
    streams = volumes.output_bytes(plan.limits, volumes.head_bytes(task, plan.limits))
    return streams + _source(task).file_bytes(plan.limits)


def overlay_mounts(agent: AgentPlan) -> list[OwnVolume]:
    """Return the tool's image as a read-only volume, and its home."""
    image = {"reference": agent.overlay, "pullPolicy": TASK_IMAGE_PULL_POLICY}
    return [
        OwnVolume({"name": OVERLAY, "image": image}, agent.overlay_path, read_only=True),
        volumes.empty_dir(volumes.HOME, volumes.AGENT_HOME_BYTES, agent.home),
    ]


def _harness_phases(plan: RunPlan, task: TaskPlan) -> list[Phase]:
    """Return what supervise runs in the harness container, in order."""
    agent, environment = plan.harness.agent, task.environment
    command = task.command or plan.harness.command
    preflight = () if agent is None else agent.preflight
    of_agent = [
        Phase(
            name,
            argv,
            environment.workdir,
            environment.timeout_seconds,
            env=_variables(plan, environment),
            search=() if agent is None else agent.search,
        )
        for name, argv in ((FailurePhase.PREFLIGHT, preflight), (HARNESS_PHASE, command))
        if argv
    ]
    return [*_health_checks(environment), *of_agent]


def _health_checks(environment: Environment) -> list[Phase]:
    """Return what has to succeed before anything of the agent runs; at most one."""
    command, seconds = environment.check, environment.check_seconds
    own = environment.env
    return [Phase(HEALTHCHECK, command, environment.workdir, seconds, env=own)] if command else []


def _variables(plan: RunPlan, environment: Environment) -> Mapping[str, str]:
    """Return the variables of the agent; what the run gives comes before what the task says."""
    agent = plan.harness.agent
    given = {str(variable["name"]) for variable in _environment(plan)}
    return {
        **{name: value for name, value in environment.env.items() if name not in given},
        **(plan.harness.environment if agent is None else agent.environment),
    }


def _harness_seconds(plan: RunPlan, task: TaskPlan) -> float | None:
    """Return how long all phases may take together, or None for no limit.

    The preflight has the limit of the harness, counted separately (contract 15.8).
    """
    seconds = task.environment.timeout_seconds
    if seconds is None:
        return None
    phases = len(_harness_phases(plan, task)) - len(_health_checks(task.environment))
    return seconds * phases + task.environment.check_seconds
