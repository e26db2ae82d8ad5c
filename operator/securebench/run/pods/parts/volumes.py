"""Volumes of Pods, what containers mount from them, and how a workspace is laid out.

Harness and check Pods lay it out alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.protocol.messages import DigestedPath
from securebench.run import layout
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.parts.sizes import SHARED_MEMORY_BYTES, mebibytes, workspace_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import PodPolicy, RunPlan, TaskPlan
    from securebench.run.pods.parts.frame import Manifest
    from securebench.run.state.attempts import SealedCandidate

RESULTS = "results"
WORKSPACE = "workspace"
OUTPUT = "output"
BESIDE = "beside"
TEMPORARY = "temporary"
HOME = "home"
EGRESS_TOKEN = "egress-token"  # noqa: S105 - a volume's name
PROVIDER = "provider"
AUTHORITIES = "authorities"

READABLE = 0o444
"""For containers that are not root: without fsGroup such files belong to root."""


def claim(name: str) -> dict[str, object]:
    """Return the results volume; containers see sub-paths of it only."""
    return {"name": RESULTS, "persistentVolumeClaim": {"claimName": name}}


def empty_dir(name: str, size_bytes: int) -> dict[str, object]:
    """Return a folder on the node's disk that lives as long as the Pod."""
    return {"name": name, "emptyDir": {"sizeLimit": mebibytes(size_bytes)}}


def service_account_token(
    name: str, file: str, audience: str, expiration_seconds: int
) -> dict[str, object]:
    """Return a token of the Pod's service account for one audience; the kubelet renews it.

    Args:
        name: Name of the volume.
        file: Name of the token's file.
        audience: The only one that the token is good for.
        expiration_seconds: At least 600; the API server may give less.
    """
    token = {"path": file, "audience": audience, "expirationSeconds": expiration_seconds}
    return {"name": name, "projected": {"sources": [{"serviceAccountToken": token}]}}


def secret_key(name: str, secret: str, key: str, file: str) -> dict[str, object]:
    """Return one entry of a Secret as a file; the others of the Secret are left out."""
    items = [{"key": key, "path": file}]
    return {"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": READABLE}}


def config_map_key(name: str, config_map: str, key: str) -> dict[str, object]:
    """Return one entry of a ConfigMap as a file of the same name."""
    items = [{"key": key, "path": key}]
    return {"name": name, "configMap": {"name": config_map, "items": items}}


def shared_memory(container: str) -> dict[str, object]:
    """Return the memory of a task container's own /dev/shm, which no other container reaches."""
    return {
        "name": f"shm-{container}",
        "emptyDir": {"medium": "Memory", "sizeLimit": mebibytes(SHARED_MEMORY_BYTES)},
    }


def shared_memory_mount(container: str) -> dict[str, object]:
    """Return the mount of a task container's own /dev/shm."""
    return mount(f"shm-{container}", layout.SHARED_MEMORY)


def mount(
    volume: str, path: str, *, sub_path: str = "", read_only: bool = False
) -> dict[str, object]:
    """Return one mount of a container.

    Args:
        volume: Name of the volume.
        path: Absolute folder or file in the container.
        sub_path: Part of the volume, relative; the whole volume when empty.
        read_only: Whether the container can only read it.
    """
    result: dict[str, object] = {"name": volume, "mountPath": path}
    if sub_path:
        result["subPath"] = sub_path
    if read_only:
        result["readOnly"] = True
    return result


def tools_mount(policy: PodPolicy) -> dict[str, object]:
    """Return the read-only mount of the programs of task containers."""
    return mount(RESULTS, layout.TOOLS, sub_path=policy.tools, read_only=True)


def lane_mount(plan: RunPlan, task: TaskPlan, lane: str, path: str) -> Manifest:
    """Return the read-only mount of a lane."""
    sub_path = layout.lane_folder(plan.identity.uid, task.index, lane)
    return mount(RESULTS, path, sub_path=sub_path, read_only=True)


def asset_mounts(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Manifest]:
    """Return the mounts of the read-only public assets at their places in the workspace."""
    public = layout.lane_folder(plan.identity.uid, task.index, layout.LANE_PUBLIC)
    return [
        mount(
            RESULTS,
            inside(task, asset.mount),
            sub_path=f"{public}/{asset.lane_path}",
            read_only=True,
        )
        for asset in lanes.asset_mounts
    ]


def asset_places(lanes: LaneSet) -> list[str]:
    """Return where read-only public assets lie, relative to the workspace."""
    return [asset.mount for asset in lanes.asset_mounts]


def beside_mounts(places: Iterable[str], workspace: str) -> list[Manifest]:
    """Return the folders above mount points in the workspace, outermost first.

    Left to the container runtime they would belong to root, and the task could not write beside
    the mounts. The kubelet makes a missing sub-path with the mode of its volume, 0777, but only its
    last component: so each folder is one of a volume of their own, side by side. Nobody mounts that
    volume as a whole, so nobody can exchange them.

    Args:
        places: Mount points relative to the workspace.
        workspace: Where the container has the workspace.
    """
    parents: dict[str, None] = {}
    for place in places:
        parts = place.split("/")[:-1]
        parents |= dict.fromkeys("/".join(parts[: end + 1]) for end in range(len(parts)))
    return [
        mount(BESIDE, f"{workspace.rstrip('/')}/{parent}", sub_path=str(number))
        for number, parent in enumerate(sorted(parents))
    ]


def beside_volume(mounts: Sequence[object], policy: PodPolicy) -> list[Manifest]:
    """Return the volume of these folders; whoever writes there takes it for the workspace."""
    return [empty_dir(BESIDE, workspace_bytes(policy))] if mounts else []


def inside(task: TaskPlan, place: str) -> str:
    """Return the absolute path of a place in the workspace."""
    return f"{task.workspace.rstrip('/')}/{place}"


def candidate_mount(
    plan: RunPlan, launch: LaunchKey, candidate: SealedCandidate, path: str
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
    return mount(RESULTS, path, sub_path=f"{folder}/{layout.CANDIDATE_NAME}", read_only=True)


def verification_mount(plan: RunPlan, launch: LaunchKey, path: str) -> Manifest:
    """Return the writable mount of the folder for what a verifier leaves."""
    folder = layout.launch_folder(plan.identity.uid, launch)
    return mount(RESULTS, path, sub_path=f"{folder}/{layout.VERIFICATION_NAME}")


def candidate_file(candidate: SealedCandidate, folder: str) -> DigestedPath:
    """Return where a candidate lies in a container, with the digest to compare.

    Args:
        candidate: It has a file.
        folder: Where it is mounted.
    """
    return DigestedPath(f"{folder}/{candidate.file}", candidate.digest)
