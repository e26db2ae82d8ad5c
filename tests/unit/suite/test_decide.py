"""What a suite does next, as a function of what is observed and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from securebench.clock import rfc3339
from securebench.errors import SpecError
from securebench.run.api.status import ConditionStatus
from securebench.run.plan.model import TaskLimits
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import BenchmarkSuiteSpec, CellState, SuiteReason
from securebench.suite.decide import (
    LOOKS_SECONDS,
    PACKS_SECONDS,
    Cancellation,
    DesiredSuite,
    NeededObservation,
    ObservedSuite,
    RoundVerdict,
    SuiteDecision,
    decide,
)
from securebench.suite.gates import GateReport
from securebench.suite.planning import PackContent, PlannedRun, SuiteIdentity, cells
from securebench.suite.progress import ObservedRuns, PastRun, SuiteRun
from securebench.suite.rounds import PassedResult, SuiteState, initial_state

NOW = 1_800_000_060.0
MINUTES = "*/10 * * * *"
PACKS = {"p": PackContent("sha256:" + "a" * 64)}
CHANGED = {"p": PackContent("sha256:" + "b" * 64)}
NEW = initial_state(NOW - 60, NOW, "")
NO_RUNS = ObservedRuns({}, {})
PASSED = GateReport(ConditionStatus.TRUE, SuiteReason.GATES_PASSED, "passed")
FAILED = GateReport(ConditionStatus.FALSE, SuiteReason.GATES_FAILED, "failed")


def desired(rerun: str = "", **spec: Any) -> DesiredSuite:
    """Return a suite of one pack and two harnesses."""
    harnesses = [
        {"name": name, "harness": {"type": "command", "config": {"command": f"echo {name}"}}}
        for name in ("a", "b")
    ]
    matrix = {
        "packs": [{"name": "p", "pack": {"volume": {"path": "p"}}}],
        "harnesses": harnesses,
    }
    parsed = BenchmarkSuiteSpec.parse({"matrix": matrix, **spec})
    installation = ScoreSettings(TaskLimits(1, 2, 3, 4, 5, 6), {})
    return DesiredSuite(SuiteIdentity("nightly", "uid"), parsed, cells(parsed), rerun, installation)


def seen(planned: PlannedRun, reason: str = "", created_at: float = NOW, **spec: Any) -> SuiteRun:
    """Return the run of a cell; it goes on without a reason."""
    return SuiteRun(
        name=planned.name,
        uid=f"uid of {planned.name}",
        cell=planned.cell,
        created_at=rfc3339(created_at),
        spec={**planned.spec, **spec},
        reason=reason,
        succeeded=reason == "Completed",
        message=reason,
        pass_rate={},
        mean_reward={},
    )


def observed(*runs: SuiteRun, **more: Any) -> ObservedSuite:
    """Return an observation of some runs, with packs read just now."""
    return ObservedSuite(ObservedRuns({run.name: run for run in runs}, {}), packs_age=0, **more)


def begun(suite: DesiredSuite, packs: Mapping[str, Any] = PACKS) -> SuiteDecision:
    """Return the decision of the pass in which the first round begins."""
    return decide(ObservedSuite(NO_RUNS, packs), NEW, suite, NOW)


@pytest.mark.parametrize(
    ("spec", "age", "want"),
    [
        ({}, None, NeededObservation.PACKS),
        ({}, PACKS_SECONDS - 1, None),
        ({}, PACKS_SECONDS, NeededObservation.PACKS),
        ({"suspend": True}, None, None),
        ({"schedule": MINUTES}, None, None),
    ],
)
def test_packs_are_read_when_a_round_may_begin(
    spec: dict[str, Any], age: float | None, want: NeededObservation | None
) -> None:
    found = decide(ObservedSuite(NO_RUNS, packs_age=age), NEW, desired(**spec), NOW)
    assert (found.needed, found.create, found.state) == (want, (), NEW)


def test_a_time_of_the_schedule_reads_packs_however_old_they_are() -> None:
    suite = desired(schedule=MINUTES)
    found = decide(ObservedSuite(NO_RUNS, packs_age=0), NEW, suite, NOW + 600)
    assert found.needed is NeededObservation.PACKS


def test_a_round_is_in_the_state_with_the_runs_that_it_creates() -> None:
    found = begun(desired(maxConcurrentRuns=1))
    assert [run.cell for run in found.state.plan.runs] == ["p/a", "p/b"]
    assert [run.cell for run in found.create] == ["p/a"]
    assert found.needed is None


def test_what_is_created_is_limited_by_all_that_goes_on() -> None:
    suite = desired(maxConcurrentRuns=2)
    first = begun(suite)
    one, other = first.create
    again = decide(observed(seen(one)), first.state, suite, NOW)
    assert again.create == (other,)
    old = seen(replace(one, name="nightly-old"))
    assert decide(observed(seen(one), old), first.state, suite, NOW).create == ()
    suspended = desired(maxConcurrentRuns=2, suspend=True)
    assert decide(observed(seen(one)), first.state, suspended, NOW).create == ()


def test_a_changed_pack_begins_a_round_in_which_nothing_has_passed() -> None:
    suite = desired()
    result = PassedResult("run", "uid", "sha256")
    state = replace(begun(suite).state, passed={"p/a": result})
    same = decide(ObservedSuite(NO_RUNS, PACKS), state, suite, NOW)
    assert same.state == state
    changed = decide(ObservedSuite(NO_RUNS, CHANGED), state, suite, NOW).state
    assert changed.plan != state.plan
    assert (changed.good, changed.passed) == ({"p/a": result}, {})


def test_a_change_that_no_score_depends_on_leaves_baseline_and_verdict() -> None:
    before = {"p/a": PassedResult("earlier", "uid", "sha256")}
    first = begun(desired()).state
    results = {run.cell: PassedResult(run.name, "uid", "sha256") for run in first.plan.runs}
    state = replace(first, good=before, passed=results)
    suite = desired(template={"parallelism": 8})
    found = decide(ObservedSuite(NO_RUNS, PACKS), state, suite, NOW).state
    assert [run.spec["parallelism"] for run in found.plan.runs] == [8, 8]
    assert (found.good, found.passed) == (before, results)


def test_runs_of_earlier_rounds_are_cancelled_once_where_they_are_replaced() -> None:
    suite = desired(schedule=MINUTES, concurrencyPolicy="Replace")
    opened = decide(ObservedSuite(NO_RUNS, PACKS), NEW, suite, NOW + 600)
    one, _ = opened.state.plan.runs
    old = replace(one, name="nightly-old")
    found = decide(observed(seen(old), seen(one)), opened.state, suite, NOW + 600)
    assert [each.run.name for each in found.cancel] == ["nightly-old"]
    cancelled = observed(seen(old, cancel="Immediate"), seen(one))
    assert decide(cancelled, opened.state, suite, NOW + 600).cancel == ()
    kept = desired(schedule=MINUTES, concurrencyPolicy="Forbid")
    assert decide(observed(seen(old)), opened.state, kept, NOW + 600).cancel == ()


def test_runs_beyond_the_history_limits_are_deleted_oldest_first() -> None:
    suite = desired(successfulRunsHistoryLimit=1, failedRunsHistoryLimit=0)
    state = begun(suite).state
    one, other = state.plan.runs
    old = [
        seen(replace(one, name=f"nightly-{age}"), "Completed", NOW - age) for age in (30, 20, 10)
    ]
    current = seen(one, "Completed"), seen(other, "Completed")
    found = decide(observed(*old, *current), state, suite, NOW)
    assert [run.name for run in found.delete] == ["nightly-20", "nightly-30"]


def ended(suite: DesiredSuite) -> tuple[SuiteState, ObservedSuite]:
    """Return the state and the observation once every run of the first round is complete."""
    state = begun(suite).state
    return state, observed(*(seen(run, "Completed") for run in state.plan.runs))


def test_gates_are_judged_when_every_run_has_ended() -> None:
    suite = desired(gates={"minPassRate": "0.5"})
    state, over = ended(suite)
    first, second = over.runs.runs.values()
    going = observed(first, replace(second, reason="", succeeded=False))
    waiting = decide(going, state, suite, NOW)
    assert waiting.needed is None
    assert waiting.findings.gates is not None
    assert waiting.findings.gates.reason is SuiteReason.RUNNING
    assert decide(over, state, suite, NOW).needed is NeededObservation.VERDICT
    no_gates = decide(over, state, desired(), NOW)
    assert (no_gates.needed, no_gates.findings.gates) == (None, None)


RESULTS = {"p/a": PassedResult("new", "uid", "sha256")}
BEFORE = {"p/a": PassedResult("old", "uid", "sha256")}
COMPARED = {"gates": {"notWorse": {}}, "baseline": {"suite": "nightly"}}
ALONE = {"gates": {"minPassRate": "0.5"}}


@pytest.mark.parametrize(
    ("spec", "verdict", "want_passed", "want_good"),
    [
        (ALONE, RoundVerdict(PASSED, RESULTS), RESULTS, RESULTS),
        (COMPARED, RoundVerdict(PASSED, RESULTS), RESULTS, BEFORE),
        (ALONE, RoundVerdict(FAILED, {}), {}, BEFORE),
    ],
)
def test_results_are_kept_while_they_pass(
    spec: dict[str, Any],
    verdict: RoundVerdict,
    want_passed: Mapping[str, PassedResult],
    want_good: Mapping[str, PassedResult],
) -> None:
    suite = desired(**spec)
    state, over = ended(suite)
    known = replace(state, good=BEFORE, passed=BEFORE)
    found = decide(over._replace(verdict=verdict), known, suite, NOW)
    assert (found.state.passed, found.state.good) == (want_passed, want_good)
    assert found.findings.gates == verdict.report


LOOKS = {"gates": {"notWorse": {"looks": 4}}, "baseline": {"suite": "nightly"}}


def test_records_of_runs_that_go_on_are_read_where_a_gate_looks_at_them() -> None:
    suite = desired(**LOOKS)
    state = begun(suite).state
    one, other = state.plan.runs
    going = observed(seen(one), seen(other, "Completed"))
    assert decide(going, state, suite, NOW).needed is NeededObservation.REGRESSIONS
    recent = going._replace(regressions_age=LOOKS_SECONDS - 1)
    assert decide(recent, state, suite, NOW).needed is None
    due = going._replace(regressions_age=LOOKS_SECONDS)
    assert decide(due, state, suite, NOW).needed is NeededObservation.REGRESSIONS
    assert decide(going, state, desired(**COMPARED), NOW).needed is None
    assert decide(going._replace(regressions={}), state, suite, NOW).cancel == ()


def test_a_run_that_is_worse_is_cancelled_once_and_says_why() -> None:
    suite = desired(**LOOKS)
    state = begun(suite).state
    one, other = state.plan.runs
    regressions = {one.cell: "worse by 9 points"}
    found = decide(observed(seen(one), seen(other), regressions=regressions), state, suite, NOW)
    assert found.cancel == (
        Cancellation(seen(one), "gate notWorse of its suite: it is worse by 9 points"),
    )
    cancelling = seen(one, cancel="Immediate"), seen(other)
    assert decide(observed(*cancelling, regressions=regressions), state, suite, NOW).cancel == ()
    over = seen(one, "Completed"), seen(other)
    assert decide(observed(*over, regressions=regressions), state, suite, NOW).cancel == ()


@pytest.mark.parametrize(
    ("spec", "want"), [(LOOKS, CellState.STOPPED), (COMPARED, CellState.FAILED)]
)
def test_a_cancelled_run_is_stopped_where_a_gate_judges_what_it_has_done(
    spec: dict[str, Any], want: CellState
) -> None:
    suite = desired(**spec)
    state = begun(suite).state
    one, other = state.plan.runs
    past = PastRun(
        one.name,
        "uid",
        one.fields.run_id,
        one.fields.pack,
        one.fields.harness,
        one.fields.verifier,
        "Cancelled",
        1,
    )
    gone = ObservedRuns({other.name: seen(other)}, {one.name: past})
    for runs in (gone, observed(seen(one, "Cancelled"), seen(other)).runs):
        cells_ = decide(ObservedSuite(runs, packs_age=0, regressions={}), state, suite, NOW)
        assert [each.state for each in cells_.findings.cells] == [want, CellState.RUNNING]


def test_it_decides_again_at_the_next_time_of_the_schedule() -> None:
    suite = desired(schedule=MINUTES)
    assert decide(ObservedSuite(NO_RUNS), NEW, suite, NOW).wake_at == NOW + 540
    assert begun(desired()).wake_at is None


def test_a_schedule_that_is_not_valid_is_an_error() -> None:
    with pytest.raises(SpecError, match="never fires"):
        decide(ObservedSuite(NO_RUNS), NEW, desired(schedule="0 0 30 2 *"), NOW)


def test_a_new_suite_has_handled_nothing_before_it_was_created() -> None:
    assert initial_state(NOW + 5, NOW, "one").handled == NOW
    assert initial_state(NOW - 5, NOW, "one").trigger.rerun == "one"
