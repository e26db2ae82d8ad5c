"""Volumes of a Pod and their mounts."""

from __future__ import annotations

from securebench.manifests.layout import SHARED_MEMORY
from securebench.manifests.sizes import SHARED_MEMORY_BYTES, mebibytes

RESULTS = "results"
WORKSPACE = "workspace"
OUTPUT = "output"
TOOLS = "tools"
TEMPORARY = "temporary"
HOME = "home"


def claim(name: str) -> dict[str, object]:
    """Return the results volume; containers see sub-paths of it only."""
    return {"name": RESULTS, "persistentVolumeClaim": {"claimName": name}}


def empty_dir(name: str, size_bytes: int) -> dict[str, object]:
    """Return a folder on the node's disk that lives as long as the Pod."""
    return {"name": name, "emptyDir": {"sizeLimit": mebibytes(size_bytes)}}


def shared_memory(container: str) -> dict[str, object]:
    """Return the memory of a container's own /dev/shm."""
    return {
        "name": f"shm-{container}",
        "emptyDir": {"medium": "Memory", "sizeLimit": mebibytes(SHARED_MEMORY_BYTES)},
    }


def shared_memory_mount(container: str) -> dict[str, object]:
    """Return the mount of a container's own /dev/shm."""
    return mount(f"shm-{container}", SHARED_MEMORY)


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
