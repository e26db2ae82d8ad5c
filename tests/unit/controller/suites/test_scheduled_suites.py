from __future__ import annotations

from securebench.clock import rfc3339
from securebench.cluster.port import ObjectKind
from support.build import question, write_pack
from support.suite_world import SuiteWorld

HOUR = 3600.0
NEXT_HOUR = "0 * * * *"


def until(world: SuiteWorld, seconds_after_the_hour: float) -> None:
    """Wait until some time after the next full hour."""
    now = world.clock.now()
    world.settle(HOUR - now % HOUR + seconds_after_the_hour)


def test_nothing_runs_before_the_first_time(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, maxConcurrentRuns=4)
    assert world.run_names() == []
    at = rfc3339((world.clock.now() // HOUR + 1) * HOUR)
    assert world.said() == ("True", "Scheduled", f"first at {at}")
    assert world.suite_status()["nextScheduleTime"] == at
    until(world, 5)
    assert len(world.going()) == 4
    assert world.suite_status()["lastScheduleTime"] == at


def test_on_change_runs_nothing_at_times_without_a_change(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, maxConcurrentRuns=4)
    until(world, 5)
    world.end_all()
    until(world, 5)
    assert len(world.run_names()) == 4
    write_pack(world.root / "packs/other", [question("z")])
    world.settle(120)
    assert len(world.run_names()) == 4
    until(world, 5)
    assert set(world.going()) == {"other/a", "other/b"}


def test_always_runs_every_cell_at_every_time_once(world: SuiteWorld) -> None:
    world.apply_suite(
        schedule=NEXT_HOUR, runPolicy="Always", maxConcurrentRuns=4, successfulRunsHistoryLimit=9
    )
    until(world, 5)
    world.restart_suites()
    world.end_all()
    assert len(world.run_names()) == 4
    until(world, 5)
    world.end_all()
    world.restart_suites()
    assert len(world.run_names()) == 8


def test_forbid_waits_for_the_round_before(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, runPolicy="Always", maxConcurrentRuns=1)
    until(world, 5)
    until(world, 5)
    assert len(world.run_names()) == 1
    world.end_all()
    assert (
        len({world.cell(raw) for raw in world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()})
        == 4
    )
    assert len(world.run_names()) == 8


def test_allow_starts_beside_the_round_before(world: SuiteWorld) -> None:
    policy = {"runPolicy": "Always", "concurrencyPolicy": "Allow"}
    world.apply_suite(schedule=NEXT_HOUR, maxConcurrentRuns=8, **policy)
    until(world, 5)
    until(world, 5)
    running = [
        raw for raw in world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()
        if not raw.get("status")
    ]  # fmt: skip
    assert len(running) == 8


def test_replace_cancels_the_round_before(world: SuiteWorld) -> None:
    policy = {"runPolicy": "Always", "concurrencyPolicy": "Replace"}
    world.apply_suite(schedule=NEXT_HOUR, maxConcurrentRuns=8, **policy)
    until(world, 5)
    before = set(world.run_names())
    until(world, 5)
    runs = world.cluster.objects(ObjectKind.BENCHMARK_RUN)
    cancelled = {name for name, raw in runs.items() if raw["spec"].get("cancel") == "Immediate"}
    assert cancelled == before
    assert len(set(runs) - before) == 4


def test_a_time_that_was_missed_is_left_out_after_its_deadline(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, startingDeadlineSeconds=60)
    world.runner.run(world.suites.close())
    until(world, 120)
    world.restart_suites()
    assert world.run_names() == []
    until(world, 5)
    assert world.run_names() != []


def test_a_clock_that_is_set_back_runs_nothing_twice_and_says_so(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, runPolicy="Always", maxConcurrentRuns=4)
    until(world, 5)
    world.end_all()
    clock = world.clock
    clock.now = lambda: clock.time - 3 * HOUR  # type: ignore[method-assign]
    world.settle(40)
    status, reason, message = world.said()
    assert (status, reason) == ("False", "ClockSetBack")
    assert "set the clock right" in message
    until(world, 5)
    assert len(world.run_names()) == 4


def test_a_schedule_that_never_fires_is_refused(world: SuiteWorld) -> None:
    world.apply_suite(schedule="0 0 30 2 *")
    status, reason, message = world.said()
    assert (status, reason) == ("False", "InvalidSpec")
    assert "never fires" in message
    assert world.said("Stalled")[0] == "True"


def test_the_annotation_runs_a_scheduled_suite_at_once(world: SuiteWorld) -> None:
    world.apply_suite(schedule=NEXT_HOUR, maxConcurrentRuns=4)
    world.annotate("now")
    assert len(world.going()) == 4
    world.end_all()
    until(world, 5)
    assert len(world.run_names()) == 4
