"""The gate notWorse: no cell is worse than its baseline.

One test for each cell at the end, or one after each part of the baseline's tasks, so that the run
of a cell that is worse can be stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from securebench.run.records.reading import compare_in_looks, incomparable, look_evidence
from securebench.stats.paired import Difference, Pair, holm, mcnemar_exact, paired_difference
from securebench.stats.sequential import Course, Look
from securebench.suite.api.models import NotWorse
from securebench.suite.gates.results import CellResults, JudgedCell
from securebench.suite.gates.verdict import (
    GateVerdict,
    gate_failed,
    gate_passed,
    gate_undecided,
)
from securebench.text import listed


class _Compared(NamedTuple):
    """A cell compared with its baseline over all tasks with a verdict in both.

    Args:
        course: The looks at it; None where they are not asked for.
    """

    cell: str
    difference: Difference
    lost: str
    course: Course | None


def not_worse(gate: NotWorse, cells: Sequence[JudgedCell]) -> GateVerdict:
    """Judge all cells of a round by the paired test, with an error rate for all of them together.

    Args:
        gate: The gate.
        cells: All of the round.
    """
    found = [_compared(gate, cell, len(cells)) for cell in cells if not cell.is_first]
    compared = [each for each in found if isinstance(each, _Compared)]
    undecided = [each for each in found if isinstance(each, str)]
    worse = list(_worse_in_looks(compared) if gate.looks else _worse_at_the_end(gate, compared))
    undecided += [text for each in compared if (text := _unfinished(each))]
    if worse:
        return gate_failed(f"notWorse: {listed([*worse, *undecided])}")
    if undecided:
        return gate_undecided(f"notWorse: {listed(undecided)}")
    blind = [text for each in compared if (text := _blind(gate, each, len(compared)))]
    if blind:
        return gate_undecided(f"notWorse: too few tasks to show any loss: {listed(blind)}")
    return gate_passed(_no_loss(gate, compared, [cell.cell for cell in cells if cell.is_first]))


class LookState(NamedTuple):
    """How far the looks at a cell are whose run goes on.

    Args:
        regression: What shows that it is worse; empty while no look does.
        next_tasks: How many tasks the next look needs; 0 if that is not known yet, None if there is
            none.
    """

    regression: str
    next_tasks: int | None


def look_state(gate: NotWorse, cell: JudgedCell, cells: int) -> LookState:
    """Look at a cell whose run goes on.

    Args:
        gate: The gate.
        cell: The cell, with the records so far.
        cells: Cells of the round.
    """
    new, old = cell.results, cell.baseline
    if not isinstance(new, CellResults) or not isinstance(old, CellResults):
        return LookState("", 0)
    if any(incomparable(old.digests, new.digests)):
        return LookState("", None)
    found = _course(gate, old, new, cells)
    if found is None or found.decision is None:
        return LookState("", found.next_tasks if found is not None else None)
    decision = _regression(found)
    return LookState(_said_of_look(found, decision) if decision is not None else "", None)


def _compared(gate: NotWorse, cell: JudgedCell, cells: int) -> _Compared | str:
    """Compare a cell with its baseline, or say why it cannot be compared."""
    new, old = cell.results, cell.baseline
    if isinstance(new, str) or isinstance(old, str) or old is None:
        return f"{cell.cell}: {old if isinstance(old, str) else 'no baseline is named'}"
    for problem in incomparable(old.digests, new.digests):
        return f"{cell.cell}: it cannot be compared with its baseline {old.name}: {problem}"
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
        return f"{cell.cell}: it has no task with a verdict in common with its baseline {old.name}"
    lost = listed([task for task, pair in pairs.items() if pair.change < 0])
    return _Compared(cell.cell, found, lost, _course(gate, old, new, cells))


def _course(gate: NotWorse, old: CellResults, new: CellResults, cells: int) -> Course | None:
    """Return the looks at a cell, which share its part of the level; None without looks.

    The part is fixed before the round begins (Bonferroni): Holm's correction asks for the results
    of all cells, and a cell is stopped before the others have theirs.
    """
    if gate.looks is None:
        return None
    changed = {task for task in old.rows if task in new.rows and old.rows[task] != new.rows[task]}
    level = float(gate.level) / cells
    return compare_in_looks(old.verdicts, new.verdicts, changed, gate.looks, level)


def _regression(found: Course | None) -> Look | None:
    decision = found.decision if found is not None else None
    return decision if decision is not None and decision.value < 0 else None


def _said_of_look(found: Course, look: Look) -> str:
    points = f"{-look.value * 100:.1f} points at look {look.number} of {found.planned}"
    return f"worse by {points} {look_evidence(look, found.tasks)}"


def _worse_in_looks(compared: Sequence[_Compared]) -> Iterator[str]:
    for each in compared:
        decision = _regression(each.course)
        if each.course is not None and decision is not None:
            said = _said_of_look(each.course, decision)
            yield f"{each.cell} is {said}; lost: {each.lost}"


def _worse_at_the_end(gate: NotWorse, compared: Sequence[_Compared]) -> Iterator[str]:
    corrected = holm([each.difference.p_value for each in compared])
    for each, p_value in zip(compared, corrected, strict=True):
        found = each.difference
        if found.value < 0 and p_value <= float(gate.level):
            yield (
                f"{each.cell} is worse by {-found.value * 100:.1f} points (p = {p_value:.3g},"
                f" {found.tasks} tasks; lost: {each.lost})"
            )


def _unfinished(each: _Compared) -> str:
    """Say that a cell ended before its last look, and none decides."""
    found = each.course
    if found is None or found.decision is not None or found.next_tasks is None:
        return ""
    return (
        f"{each.cell}: its run has done {found.done} of {found.tasks} tasks of its baseline, and no"
        " look shows a loss by then"
    )


def _blind(gate: NotWorse, each: _Compared, compared: int) -> str:
    """Return the cell, and why, if even a loss of every verdict would not have been shown."""
    if each.course is None:
        # Changes of one sign have the p-value of the exact McNemar test, whatever their sizes.
        least = mcnemar_exact(each.difference.tasks, 0) * compared
        return each.cell if least > float(gate.level) else ""
    last = each.course.taken[-1]
    if last.is_decisive or not last.is_blind:
        return ""
    return f"{each.cell} ({last.lost} lost attempts could hide one)" if last.lost else each.cell


def _no_loss(gate: NotWorse, compared: Sequence[_Compared], first: Sequence[str]) -> str:
    new = f"; first result, nothing to compare with: {listed(first)}" if first else ""
    if not compared:
        return f"notWorse{new}"
    detectable = [each.difference.detectable for each in compared]
    seen = max(1.0 if each is None else each for each in detectable)
    looks = f" in {gate.looks} looks" if gate.looks else ""
    return (
        f"notWorse: no cell is worse at level {float(gate.level):g}{looks}; a loss of"
        f" {seen * 100:.1f} points would be found 4 times in 5 (one cell, level 0.05){new}"
    )
