"""Folders of suites that were deleted while no operator worked."""

from __future__ import annotations

from securebench.cluster.port import ObjectKind
from securebench.controller.suite_store import sweep_orphans
from securebench.errors import PermanentClusterError, TransientClusterError
from support.suite_world import SuiteWorld

GONE = "99999999-1111-4000-8000-000000000000"


def folders(world: SuiteWorld) -> set[str]:
    return {path.name for path in (world.root / "suites").iterdir()}


def with_orphan(world: SuiteWorld) -> set[str]:
    """Make a suite and the folder of one that is gone; return the folder that has to stay."""
    world.apply_suite(maxConcurrentRuns=1)
    kept = folders(world)
    folder = world.root / "suites" / GONE
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    return kept


def test_they_are_removed_and_no_other(world: SuiteWorld) -> None:
    kept = with_orphan(world)
    world.runner.run(sweep_orphans(world.context))
    assert folders(world) == kept


def test_an_api_server_that_is_away_is_waited_for(world: SuiteWorld) -> None:
    kept = with_orphan(world)
    for _ in range(3):
        error = TransientClusterError("the server is away")
        world.cluster.fail_next("list", error, kind=ObjectKind.BENCHMARK_SUITE)
    world.runner.run(sweep_orphans(world.context))
    assert folders(world) == kept


def test_without_the_kind_nothing_is_removed(world: SuiteWorld) -> None:
    """Whoever removed the CRD may put it back, and the suites with it."""
    kept = with_orphan(world)
    error = PermanentClusterError("no such kind", status=404)
    world.cluster.fail_next("list", error, kind=ObjectKind.BENCHMARK_SUITE)
    world.runner.run(sweep_orphans(world.context))
    assert folders(world) == {*kept, GONE}
