"""Every pack of ours is run whole and graded again: the grades are the same (``make packs``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_packs import PACKS
from securebench.run.plan.model import Role
from securebench.run.state.entries import LaunchBegun
from support.release import Record, Release, call, condition, release

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

GRADES = ("task_id", "attempt", "outcome", "passed", "score")
SECONDS = 900


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest) -> Iterator[Release]:
    """A release in which every chosen pack runs whole with its own harness."""
    chosen = {item.name for item in request.session.items}
    with release("sb-regrades", {}) as installed:
        for pack in PACKS:
            if any(name.endswith(f"[{pack.name}]") for name in chosen):
                installed.kubectl("apply", "-k", str(pack))
        yield installed


def grades(records: list[Record]) -> list[tuple[object, ...]]:
    return [tuple(record.get(field) for field in GRADES) for record in records]


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.name)
def test_a_regrade_gives_the_same_grades(pack: Path, whole: Release) -> None:
    assert condition(whole.wait_ended(pack.name, SECONDS))["reason"] == "Completed"
    before = whole.records(pack.name)
    again = f"{pack.name}-again"
    call("securebench", "regrade", pack.name, "--name", again, "-n", whole.namespace)

    whole.wait_ended(again, SECONDS)

    after = whole.records(again)
    assert grades(after) == grades(before)
    assert any(record["passed"] for record in after)
    assert {record["regrade"]["run"] for record in after} == {pack.name}
    launches = [entry for entry in whole.entries(again) if isinstance(entry, LaunchBegun)]
    assert {entry.launch.role for entry in launches} == {Role.VERIFIER}
