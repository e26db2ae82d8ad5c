"""Lanes: files of tests that go one after the other, while other lanes go on beside them.

Tests on the node mostly wait. With ``-n 3`` each lane is a process of its own; without it
everything goes one after the other. The ``conftest`` of a tier makes the scheduler.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePath

from xdist.scheduler import LoadScopeScheduling

SHARED = "shared"
"""Of the tests that use the tier's shared release, and of all that this table does not name."""

LANES = {
    "test_deletion.py": "egress",
    "test_egress.py": "egress",
    "test_restart.py": "egress",
    "test_refusals.py": "refusals",
    "test_retention.py": "refusals",
    "test_first_packs.py": "packs",
    "test_mistakes.py": "packs",
    "test_bundle.py": "packs",
    "test_chart_install.py": "releases",
    "test_failover.py": "releases",
    "test_kills.py": "releases",
}
"""By file; those of one lane balance those of the others."""


class LaneScheduling(LoadScopeScheduling):
    """Sends all tests of a lane to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)


def lane(nodeid: str) -> str:
    """Return the lane of a test."""
    return LANES.get(PurePath(nodeid.partition("::")[0]).name, SHARED)


ARENA_MODULE = "threats.kit.arena"


class ArenaScheduling(LoadScopeScheduling):
    """Sends files that use the arena to one process, each other file to whichever is free."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return ARENA_MODULE if _imports_arena(self.config.rootpath / path) else path


@cache
def _imports_arena(path: Path) -> bool:
    return f"from {ARENA_MODULE} import" in path.read_text(encoding="utf-8")
