"""The error rate of looks at a comparison, on 10,000 simulated comparisons.

``PYTHONPATH=operator:tests python -m property.test_sequential`` prints the tables of the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest

from securebench.analysis.comparison import compare_in_looks
from securebench.analysis.results import Entry
from securebench.run.api.field_types import Outcome
from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL, mcnemar_exact
from securebench.stats.sequential import DoneTask, course
from support.result_sets import attempt, result_set

TASKS, LOOKS, COMPARISONS = 100, 4, 10_000
WON, LOST, SAME = (
    DoneTask(TaskVerdicts(1, old), TaskVerdicts(1, new)) for old, new in ((0, 1), (1, 0), (1, 1))
)


class Rates(NamedTuple):
    """Of simulated comparisons: shares that were decided, and of the tasks that were needed."""

    sequential: float
    at_the_end: float
    tasks: float


def simulated(effect: float, comparisons: int = COMPARISONS) -> Rates:
    """Compare two agents on tasks of any difficulty again and again, seed 1.

    Args:
        effect: How much lower the candidate's chance of each task is, where it can be.
        comparisons: How many.
    """
    random = Random(1)  # noqa: S311 - statistics, no secret
    decided = whole = tasks = 0
    for _ in range(comparisons):
        pairs = [_pair(random, effect) for _ in range(TASKS)]
        found = course(pairs, TASKS, LOOKS)
        decided += found.decision is not None
        tasks += found.taken[-1].tasks
        whole += _is_shown_at_the_end(pairs)
    return Rates(decided / comparisons, whole / comparisons, tasks / comparisons / TASKS)


def _pair(random: Random, effect: float) -> DoneTask:
    difficulty = random.random()
    old, new = random.random() < difficulty, random.random() < max(0.0, difficulty - effect)
    if old == new:
        return SAME
    return LOST if old else WON


def _is_shown_at_the_end(pairs: Sequence[DoneTask]) -> bool:
    return mcnemar_exact(pairs.count(WON), pairs.count(LOST)) <= LEVEL


def false_alarms(rest: Outcome, comparisons: int = COMPARISONS) -> float:
    """Return how often equal agents seem to differ to whoever ends the run as he likes, seed 1.

    The tester ends it when the tasks so far have their smallest p-value, or lets it go on to the
    last task.

    Args:
        rest: How the attempts end that the run has not finished at that moment.
        comparisons: How many are simulated.
    """
    random = Random(1)  # noqa: S311 - statistics, no secret
    return sum(_is_alarm(random, rest) for _ in range(comparisons)) / comparisons


def _is_alarm(random: Random, rest: Outcome) -> bool:
    old, new = (
        [attempt(f"t{task}", passed=random.random() < 0.5) for task in range(TASKS)]
        for _ in range(2)
    )
    baseline, best = result_set("old", old), _most_favourable(old, new)
    unfinished = [attempt(each.task_id, outcome=rest) for each in new[best:]]
    return any(
        compare_in_looks(baseline, result_set("new", ended), LOOKS).decision
        for ended in (new, new[:best] + unfinished)
    )


def _most_favourable(old: Sequence[Entry], new: Sequence[Entry]) -> int:
    """Return after how many tasks the runs differ with the smallest p-value."""
    changes = [
        bool(after.passed) - bool(before.passed) for before, after in zip(old, new, strict=True)
    ]
    return min(
        range(1, TASKS + 1),
        key=lambda done: mcnemar_exact(changes[:done].count(1), changes[:done].count(-1)),
    )


@pytest.mark.parametrize("rest", [Outcome.CANCELLED, Outcome.PROVIDER])
def test_nobody_gains_by_ending_a_run_at_a_good_moment(rest: Outcome) -> None:
    """Cancelled, or without its provider from then on."""
    assert false_alarms(rest, comparisons=500) <= LEVEL


def test_false_alarms_stay_below_the_level() -> None:
    assert simulated(0.0).sequential <= LEVEL


def test_a_loss_is_found_with_fewer_tasks() -> None:
    found = simulated(0.3, comparisons=1_000)
    assert found.sequential > 0.97
    assert found.tasks < 0.7


if __name__ == "__main__":
    for lower in (0.0, 0.1, 0.2, 0.3, 0.4):
        seen = simulated(lower)
        shares = " | ".join(f"{share * 100:.1f} %" for share in seen)
        sys.stdout.write(f"| {lower * 100:.0f} points | {shares} |\n")
    for end in (Outcome.CANCELLED, Outcome.PROVIDER):
        sys.stdout.write(f"| {end.value} | {false_alarms(end) * 100:.1f} % |\n")
