"""A run that an operator had begun when it was killed, one attempt at each stage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

from securebench.cluster.port import ObjectKind
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import Role
from support.build import question, write_pack
from support.operator_world import World

OTHER_VERIFIER = "another"
"""Version of an operator that grades otherwise than this one."""


def begin_run(world: World, verifier: str = "") -> str:
    """Begin a run of four tasks, kill its operator, and return its uid.

    The first attempt has a record, the second waits for its verifier, the third for its agent, and
    the fourth has not begun.

    Args:
        world: Has no run yet; its next operator knows nothing of this one.
        verifier: Version of the operator's verifier; empty for the present one.
    """
    write_pack(world.root / "packs/smoke", [question(name) for name in "abcd"])
    version = mock.patch("securebench.run.plan.score_fields.VERIFIER_VERSION", verifier)
    with version if verifier else mock.patch.dict("os.environ"):
        uid = world.apply(parallelism=2, isolation={"require": "Declared"})
        world.wait(5)
        _end(world, uid, 0, Role.HARNESS)
        _end(world, uid, 0, Role.VERIFIER)
        _end(world, uid, 1, Role.HARNESS)
        world.restart()
    return uid


def _end(world: World, uid: str, task: int, role: Role) -> None:
    for raw in world.cluster.objects(ObjectKind.POD).values():
        view = pod_view(raw)
        launch = None if view is None or view.is_terminal else view.launch
        if launch is not None and (launch.task, launch.role) == (task, role):
            world.cluster.set_pod_status(raw["metadata"]["name"], world.ending(uid, launch))
    world.wait(5)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
