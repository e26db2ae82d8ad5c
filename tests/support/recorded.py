"""Runs that an earlier version of the operator had begun when it was killed, as they lay there.

Each folder of ``tests/golden/upgrade`` holds the volume, the objects of the cluster at that moment,
and the records with which that version itself went on to end the run. They are never written anew.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from securebench.cluster.port import ObjectKind
from support.operator_world import World

RECORDED = Path(__file__).parents[1] / "golden/upgrade"
NAME = "nightly"


def begin_recorded(world: World, name: str) -> str:
    """Put a recorded run before an operator that knows nothing of it yet; return its uid."""
    folder = RECORDED / name
    with tarfile.open(folder / "volume.tar.gz") as volume:
        volume.extractall(world.root, filter="data")
    told = json.loads((folder / "objects.json").read_text(encoding="utf-8"))
    world.clock.time = told["now"]
    for kind, objects in told["objects"].items():
        for body in objects:
            place = ObjectKind(kind), body["metadata"]["name"]
            world.runner.run(world.cluster.create(place[0], body))
            world.cluster.edit(*place, {"metadata": body["metadata"]})
            if "status" in body:
                world.cluster.edit(*place, {"status": body["status"]})
    return str(told["uid"])


def recorded_ends(name: str) -> list[dict[str, Any]]:
    """Return the records that the earlier version itself wrote in the end."""
    return read_records(RECORDED / name / "candidates.jsonl")


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
