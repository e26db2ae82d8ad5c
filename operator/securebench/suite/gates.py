"""Whether the results of a round keep to the gates of a suite.

A gate passes, fails, or cannot be decided; what cannot be decided never passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from securebench.core.json_values import object_at, text_at
from securebench.run.api.conditions import ConditionStatus, Reason
from securebench.run.records.comparable import (
    DecisiveDigests,
    decisive_digests,
    incomparable,
)
from securebench.run.records.reading import Record, record_key
from securebench.run.records.record_use import record_use
from securebench.run.state.attempts import Outcome
from securebench.stats.cost import Price, Use, cost, dollars
from securebench.stats.paired import Difference, Pair, holm, mcnemar_exact, paired_difference
from securebench.stats.verdicts import TaskVerdicts
from securebench.suite.api.models import Gates

MAX_TASKS = 5
"""Tasks that a message names for each cell."""

MAX_CELLS_NAMED = 5
"""Cells that a message names for each gate."""

_LOST = frozenset({Outcome.INFRASTRUCTURE.value, Outcome.PROVIDER.value})


@dataclass(frozen=True, slots=True)
class CellResults:
    """The records of one run, as far as gates ask for them.

    Attributes:
        name: How the run is called in messages.
        attempts: Records.
        lost: Attempts that the cluster or the provider lost.
        tasks: Verdicts by task; 0 of 0 for a task without any.
        rows: Digest of each task's row, where known.
        uses: Models and tokens.
        digests: What a comparison must share.
    """

    name: str
    attempts: int
    lost: int
    tasks: Mapping[str, TaskVerdicts]
    rows: Mapping[str, str]
    uses: tuple[Use, ...]
    digests: frozenset[DecisiveDigests]


class JudgedCell(NamedTuple):
    """What the gates judge.

    Args:
        cell: Its name.
        results: Results of its run; a text says why there are none.
        baseline: What it is compared with; a text says why there is none, None: nothing is named.
        tries: Runs that were ever started with its digests.
        is_first: Whether it is compared with the last good result of its own suite, which has none
            yet.
    """

    cell: str
    results: CellResults | str
    baseline: CellResults | str | None
    tries: int = 1
    is_first: bool = False


class GateVerdict(NamedTuple):
    """What one gate says.

    Args:
        passed: None if it cannot be decided.
        message: Which gate, why, and on what.
    """

    passed: bool | None
    message: str


def _passed(message: str) -> GateVerdict:
    return GateVerdict(passed=True, message=message)


def _failed(message: str) -> GateVerdict:
    return GateVerdict(passed=False, message=message)


def _undecided(message: str) -> GateVerdict:
    return GateVerdict(passed=None, message=message)


class GateReport(NamedTuple):
    """What all gates say, as the condition ``GatesPassed``.

    Args:
        status: False if one has failed, Unknown if one cannot be decided.
        reason: Reason of the condition.
        message: Message of the condition.
    """

    status: ConditionStatus
    reason: Reason
    message: str


def read_results(name: str, records: Iterable[Record | None]) -> CellResults | str:
    """Return what gates ask of a run's records, or why they cannot be read.

    Args:
        name: How the run is called in messages.
        records: None for a damaged line.
    """
    tasks: dict[str, TaskVerdicts] = {}
    rows: dict[str, str] = {}
    decisive: set[DecisiveDigests] = set()
    uses: list[Use] = []
    attempts = lost = 0
    for record in records:
        if record is None:
            return f"{name} has a damaged record"
        task = record_key(record).task_id
        known, passed = tasks.get(task, TaskVerdicts(0, 0)), record.get("passed")
        tasks[task] = TaskVerdicts(
            known.verified + isinstance(passed, bool), known.passed + (passed is True)
        )
        rows[task] = text_at(object_at(record, "digests"), "row")
        attempts, lost = attempts + 1, lost + (record.get("outcome") in _LOST)
        decisive.add(decisive_digests(record))
        uses += [use] if (use := record_use(record)) is not None else []
    if not attempts:
        return f"{name} has no record"
    return CellResults(name, attempts, lost, tasks, rows, tuple(uses), frozenset(decisive))


def judge(gates: Gates, cells: Sequence[JudgedCell]) -> GateReport:
    """Return what the gates say of a round that has ended.

    Args:
        gates: Gates of the suite.
        cells: All of the round.
    """
    verdicts = list(_verdicts(gates, cells))
    tries = _tries(cells)
    failed = [each.message for each in verdicts if each.passed is False]
    undecided = [each.message for each in verdicts if each.passed is None]
    if failed:
        message = " | ".join([*failed, *undecided, *tries])
        return GateReport(ConditionStatus.FALSE, Reason.GATES_FAILED, message)
    if undecided:
        message = " | ".join([*undecided, *tries])
        return GateReport(ConditionStatus.UNKNOWN, Reason.GATES_UNDECIDED, message)
    message = " | ".join([*(each.message for each in verdicts), *tries])
    return GateReport(ConditionStatus.TRUE, Reason.GATES_PASSED, message)


def _tries(cells: Sequence[JudgedCell]) -> list[str]:
    """Say which cells were run more than once, so that the best of many does not look like one."""
    found = [f"{cell.cell} {cell.tries} times" for cell in cells if cell.tries > 1]
    return [f"the same was run before: {_some(found)}"] if found else []


def _verdicts(gates: Gates, cells: Sequence[JudgedCell]) -> Iterator[GateVerdict]:
    missing = [cell.results for cell in cells if isinstance(cell.results, str)]
    if missing:
        yield _undecided(f"no gate can be decided: {_some(missing)}")
        return
    if gates.min_pass_rate is not None:
        yield _by_cell("minPassRate", cells, _pass_rate, Decimal(gates.min_pass_rate))
    if gates.max_lost_share is not None:
        yield _by_cell("maxLostShare", cells, _lost_share, Decimal(gates.max_lost_share))
    if gates.max_cost_micro_dollars is not None:
        yield _cost(gates, gates.max_cost_micro_dollars, cells)
    if gates.not_worse is not None:
        yield _not_worse(float(gates.not_worse.level), cells)


class _CellVerdict(NamedTuple):
    passed: bool | None
    said: str


_Rule = Callable[[CellResults, Decimal], _CellVerdict]


def _by_cell(gate: str, cells: Sequence[JudgedCell], rule: _Rule, bound: Decimal) -> GateVerdict:
    found = [
        (cell.cell, rule(cell.results, bound))
        for cell in cells
        if not isinstance(cell.results, str)
    ]
    for state in (False, None):
        said = [f"{name} {each.said}" for name, each in found if each.passed is state]
        if said:
            return GateVerdict(passed=state, message=f"{gate}: {_some(said)}")
    return _passed(f"{gate}: all {len(found)} cells keep to {bound}")


def _pass_rate(results: CellResults, least: Decimal) -> _CellVerdict:
    verified = sum(task.verified for task in results.tasks.values())
    passed = sum(task.passed for task in results.tasks.values())
    if not verified:
        return _CellVerdict(None, "has no verdict")
    return _CellVerdict(
        passed >= least * verified,
        f"passed {passed} of {verified} ({passed / verified:.3f}), needed are {least}",
    )


def _lost_share(results: CellResults, greatest: Decimal) -> _CellVerdict:
    share = results.lost / results.attempts
    return _CellVerdict(
        results.lost <= greatest * results.attempts,
        f"lost {results.lost} of {results.attempts} attempts ({share:.3f}), allowed are {greatest}",
    )


def _cost(gates: Gates, greatest: int, cells: Sequence[JudgedCell]) -> GateVerdict:
    prices = {
        each.model: Price(
            each.input,
            each.input if each.cached_input is None else each.cached_input,
            each.output,
        )
        for each in gates.prices
    }
    uses = (use for cell in cells if not isinstance(cell.results, str) for use in cell.results.uses)
    found = cost(uses, prices)
    said = f"maxCostMicroDollars: {found.summary}, allowed are {dollars(greatest)}"
    if found.micro_dollars > greatest:
        return _failed(said)
    return _undecided(said) if found.unpriced else _passed(said)


def _not_worse(level: float, cells: Sequence[JudgedCell]) -> GateVerdict:
    """Judge all cells by the paired test, with p-values corrected for their number."""
    undecided: list[str] = []
    tested: list[tuple[str, Difference, str]] = []
    for cell in (each for each in cells if not each.is_first):
        compared = _compared(cell)
        if isinstance(compared, str):
            undecided.append(f"{cell.cell}: {compared}")
        else:
            tested.append((cell.cell, *compared))
    corrected = holm([found.p_value for _, found, _ in tested])
    worse = [
        f"{name} is worse by {-found.value * 100:.1f} points (p = {p_value:.3g}, {found.tasks}"
        f" tasks; lost: {lost})"
        for (name, found, lost), p_value in zip(tested, corrected, strict=True)
        if found.value < 0 and p_value <= level
    ]
    if worse:
        return _failed(f"notWorse: {_some([*worse, *undecided])}")
    if undecided:
        return _undecided(f"notWorse: {_some(undecided)}")
    first = [cell.cell for cell in cells if cell.is_first]
    new = f"; first result, nothing to compare with: {_some(first)}" if first else ""
    if not tested:
        return _passed(f"notWorse{new}")
    blind = [
        name for name, found, _ in tested if mcnemar_exact(found.tasks, 0) * len(tested) > level
    ]
    if blind:
        return _undecided(f"notWorse: too few tasks to show any loss: {_some(blind)}")
    seen = max(1.0 if found.detectable is None else found.detectable for _, found, _ in tested)
    return _passed(
        f"notWorse: no cell is worse at level {level:g}; a loss of {seen * 100:.1f} points would be"
        f" found 4 times in 5 (one cell, level 0.05){new}"
    )


def _compared(cell: JudgedCell) -> tuple[Difference, str] | str:
    """Return the difference and the tasks that were lost, or why there is no comparison."""
    new, old = cell.results, cell.baseline
    if isinstance(new, str) or isinstance(old, str) or old is None:
        return old if isinstance(old, str) else "no baseline is named"
    for problem in incomparable(old.digests, new.digests):
        return f"it cannot be compared with its baseline {old.name}: {problem}"
    pairs = {
        task: Pair(old.tasks[task], new.tasks[task])
        for task in old.tasks
        if task in new.tasks
        and old.tasks[task].verified
        and new.tasks[task].verified
        and old.rows[task] == new.rows[task]
    }
    found = paired_difference(tuple(pairs.values()))
    if found is None:
        return f"it has no task with a verdict in common with its baseline {old.name}"
    lost = [task for task, pair in pairs.items() if pair.change < 0]
    return found, _some(lost, MAX_TASKS)


def _some(texts: Sequence[str], limit: int = MAX_CELLS_NAMED) -> str:
    rest = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {rest} more" if rest > 0 else "")
