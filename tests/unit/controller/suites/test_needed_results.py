"""Which results retention leaves because suites need them."""

from __future__ import annotations

from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.suite_store import needed_by_suites
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.errors import PermanentClusterError, TransientClusterError
from support.suite_world import HARNESSES, PACKS, SuiteWorld

ONE = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}}
PASSED, FAILED = [True] * 4, [False] * 4


def needed(world: SuiteWorld) -> set[str]:
    return set(world.runner.run(needed_by_suites(world.context)))


def add(world: SuiteWorld, run: str, uid: str) -> None:
    RunIndex(world.root).add(IndexEntry(run, uid, run, "p", "d", "h", "1", "2026-01-01T00:00:00Z"))


def uids(world: SuiteWorld) -> list[str]:
    return [entry.uid for entry in RunIndex(world.root).entries()]


def test_nothing_is_needed_without_suites(world: SuiteWorld) -> None:
    add(world, "free", "u1")
    assert needed(world) == set()


def test_every_run_with_the_name_of_a_baseline_is_needed(world: SuiteWorld) -> None:
    for run, uid in (("best", "u1"), ("best", "u2"), ("other", "u3"), ("free", "u4")):
        add(world, run, uid)
    packs = [{**PACKS[0], "baseline": {"run": "other"}}]
    world.apply_suite(matrix={"packs": packs, "harnesses": HARNESSES}, baseline={"run": "best"})
    assert needed(world) & {"u1", "u2", "u3", "u4"} == {"u1", "u2", "u3"}


def test_the_current_round_and_the_last_one_that_passed_are_needed(world: SuiteWorld) -> None:
    world.apply_suite(**ONE, gates={"minPassRate": "0.5"})
    world.end_all(passed=PASSED)
    for value, passed in (("1", FAILED), ("2", FAILED)):
        world.annotate(value)
        world.end_all(passed=passed)
    good, _, current = uids(world)
    assert needed(world) == {good, current}


@pytest.mark.parametrize(("status", "is_told"), [(404, False), (403, True)])
def test_a_cluster_without_suites_needs_nothing(
    world: SuiteWorld, status: int, *, is_told: bool
) -> None:
    error = PermanentClusterError("x", status=status)
    with mock.patch.object(world.cluster, "list", side_effect=error):
        if is_told:
            with pytest.raises(PermanentClusterError):
                needed(world)
        else:
            assert needed(world) == set()


def test_an_api_server_that_is_away_is_an_error(world: SuiteWorld) -> None:
    world.cluster.fail_next("list", TransientClusterError("x"), kind=ObjectKind.BENCHMARK_SUITE)
    with pytest.raises(TransientClusterError):
        needed(world)
