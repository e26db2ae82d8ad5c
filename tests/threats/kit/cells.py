"""What Pod objects say about their containers and mounts."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from support.release import Raw

WHOLE_VOLUME = (
    '[JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-", value:'
    ' Object.spec.containers.volumeMounts{name: "results", mountPath: "/twin"}}]'
)
"""Takes the separation of the lanes away: the whole results volume in the agent's container."""


class Mount(NamedTuple):
    """One mount of a container."""

    container: str
    volume: str
    sub_path: str
    place: str
    read_only: bool


def containers(pod: Raw) -> list[Raw]:
    """Return all containers of a Pod, init containers and sidecars first."""
    spec = pod["spec"]
    return [
        *spec.get("initContainers", ()),
        *spec["containers"],
        *spec.get("ephemeralContainers", ()),
    ]


def untrusted(pod: Raw) -> list[Raw]:
    """Return the containers that do not run our own image."""
    return [item for item in containers(pod) if item["image"] not in _own_images()]


def trusted(pod: Raw) -> list[Raw]:
    """Return the containers that run our own image."""
    return [item for item in containers(pod) if item["image"] in _own_images()]


def mounts(container: Raw) -> list[Mount]:
    """Return what a container mounts."""
    return [
        Mount(
            container["name"],
            item["name"],
            item.get("subPath", ""),
            item["mountPath"],
            item.get("readOnly", False),
        )
        for item in container.get("volumeMounts", ())
    ]


def text(item: object) -> bytes:
    """Return an object as one text in which canaries are sought."""
    return json.dumps(item, ensure_ascii=False).encode()


def _own_images() -> set[str]:
    return {os.environ[f"SECUREBENCH_{name}_IMAGE"] for name in ("POD", "OPERATOR")}
