"""One pass of the loop over a suite, as a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from securebench.run.api.field_types import CancelMode
from securebench.run.api.status import ConditionStatus
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import (
    BenchmarkSuiteSpec,
    CellState,
    ConcurrencyPolicy,
    Gates,
    SuiteReason,
    Unavailable,
)
from securebench.suite.budget import (
    BudgetUse,
    allot_budget,
    budget_use,
    current_allowances,
    fail_unfunded_cells,
)
from securebench.suite.gates import GateReport
from securebench.suite.planning import Cell, PackContent, Plan, PlannedRun, SuiteIdentity, plan_runs
from securebench.suite.progress import (
    CellProgress,
    EndRules,
    ObservedRuns,
    SuiteRun,
    progress,
    to_create,
    to_delete,
)
from securebench.suite.report import SuiteFindings
from securebench.suite.rounds import PassedResult, RoundStart, SuiteState, opening, schedule_times

PACKS_SECONDS = 60.0
"""Interval at which the packs of a suite without a schedule are read: their change runs cells."""

LOOKS_SECONDS = 60.0
"""Interval at which records are read that may have changed: of runs that go on, where a gate takes
looks at them, and those for want of which the gates are undecided."""

_GATES_WAIT = GateReport(
    ConditionStatus.UNKNOWN,
    SuiteReason.RUNNING,
    "the gates are judged when every cell has its result",
)


class DesiredSuite(NamedTuple):
    """Desired state of a suite: spec, annotation and operator settings.

    Args:
        identity: Name, uid and queue of the suite.
        cells: Cells of the spec.
        rerun: Value of the annotation for a manual run; empty without it.
        installation: Settings that a score depends on.
    """

    identity: SuiteIdentity
    spec: BenchmarkSuiteSpec
    cells: Sequence[Cell]
    rerun: str
    installation: ScoreSettings


class RoundVerdict(NamedTuple):
    """What the gates say of a round that has ended.

    Args:
        report: The condition.
        results: The result of each cell, of a round that passed.
    """

    report: GateReport
    results: Mapping[str, PassedResult]


class ObservedSuite(NamedTuple):
    """The input of a pass; what is costly to observe is None until a decision asks for it.

    Args:
        runs: Runs of the suite.
        packs: The content of each pack by its name in the matrix, or why there is none.
        packs_age: Seconds since packs were read for this spec and annotation; None if never.
        regressions: What shows that a cell is worse than its baseline, by cell, of those whose run
            goes on.
        regressions_age: Seconds since records were read for that; None if never.
        verdict: What the gates say of exactly these runs.
    """

    runs: ObservedRuns
    packs: Mapping[str, PackContent | Unavailable] | None = None
    packs_age: float | None = None
    regressions: Mapping[str, str] | None = None
    regressions_age: float | None = None
    verdict: RoundVerdict | None = None


class NeededObservation(StrEnum):
    """An observation that the decision needs and does not have yet."""

    PACKS = "packs"
    REGRESSIONS = "regressions"
    VERDICT = "verdict"


class Cancellation(NamedTuple):
    """A run to cancel.

    Args:
        run: The run as it was observed; another one of its name is left alone.
        why: For whoever looks at it.
    """

    run: SuiteRun
    why: str


@dataclass(frozen=True, slots=True)
class SuiteDecision:
    """The result of a pass, in the order in which it is applied.

    Attributes:
        state: What the suite remembers from now on; on the volume before anything is done.
        findings: What is published.
        needed: What to observe and to decide with again; then there is nothing else to do.
        cancel: Runs to cancel.
        create: Runs to create.
        delete: Runs to delete.
        wake_at: When the next pass is due without an event, or None.
    """

    state: SuiteState
    findings: SuiteFindings
    needed: NeededObservation | None = None
    cancel: tuple[Cancellation, ...] = ()
    create: tuple[PlannedRun, ...] = ()
    delete: tuple[SuiteRun, ...] = ()
    wake_at: float | None = None


def decide(
    observed: ObservedSuite, state: SuiteState, desired: DesiredSuite, now: float
) -> SuiteDecision:
    """Decide what to do next about a whole suite.

    Args:
        observed: The input of the pass.
        desired: What is asked for.
        now: Seconds since the epoch.

    Returns:
        The decision. Applying it is idempotent: names are deterministic, and a round is in the
        state before its first run is created.

    Raises:
        SpecError: The schedule or its time zone is not valid, or it never fires.

    Invariants:
        No run is created under a name that is there or was begun; with those that go on, the
        created ones are at most ``maxConcurrentRuns``. The allowances of runs in progress, and
        what the others of the round have used, are together within the budget, unless a run
        exceeded its allowance or the budget was lowered.
    """
    spec, state = desired.spec, current_allowances(state, observed.runs)
    times = schedule_times(spec, state.handled, now) if spec.schedule is not None else None
    cells, use = _cells(observed, state, desired)
    opened = opening(spec, state, times, cells, desired.rerun)
    if opened is not None and observed.packs is not None:
        state = _begun(state, opened, observed.packs, desired)
        state = current_allowances(state, observed.runs)
        cells, use = _cells(observed, state, desired)
    gates = _GATES_WAIT if spec.gates is not None else None
    findings = SuiteFindings(spec, state.handled, times, cells, gates)
    if opened is not None and observed.packs is None and _are_packs_due(observed, spec):
        return SuiteDecision(state, findings, NeededObservation.PACKS)
    if _are_regressions_due(observed, spec, cells):
        return SuiteDecision(state, findings, NeededObservation.REGRESSIONS)
    if spec.gates is not None and _is_over(cells):
        if observed.verdict is None:
            return SuiteDecision(state, findings, NeededObservation.VERDICT)
        state = _judged(state, spec.gates, observed.verdict)
        findings = replace(findings, gates=observed.verdict.report)
    return _actions(observed, state, findings, desired, use)


def _cells(
    observed: ObservedSuite, state: SuiteState, desired: DesiredSuite
) -> tuple[tuple[CellProgress, ...], BudgetUse | None]:
    """Return the cells of a round, and what has become of its budget."""
    gates = desired.spec.gates
    rules = EndRules(
        accepts_lost_attempts=gates is not None and gates.max_lost_share is not None,
        takes_looks=_takes_looks(desired.spec),
    )
    cells = progress(state.plan, observed.runs, desired.installation, rules)
    use = budget_use(desired.spec, state, observed.runs)
    return fail_unfunded_cells(cells, use, state), use


def _takes_looks(spec: BenchmarkSuiteSpec) -> bool:
    gate = spec.gates.not_worse if spec.gates is not None else None
    return gate is not None and gate.looks is not None


def _are_packs_due(observed: ObservedSuite, spec: BenchmarkSuiteSpec) -> bool:
    """Whether the packs are read again; a suite without a schedule would do so at every pass."""
    age = observed.packs_age
    return spec.schedule is not None or age is None or age >= PACKS_SECONDS


def _are_regressions_due(
    observed: ObservedSuite, spec: BenchmarkSuiteSpec, cells: Sequence[CellProgress]
) -> bool:
    """Whether to look at the records of the runs that go on."""
    if observed.regressions is not None or not _takes_looks(spec):
        return False
    age = observed.regressions_age
    is_running = any(cell.state is CellState.RUNNING for cell in cells)
    return is_running and (age is None or age >= LOOKS_SECONDS)


def _begun(
    state: SuiteState,
    opened: RoundStart,
    packs: Mapping[str, PackContent | Unavailable],
    desired: DesiredSuite,
) -> SuiteState:
    """Return the state with the round that begins; with the same runs, it is the current one."""
    plan = plan_runs(
        desired.identity, desired.spec, desired.cells, packs, desired.installation, opened.trigger
    )
    begun = replace(state, handled=opened.handled, trigger=opened.trigger, plan=plan)
    if plan.run_names == state.plan.run_names:
        return begun
    return replace(begun, good=state.latest_good, passed={})


def _is_over(cells: Sequence[CellProgress]) -> bool:
    under_way = {CellState.WAITING, CellState.RUNNING}
    return bool(cells) and all(cell.state not in under_way for cell in cells)


def _judged(state: SuiteState, gates: Gates, verdict: RoundVerdict) -> SuiteState:
    """Return the state with the results that pass the gates, without those that no longer do.

    Those that passed without a comparison are the baseline from now on.
    """
    is_good = verdict.report.status is ConditionStatus.TRUE
    judged = replace(state, passed=verdict.results if is_good else {})
    is_compared = gates.not_worse is not None
    return replace(judged, good=judged.latest_good) if is_good and not is_compared else judged


def _actions(
    observed: ObservedSuite,
    state: SuiteState,
    findings: SuiteFindings,
    desired: DesiredSuite,
    use: BudgetUse | None,
) -> SuiteDecision:
    """Return the decision with everything that is done to runs."""
    spec, plan, runs = desired.spec, state.plan, observed.runs.runs.values()
    going = [run for run in runs if not run.has_ended]
    limit = 0 if spec.suspend else spec.max_concurrent_runs
    kept = spec.successful_runs_history_limit, spec.failed_runs_history_limit
    create = tuple(to_create(plan, findings.cells, len(going), limit))
    if use is not None:
        create, state, use = allot_budget(create, findings.cells, use, state)
        findings = replace(findings, budget=use)
    return SuiteDecision(
        state,
        findings,
        cancel=(*_replaced(spec, plan, going), *_stopped(observed, findings, going)),
        create=create,
        delete=tuple(to_delete(plan, runs, *kept)),
        wake_at=findings.times.following if findings.times is not None else None,
    )


def _replaced(
    spec: BenchmarkSuiteSpec, plan: Plan, going: Sequence[SuiteRun]
) -> Iterator[Cancellation]:
    """Yield the runs of earlier rounds, where a time of the schedule replaces them."""
    if spec.schedule is None or spec.concurrency_policy is not ConcurrencyPolicy.REPLACE:
        return
    current = plan.run_names
    for run in going:
        if run.name not in current and not _is_cancelling(run):
            yield Cancellation(run, "a later round of its suite replaces it")


def _stopped(
    observed: ObservedSuite, findings: SuiteFindings, going: Sequence[SuiteRun]
) -> Iterator[Cancellation]:
    """Yield the runs of cells that are worse, whatever the rest of their tasks would show."""
    runs = {run.name: run for run in going}
    for cell in findings.cells:
        why, run = (observed.regressions or {}).get(cell.cell), runs.get(cell.run)
        if why and run is not None and not _is_cancelling(run):
            yield Cancellation(run, f"gate notWorse of its suite: it is {why}")


def _is_cancelling(run: SuiteRun) -> bool:
    return run.spec.get("cancel") == CancelMode.IMMEDIATE
