"""The error rate of a suite that stops cells early, on 10,000 simulated comparisons.

``PYTHONPATH=operator:tests python -m property.test_suite_looks`` prints the table of the figures.
"""

from __future__ import annotations

import sys
from random import Random
from typing import NamedTuple

from securebench.run.records.reading import AttemptVerdicts, DecisiveDigests, compare_in_looks
from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL
from securebench.suite.api import NotWorse
from securebench.suite.gates import CellResults, JudgedCell, look_state, not_worse

CELLS, TASKS, LOOKS, ROUNDS = 4, 100, 4, 2_500
DIGESTS = frozenset({DecisiveDigests("pack", "verifier", "policy")})
GATE = NotWorse(looks=LOOKS)


class Compared(NamedTuple):
    """A cell, as verdicts on one attempt of each task."""

    baseline: AttemptVerdicts
    candidate: AttemptVerdicts

    def is_worse(self) -> tuple[bool, int]:
        """Return whether a look shows it, and after how many tasks its run ends."""
        found = compare_in_looks(self.baseline, self.candidate, (), LOOKS, LEVEL / CELLS).decision
        is_worse = found is not None and found.value < 0
        return is_worse, found.tasks if found is not None and is_worse else TASKS


class Rates(NamedTuple):
    """Shares of simulated rounds, and of attempts.

    Args:
        failed: Rounds in which some cell is shown to be worse.
        attempts: Attempts that are made until each cell is stopped or whole.
        in_worse_cell: The same of the cell that is worse.
    """

    failed: float
    attempts: float
    in_worse_cell: float


def simulated(effect: float, rounds: int = ROUNDS) -> Rates:
    """Judge rounds of which one cell is worse, again and again, seed 1.

    Args:
        effect: How much lower its chance of each task is, where it can be; 0: none is worse.
        rounds: How many.
    """
    random = Random(1)  # noqa: S311 - statistics, no secret
    failed, tasks = 0, [0] * CELLS
    for _ in range(rounds):
        found = [cell.is_worse() for cell in _round(random, effect)]
        failed += any(is_worse for is_worse, _ in found)
        tasks = [before + needed for before, (_, needed) in zip(tasks, found, strict=True)]
    whole = rounds * TASKS
    return Rates(failed / rounds, sum(tasks) / whole / CELLS, tasks[0] / whole)


def _round(random: Random, effect: float) -> list[Compared]:
    return [_cell(random, effect if number == 0 else 0.0) for number in range(CELLS)]


def _cell(random: Random, effect: float) -> Compared:
    old: dict[str, dict[int, bool]] = {}
    new: dict[str, dict[int, bool]] = {}
    for number in range(TASKS):
        difficulty = random.random()
        old[f"t{number}"] = {1: random.random() < difficulty}
        new[f"t{number}"] = {1: random.random() < max(0.0, difficulty - effect)}
    return Compared(old, new)


def _results(verdicts: AttemptVerdicts, done: int = TASKS) -> CellResults:
    """Return the records of the first tasks."""
    first = dict(list(verdicts.items())[:done])
    return CellResults(
        name="run",
        attempts=done,
        lost=0,
        tasks={name: TaskVerdicts(1, int(each[1] is True)) for name, each in first.items()},
        rows=dict.fromkeys(first, "row"),
        uses=(),
        digests=DIGESTS,
        verdicts=first,
    )


def test_the_gate_and_the_stop_are_what_is_simulated() -> None:
    """Equal cells and a worse one, stopped while they go on, judged at the end."""
    random = Random(2)  # noqa: S311 - statistics, no secret
    for effect in (0.0, 0.4, 0.4, 0.4):
        cells = _round(random, effect)
        whole = [
            JudgedCell(str(number), _results(cell.candidate), _results(cell.baseline))
            for number, cell in enumerate(cells)
        ]
        found = [cell.is_worse() for cell in cells]
        assert (not_worse(GATE, whole).passed is False) == any(is_worse for is_worse, _ in found)
        for cell, judged, (is_worse, needed) in zip(cells, whole, found, strict=True):
            for done in range(TASKS // LOOKS, TASKS + 1, TASKS // LOOKS):
                so_far = judged._replace(results=_results(cell.candidate, done))
                has_loss = bool(look_state(GATE, so_far, CELLS).regression)
                assert has_loss == (is_worse and done >= needed)


def test_false_alarms_stay_below_the_level() -> None:
    found = simulated(0.0, rounds=300)
    assert found.failed <= LEVEL
    assert found.attempts > 0.98


def test_a_worse_cell_is_stopped_before_its_end() -> None:
    found = simulated(0.4, rounds=100)
    assert found.failed > 0.97
    assert found.in_worse_cell < 0.65
    assert found.attempts > 0.85


if __name__ == "__main__":
    for lower in (0.0, 0.1, 0.2, 0.3, 0.4):
        shares = " | ".join(f"{share * 100:.1f} %" for share in simulated(lower))
        sys.stdout.write(f"| {lower * 100:.0f} points | {shares} |\n")
        sys.stdout.flush()
