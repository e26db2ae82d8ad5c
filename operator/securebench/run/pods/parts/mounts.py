"""What containers of a run mount from the volume, and how a workspace is laid out.

Harness and check Pods lay it out alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from securebench.run import layout
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.parts import volumes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import RunPlan, TaskPlan
    from securebench.run.pods.parts.frame import Manifest

OPEN_MODE = "0777"
"""Of folders that the courier makes for the task image's user, whoever that is."""


def lane_mount(plan: RunPlan, task: TaskPlan, lane: str, path: str) -> Manifest:
    """Return the read-only mount of a lane."""
    sub_path = layout.lane_folder(plan.identity.uid, task.index, lane)
    return volumes.mount(volumes.RESULTS, path, sub_path=sub_path, read_only=True)


def asset_mounts(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    """Return the mounts of the read-only public assets at their places in the workspace."""
    public = layout.lane_folder(plan.identity.uid, task.index, layout.LANE_PUBLIC)
    return [
        volumes.mount(
            volumes.RESULTS,
            inside(task, asset.mount),
            sub_path=f"{public}/{asset.lane_path}",
            read_only=True,
        )
        for asset in lanes.asset_mounts
    ]


def asset_places(lanes: LaneSet) -> list[str]:
    """Return where read-only public assets lie, relative to the workspace."""
    return [asset.mount for asset in lanes.asset_mounts]


def parent_folders(places: Iterable[str]) -> list[dict[str, str]]:
    """Return the courier's folders above mount points in the workspace, outermost first.

    Left to the container runtime they would belong to root, and the task could not write beside
    the mounts.

    Args:
        places: Mount points relative to the workspace.
    """
    parents: dict[str, None] = {}
    for place in places:
        parts = place.split("/")[:-1]
        parents |= dict.fromkeys("/".join(parts[: end + 1]) for end in range(len(parts)))
    return [
        {"path": f"{layout.COURIER_WORKSPACE}/{parent}", "mode": OPEN_MODE}
        for parent in sorted(parents)
    ]


def courier_workspace_mount(folders: Sequence[object]) -> Manifest:
    """Return the courier's mount of the workspace, writable only to make folders in it."""
    return volumes.mount(volumes.WORKSPACE, layout.COURIER_WORKSPACE, read_only=not folders)


def inside(task: TaskPlan, place: str) -> str:
    """Return the absolute path of a place in the workspace."""
    return f"{task.workspace.rstrip('/')}/{place}"


class PatchDigests(Protocol):
    """What the operator wrote beside a patch; ``run.state.attempts.SealedPatch`` is one."""

    @property
    def applied_digest(self) -> str:
        """Digest of what is applied."""
        ...

    @property
    def declared_digest(self) -> str:
        """Digest of what that declares."""
        ...


class SealedMounts(Protocol):
    """A sealed candidate; ``securebench.run.state.attempts.SealedCandidate`` is one."""

    @property
    def launch(self) -> int:
        """Launch that produced it."""
        ...

    @property
    def file(self) -> str | None:
        """Its file, or None."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the file."""
        ...

    @property
    def patch(self) -> PatchDigests | None:
        """What belongs to a candidate patch."""
        ...


def candidate_mount(
    plan: RunPlan, launch: LaunchKey, candidate: SealedMounts, path: str
) -> Manifest:
    """Return the read-only mount of a candidate.

    Args:
        plan: The run.
        launch: The verifier's launch; the candidate may come from one of another number.
        candidate: What is judged.
        path: Folder in the container.
    """
    producer = LaunchKey(launch.task, launch.attempt, Role.HARNESS, candidate.launch)
    folder = layout.launch_folder(plan.identity.uid, producer)
    return volumes.mount(
        volumes.RESULTS, path, sub_path=f"{folder}/{layout.CANDIDATE_NAME}", read_only=True
    )


def candidate_spec(candidate: SealedMounts, folder: str) -> dict[str, str]:
    """Return where a candidate lies in a container, with the digest to compare.

    Args:
        candidate: It has a file.
        folder: Where it is mounted.
    """
    return {"path": f"{folder}/{candidate.file}", "digest": candidate.digest}
