"""Runs of a suite that are stopped once their cell is shown to be worse than its baseline."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import suite_results
from securebench.controller.volume.folders import run_folder
from securebench.suite.decide import LOOKS_SECONDS
from support.suite_world import HARNESSES, PACKS, SuiteWorld

TASKS = 40
ONE = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}}
TWO = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES}, "maxConcurrentRuns": 2}
IN_LOOKS = {"gates": {"notWorse": {"looks": 4}}, "baseline": {"suite": "nightly"}}
REASON = "securebench.dev/cancel-reason"
WORSE = "worse by 100.0 points at look 2 of 4 (p = 1.91e-06 <= 0.00549, 20 of 40 tasks)"


def compared(world: SuiteWorld, spec: dict[str, Any], **gates: object) -> list[str]:
    """Give a suite its baseline, run it again; return the runs that go on, by cell."""
    world.apply_suite(**{**spec, **IN_LOOKS, **gates})
    world.end_all(passed=[True] * TASKS)
    assert world.said("GatesPassed")[0] == "True"
    world.annotate("again")
    return [name for _, name in sorted(world.going().items())]


def records(world: SuiteWorld, name: str, passed: list[Any], **record: object) -> None:
    """Write what a run that goes on has done so far, and let the suite look at it."""
    world.write_records(world.begin(name), passed, **record)
    world.settle(LOOKS_SECONDS + 31)


def cancelled(world: SuiteWorld) -> dict[str, str]:
    """Return why runs were cancelled, by name."""
    runs = world.cluster.objects(ObjectKind.BENCHMARK_RUN).items()
    return {
        name: raw["metadata"]["annotations"][REASON]
        for name, raw in runs
        if raw["spec"].get("cancel") == "Immediate"
    }


def result(world: SuiteWorld, name: str) -> dict[str, Any]:
    """Return what the status of the suite says of a run."""
    (found,) = (each for each in world.suite_status()["results"] if each["run"] == name)
    return dict(found)


def test_a_run_that_took_the_place_of_another_is_not_cancelled(
    world: SuiteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = compared(world, ONE)
    patch = world.cluster.patch

    async def replaced_first(kind: ObjectKind, run: str, body: Any) -> bool:
        if world.cluster.objects(kind)[run]["metadata"]["uid"] != "other":
            world.cluster.edit(kind, run, {"metadata": {"uid": "other"}})
        return await patch(kind, run, body)

    monkeypatch.setattr(world.cluster, "patch", replaced_first)
    records(world, name, [False] * 20)
    run = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
    assert run["metadata"]["uid"] == "other"
    assert cancelled(world) == {}


def test_a_run_that_is_worse_is_stopped_and_says_so(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [False] * 19)
    assert cancelled(world) == {}
    records(world, name, [False] * 20)
    assert cancelled(world) == {name: f"gate notWorse of its suite: it is {WORSE}"}
    world.end(name, "Cancelled", passed=[False] * 21)
    assert result(world, name)["state"] == "Stopped"
    assert result(world, name)["reason"] == "Cancelled"
    assert world.suite_status()["cells"]["stopped"] == 1
    assert world.suite_status()["cells"]["failed"] == 0
    status, reason, message = world.said("GatesPassed")
    assert (status, reason) == ("False", "GatesFailed")
    assert message == (
        f"notWorse: smoke/a is {WORSE}; lost: t0, t1, t2, t3, t4 and 16 more | stopped early, with"
        " no result to judge: smoke/a | the same was run before: smoke/a 2 times"
    )
    assert world.said()[:2] == ("False", "GatesFailed")


def test_a_stopped_run_never_becomes_the_baseline(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [False] * 20)
    world.end(name, "Cancelled", passed=[False] * 20)
    world.apply_suite(**ONE, gates={"minPassRate": "0"})
    assert world.said()[:2] == ("False", "CellsFailed")
    world.apply_suite(**ONE, **IN_LOOKS)
    world.annotate("and again")
    (third,) = world.going().values()
    records(world, third, [False] * 20)
    assert third in cancelled(world)


def test_what_no_look_decides_goes_on_to_its_end(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [True] * 20 + [False] * 5)
    assert cancelled(world) == {}
    world.end(name, passed=[True] * 35 + [False] * 5)
    assert cancelled(world) == {}
    status, _, message = world.said("GatesPassed")
    assert status == "True"
    assert "notWorse: no cell is worse at level 0.05 in 4 looks; a loss of" in message


def test_a_run_that_is_better_goes_on(world: SuiteWorld) -> None:
    """Its result is the next baseline, so it has to be whole."""
    world.apply_suite(**{**ONE, **IN_LOOKS})
    world.end_all(passed=[False] * TASKS)
    world.annotate("again")
    (name,) = world.going().values()
    records(world, name, [True] * 20)
    assert cancelled(world) == {}
    world.end(name, passed=[True] * TASKS)
    assert world.said("GatesPassed")[0] == "True"


def test_one_cell_is_stopped_and_the_others_go_on(world: SuiteWorld) -> None:
    first, second = compared(world, TWO)
    records(world, first, [False] * 20)
    assert set(cancelled(world)) == {first}
    world.end(first, "Cancelled", passed=[False] * 20)
    assert world.said("GatesPassed")[:2] == ("Unknown", "Running")
    assert set(world.going().values()) == {second}
    world.end(second, passed=[True] * TASKS)
    _, reason, message = world.said("GatesPassed")
    assert reason == "GatesFailed"
    assert "smoke/b" not in message.split(" | ")[0]


@pytest.mark.parametrize(("spec", "want"), [(ONE, 1), (TWO, 0)])
def test_cells_share_the_level(world: SuiteWorld, spec: dict[str, Any], want: int) -> None:
    """Nine losses of twenty tasks: p = 0.0039, where one cell has 0.0055 and two half of it."""
    name, *_ = compared(world, spec)
    records(world, name, [False] * 9 + [True] * 11)
    assert len(cancelled(world)) == want


def test_a_restart_stops_nothing_twice(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [False] * 20)
    with mock.patch.object(world.cluster, "patch", side_effect=AssertionError("patched again")):
        world.restart_suites()
        world.settle(LOOKS_SECONDS + 31)
    world.end(name, "Cancelled", passed=[False] * 20)
    world.restart_suites()
    world.settle(300)
    assert world.going() == {}
    assert result(world, name)["state"] == "Stopped"
    assert world.said("GatesPassed")[1] == "GatesFailed"


def test_what_somebody_cancelled_too_early_is_undecided(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    world.end(name, "Cancelled", passed=[False] * 12)
    status, reason, message = world.said("GatesPassed")
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert (
        "smoke/a: its run has done 12 of 40 tasks of its baseline, and no look shows a loss by then"
    ) in message
    assert "to run it again" in result(world, name)["message"]


def test_records_that_were_edited_after_the_end_decide_nothing(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    world.end(name, "Cancelled", passed=[True] * 20)
    uid = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]["metadata"]["uid"]
    path = world.root / run_folder(uid) / "candidates.jsonl"
    path.write_bytes(path.read_bytes().replace(b"true", b"false"))
    world.restart_suites()
    status, _, message = world.said("GatesPassed")
    assert status == "Unknown"
    assert "somebody changed it" in message


def test_a_cancelled_run_is_no_baseline(world: SuiteWorld) -> None:
    world.apply_suite(**ONE)
    (name,) = world.going().values()
    world.end(name, "Cancelled", passed=[True] * 5)
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"run": name})
    world.annotate("again")
    world.end_all(passed=[True] * 5)
    assert world.said("GatesPassed")[2].startswith(
        f"notWorse: smoke/a: its baseline, BenchmarkRun {name}, was cancelled"
    )


@pytest.mark.parametrize("record", [{"verifier_version": "other"}, {"digests": {"policy": "q"}}])
def test_a_run_that_cannot_be_compared_goes_on(world: SuiteWorld, record: dict[str, Any]) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [False] * 20, **record)
    assert cancelled(world) == {}


def test_records_are_read_when_the_next_look_may_be_reached(world: SuiteWorld) -> None:
    (name,) = compared(world, ONE)
    records(world, name, [True] * 10)
    with mock.patch.object(suite_results, "look_state", wraps=suite_results.look_state) as seen:
        records(world, name, [True] * 19)
        assert seen.call_count == 0
        records(world, name, [True] * 20)
        assert seen.call_count == 1


def test_too_few_tasks_decide_nothing(world: SuiteWorld) -> None:
    world.apply_suite(**{**ONE, **IN_LOOKS})
    world.end_all(passed=[True] * 4)
    world.annotate("again")
    world.end_all(passed=[True] * 4)
    assert world.said("GatesPassed")[2].startswith(
        "notWorse: too few tasks to show any loss: smoke/a"
    )


def test_a_cell_that_left_the_matrix_is_not_looked_at(world: SuiteWorld) -> None:
    """A suspended suite keeps its round while its matrix changes."""
    (name,) = compared(world, ONE)
    other = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[1:]}}
    world.apply_suite(**{**other, **IN_LOOKS, "suspend": True})
    records(world, name, [False] * 20)
    assert cancelled(world) == {}
    assert world.said()[:2] == ("False", "Running")
    assert world.suites.failed == 0
