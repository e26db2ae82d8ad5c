"""Volumes of a Pod and their mounts."""

from __future__ import annotations

from securebench.run.layout import SHARED_MEMORY
from securebench.run.pods.parts.sizes import SHARED_MEMORY_BYTES, mebibytes

RESULTS = "results"
WORKSPACE = "workspace"
OUTPUT = "output"
TOOLS = "tools"
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
        name: Of the volume.
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
