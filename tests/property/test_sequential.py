"""The error rate of looks at a comparison, on 10,000 simulated comparisons.

``PYTHONPATH=operator:tests python -m property.test_sequential`` prints the table of the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from securebench.stats.paired import LEVEL, Pair, mcnemar_exact
from securebench.stats.sequential import course
from securebench.stats.verdicts import TaskVerdicts

TASKS, LOOKS, COMPARISONS = 100, 4, 10_000
WON, LOST, SAME = (
    Pair(TaskVerdicts(1, old), TaskVerdicts(1, new)) for old, new in ((0, 1), (1, 0), (1, 1))
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


def _pair(random: Random, effect: float) -> Pair:
    difficulty = random.random()
    old, new = random.random() < difficulty, random.random() < max(0.0, difficulty - effect)
    if old == new:
        return SAME
    return LOST if old else WON


def _is_shown_at_the_end(pairs: Sequence[Pair]) -> bool:
    return mcnemar_exact(pairs.count(WON), pairs.count(LOST)) <= LEVEL


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
