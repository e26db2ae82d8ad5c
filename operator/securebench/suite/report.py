"""What a suite says of itself: conditions for kstatus, counts, one line for each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from securebench.clock import rfc3339
from securebench.run.api.status import (
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    MeanReward,
    PassRate,
)
from securebench.suite.api import (
    MAX_CELL_MESSAGE,
    BenchmarkSuiteSpec,
    BenchmarkSuiteStatus,
    CellCounts,
    CellState,
    StatusBudget,
    StatusCell,
    SuiteReason,
)
from securebench.suite.budget import BudgetUse
from securebench.suite.gates import GateReport
from securebench.suite.progress import CellProgress, counts
from securebench.suite.rounds import Times
from securebench.text import listed


@dataclass(frozen=True, slots=True)
class SuiteFindings:
    """What a pass over a suite has found.

    Attributes:
        handled: The last time of the schedule that was handled, or when the suite was created.
        times: Times of its schedule; None without one.
        cells: How far the current round is.
        gates: What the gates say; None without gates.
        budget: What has become of the token budget; None without one.
    """

    spec: BenchmarkSuiteSpec
    handled: float
    times: Times | None
    cells: Sequence[CellProgress]
    gates: GateReport | None
    budget: BudgetUse | None = None


def suite_status(findings: SuiteFindings) -> BenchmarkSuiteStatus:
    """Return the status of a suite, but for conditions and the observed generation."""
    number = counts(findings.cells)
    times, handled = findings.times, findings.handled
    return BenchmarkSuiteStatus(
        cells=CellCounts(
            total=number.total(), **{state.value.lower(): number[state] for state in CellState}
        ),
        results=tuple(_status_cell(cell) for cell in findings.cells),
        budget=_budget(findings.budget),
        last_schedule_time=rfc3339(handled) if times is not None and findings.cells else None,
        next_schedule_time=rfc3339(times.following) if times is not None else None,
    )


def suite_conditions(findings: SuiteFindings) -> Iterator[ConditionUpdate]:
    """Yield all conditions of a suite."""
    ready, reason, message = _ready(findings)
    yield from _kstatus(ready, reason, message, is_stalled=reason in _STALLING)
    suspended = findings.spec.suspend
    yield ConditionUpdate(
        ConditionType.SUSPENDED,
        ConditionStatus.TRUE if suspended else ConditionStatus.FALSE,
        SuiteReason.SUSPENDED if suspended else SuiteReason.NOT_SUSPENDED,
    )
    if findings.gates is not None:
        yield ConditionUpdate(
            ConditionType.GATES_PASSED,
            findings.gates.status,
            findings.gates.reason,
            findings.gates.message,
        )


def held_up(reason: SuiteReason, message: str) -> Iterator[ConditionUpdate]:
    """Yield the conditions of a suite of which nothing is started.

    Args:
        reason: Why: the spec is not valid, or the operator cannot work on it now.
        message: One line for each problem.
    """
    is_over = reason is SuiteReason.INVALID_SPEC
    return _kstatus(ConditionStatus.FALSE, reason, message, is_stalled=is_over)


def _kstatus(
    ready: ConditionStatus, reason: SuiteReason, message: str, *, is_stalled: bool
) -> Iterator[ConditionUpdate]:
    """Yield the conditions that kstatus reads: current, in progress or failed."""
    is_going = ready is not ConditionStatus.TRUE and not is_stalled
    reconciling = ConditionStatus.TRUE if is_going else ConditionStatus.FALSE
    stalled = ConditionStatus.TRUE if is_stalled else ConditionStatus.FALSE
    yield ConditionUpdate(ConditionType.READY, ready, reason, message)
    yield ConditionUpdate(ConditionType.RECONCILING, reconciling, reason, message)
    yield ConditionUpdate(ConditionType.STALLED, stalled, reason, message)


_STALLING = frozenset(
    {
        SuiteReason.CELLS_INVALID,
        SuiteReason.CELLS_FAILED,
        SuiteReason.GATES_FAILED,
        SuiteReason.GATES_UNDECIDED,
        SuiteReason.CLOCK_SET_BACK,
    }
)
"""Reasons for which somebody has to do something."""


def _ready(findings: SuiteFindings) -> tuple[ConditionStatus, SuiteReason, str]:
    number, times = counts(findings.cells), findings.times
    done = number[CellState.SUCCEEDED]
    if times is not None and times.is_clock_back:
        handled = rfc3339(findings.handled)
        message = (
            f"the clock shows less than {handled}, a time of the schedule that is handled: nothing "
            f"runs before {rfc3339(times.following)}; set the clock right"
        )
        return ConditionStatus.FALSE, SuiteReason.CLOCK_SET_BACK, message
    if number[CellState.RUNNING] or number[CellState.WAITING]:
        return ConditionStatus.FALSE, *_going(findings, number)
    if times is not None and not findings.cells:
        return ConditionStatus.TRUE, SuiteReason.SCHEDULED, f"first at {rfc3339(times.following)}"
    if not findings.cells:
        return (
            ConditionStatus.FALSE,
            SuiteReason.SUSPENDED,
            "spec.suspend is true: no run is started",
        )
    for state, reason in _BAD.items():
        if number[state]:
            return ConditionStatus.FALSE, reason, _named(findings.cells, state)
    gates = findings.gates
    if gates is not None and gates.status is not ConditionStatus.TRUE:
        return ConditionStatus.FALSE, gates.reason, gates.message
    return ConditionStatus.TRUE, SuiteReason.COMPLETED, f"all {done} cells have their result"


_BAD = {
    CellState.INVALID: SuiteReason.CELLS_INVALID,
    CellState.FAILED: SuiteReason.CELLS_FAILED,
}


def _going(findings: SuiteFindings, number: Counter[CellState]) -> tuple[SuiteReason, str]:
    running, waiting = number[CellState.RUNNING], number[CellState.WAITING]
    if findings.spec.suspend and not running:
        return SuiteReason.SUSPENDED, f"spec.suspend is true: {waiting} cells wait"
    done = number.total() - running - waiting
    return SuiteReason.RUNNING, f"{done} of {number.total()} cells are done, {running} run"


def _named(cells: Sequence[CellProgress], state: CellState) -> str:
    """Return which cells are in a state, and why."""
    lines = [f"{cell.cell}: {cell.message}" for cell in cells if cell.state is state]
    return listed(lines, separator="; ")


def _budget(use: BudgetUse | None) -> StatusBudget | None:
    if use is None:
        return None
    return StatusBudget(tokens=use.tokens, used_tokens=use.used, allotted_tokens=use.allotted)


def _status_cell(cell: CellProgress) -> StatusCell:
    rate, reward = cell.pass_rate, cell.mean_reward
    message = cell.message
    if len(message) > MAX_CELL_MESSAGE:
        message = f"{message[: MAX_CELL_MESSAGE - 1]}…"
    return StatusCell(
        cell=cell.cell,
        run=cell.run or None,
        state=cell.state,
        reason=cell.reason or None,
        message=message or None,
        tries=cell.tries or None,
        agent_tries=cell.agent_tries or None,
        tries_by_others=cell.tries_by_others or None,
        pass_rate=PassRate.parse(rate) if rate else None,
        mean_reward=MeanReward.parse(reward) if reward else None,
    )
