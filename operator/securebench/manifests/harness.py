"""The Pod in which an agent works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.harnesses.config import ORACLE
from securebench.manifests import layout, sizes, volumes
from securebench.manifests.commands import Phase, base_spec, lane_spec, phase_spec, seal_spec
from securebench.manifests.containers import (
    CourierJob,
    TaskContainer,
    courier,
    task_container,
    temporary_mount,
)
from securebench.manifests.frame import Containers, Manifest, launch_frame, pod
from securebench.manifests.mounts import (
    asset_mounts,
    asset_places,
    courier_workspace_mount,
    inside,
    lane_mount,
    parent_folders,
)
from securebench.protocol import FRAMEWORK_FOLDER

if TYPE_CHECKING:
    from securebench.packs.materialize import LaneSet
    from securebench.plan.model import HarnessPlan, LaunchKey, RunPlan, TaskPlan


def harness_pod(plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet) -> Manifest:
    """Return the Pod of one harness launch.

    It names nothing but the public lane: the other lanes are neither mounted nor spelled out. Only
    that of an oracle names the folder of the task's reference answer besides.

    Args:
        plan: The run.
        task: The task.
        launch: Role ``harness``.
        lanes: What lies on the volume for the task.
    """
    init = [_courier(plan, task, launch, lanes)]
    if task.materialize_from:
        init.append(_materialize(plan, task))
    return pod(
        plan,
        launch_frame(plan, launch, task.timeout_seconds),
        Containers(_harness(plan, task, lanes), _volumes(plan, task), init),
    )


def _courier(plan: RunPlan, task: TaskPlan, launch: LaunchKey, lanes: LaneSet) -> Manifest:
    places = asset_places(lanes)
    folders = parent_folders(places)
    own = layout.launch_folder(plan.identity.uid, launch)
    job = CourierJob(
        spec=seal_spec(plan, task, [FRAMEWORK_FOLDER, *places]),
        folders=folders,
        mounts=(
            courier_workspace_mount(folders),
            volumes.mount(
                volumes.RESULTS, layout.COURIER_CANDIDATE, sub_path=f"{own}/{layout.CANDIDATE_NAME}"
            ),
            volumes.mount(
                volumes.RESULTS, layout.COURIER_PRODUCER, sub_path=f"{own}/{layout.PRODUCER_NAME}"
            ),
        ),
    )
    return courier(plan.pods, job)


def _materialize(plan: RunPlan, task: TaskPlan) -> Manifest:
    container = TaskContainer(
        name=layout.MATERIALIZE,
        image=task.image,
        resources=_resources(plan, task),
        mounts=(volumes.mount(volumes.WORKSPACE, layout.MATERIALIZED),),
        shared_memory=layout.HARNESS,
    )
    spec = {"from": task.materialize_from, "to": layout.MATERIALIZED}
    return task_container(container, "copy", spec)


def _harness(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> Manifest:
    container = TaskContainer(
        name=layout.HARNESS,
        image=task.image,
        resources=_resources(plan, task),
        mounts=(
            volumes.mount(volumes.WORKSPACE, task.workspace),
            *asset_mounts(plan, task, lanes),
            *(lane_mount(plan, task, lane, path) for lane, path, _ in _lanes(plan, lanes)),
            volumes.mount(volumes.OUTPUT, layout.OUTPUT),
            temporary_mount(),
        ),
        shared_memory=layout.HARNESS,
    )
    result = task_container(container, "run", _run_spec(plan, task, lanes))
    if plan.harness.env:
        result["env"] = _environment(plan.harness)
    return result


def _run_spec(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> dict[str, object]:
    phase = Phase("harness", plan.harness.command, task.workdir, task.timeout_seconds)
    return {
        **base_spec(plan, sizes.head_bytes(task, plan.limits)),
        "verdict": False,
        "lanes": [lane_spec(path, digest) for _, path, digest in _lanes(plan, lanes)],
        "candidate": None,
        "copies": [{"from": layout.PUBLIC_FILES, "to": task.workspace}],
        "protected": [inside(task, place) for place in asset_places(lanes)],
        "home": "",
        "phases": [phase_spec(phase)],
        "open_modes": [task.workspace, layout.OUTPUT],
    }


def _lanes(plan: RunPlan, lanes: LaneSet) -> list[tuple[str, str, str]]:
    """Return what the harness container gets of the task: folder, place and digest of each."""
    public = (layout.LANE_PUBLIC, layout.PUBLIC, lanes.public_digest)
    if plan.harness.type != ORACLE:
        return [public]
    return [public, (layout.LANE_ORACLE, layout.ORACLE, lanes.oracle_digest)]


def _environment(harness: HarnessPlan) -> list[Manifest]:
    """Names without a value are skipped silently (contract 12.2)."""
    return [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": harness.secret, "key": name, "optional": True}},
        }
        for name in harness.env
    ]


def _volumes(plan: RunPlan, task: TaskPlan) -> list[Manifest]:
    return [
        volumes.claim(plan.pods.claim),
        volumes.empty_dir(volumes.WORKSPACE, sizes.workspace_bytes(plan.pods)),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(plan, task)),
        volumes.empty_dir(volumes.TEMPORARY, sizes.TEMPORARY_BYTES),
        volumes.empty_dir(volumes.TOOLS, sizes.TOOLS_BYTES),
        volumes.shared_memory(layout.COURIER),
        volumes.shared_memory(layout.HARNESS),
    ]


def _resources(plan: RunPlan, task: TaskPlan) -> Manifest:
    storage = (
        sizes.workspace_bytes(plan.pods)
        + _output_bytes(plan, task)
        + sizes.TEMPORARY_BYTES
        + sizes.TOOLS_BYTES
        + sizes.MARGIN_BYTES
    )
    return sizes.task_resources(plan.pods, storage)


def _output_bytes(plan: RunPlan, task: TaskPlan) -> int:
    return sizes.output_bytes(sizes.head_bytes(task, plan.limits), plan.limits)
