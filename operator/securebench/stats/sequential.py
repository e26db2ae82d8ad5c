"""Stop a comparison of two runs as soon as it is decided, with the error rate kept.

The looks are planned: each tests the first so many tasks, in an order that is fixed before. So it
does not matter how often somebody asks. Each look has a share of the level, and the shares add up
to it; by the union bound, so do the chances of a false alarm, however the looks depend on each
other. Attempts that were lost count as the verdicts with which the runs differ least: a look
decides only what it would decide whatever they had been, so nobody gains by losing any.

Source: shares for each look, Slud and Wei, J. Am. Stat. Assoc. 77 (1982) 862; their sizes by the
spending function of Lan and DeMets, Biometrika 70 (1983) 659, that resembles the bounds of O'Brien
and Fleming, Biometrics 35 (1979) 549.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, erfc, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL, Pair, paired_test

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_LOOKS = 20
"""More would leave next to nothing of the level to most of them."""


class DoneTask(NamedTuple):
    """A task of which both runs have all attempts that count.

    Args:
        baseline: Verdicts on these attempts, at least one.
        candidate: Verdicts on as many attempts, less those that were lost.
    """

    baseline: TaskVerdicts
    candidate: TaskVerdicts

    @property
    def lost(self) -> int:
        """Attempts of the candidate without a verdict."""
        return self.baseline.verified - self.candidate.verified

    def lowest(self) -> Pair:
        """Return the verdicts as if all lost attempts had failed."""
        return Pair(self.baseline, TaskVerdicts(self.baseline.verified, self.candidate.passed))

    def highest(self) -> Pair:
        """Return the verdicts as if all lost attempts had passed."""
        passed = self.candidate.passed + self.lost
        return Pair(self.baseline, TaskVerdicts(self.baseline.verified, passed))

    def worst(self) -> DoneTask:
        """Return the task as if every verdict of the candidate were the loss of a pass."""
        verified = self.candidate.verified
        passed = max(self.baseline.passed, verified)
        return DoneTask(TaskVerdicts(self.baseline.verified, passed), TaskVerdicts(verified, 0))


class Look(NamedTuple):
    """A test of the first tasks.

    Args:
        number: From 1.
        tasks: How many tasks it needed.
        value: Mean change of their pass rates; 0 where lost attempts could turn it, or no task
            counts.
        p_value: Two-sided; the largest that the lost attempts could have given.
        least_p_value: The same if every verdict of the candidate were the loss of a pass.
        level: Share of the level that this look may spend.
        lost: Attempts of the candidate without a verdict.
    """

    number: int
    tasks: int
    value: float
    p_value: float
    least_p_value: float
    level: float
    lost: int

    @property
    def is_decisive(self) -> bool:
        """Whether the runs differ."""
        return self.p_value <= self.level

    @property
    def is_blind(self) -> bool:
        """Whether no loss could have decided it: of too few tasks, or too many attempts."""
        return self.least_p_value > self.level


class Course(NamedTuple):
    """The looks of a comparison so far.

    Args:
        planned: How many looks there are.
        tasks: How many tasks the last one needs.
        done: How many of them are done, in the fixed order.
        taken: The looks that were reached, up to the first that decides.
    """

    planned: int
    tasks: int
    done: int
    taken: tuple[Look, ...]

    @property
    def decision(self) -> Look | None:
        """The look that decides, or None."""
        return next((look for look in self.taken if look.is_decisive), None)

    @property
    def next_tasks(self) -> int | None:
        """How many tasks the next look needs; None after the last."""
        number = len(self.taken) + 1
        return look_tasks(number, self.planned, self.tasks) if number <= self.planned else None


def look_tasks(number: int, looks: int, tasks: int) -> int:
    """Return how many tasks a look needs.

    Args:
        number: Number of the look, from 1.
        looks: How many are planned.
        tasks: Tasks of the whole comparison.
    """
    return ceil(tasks * number / looks)


def look_levels(looks: int, level: float = LEVEL) -> tuple[float, ...]:
    """Return the share of the level that each of some equally spaced looks may spend."""
    bound = NormalDist().inv_cdf(1 - level / 2)
    spent = [erfc(bound / sqrt(2 * number / looks)) for number in range(1, looks + 1)]
    return tuple(later - earlier for earlier, later in pairwise([0.0, *spent]))


def course(done: Sequence[DoneTask | None], tasks: int, looks: int, level: float = LEVEL) -> Course:
    """Return the looks that a comparison has reached.

    Args:
        done: The first tasks in the fixed order, as far as both runs have done them for good; None
            for one that cannot be compared.
        tasks: How many tasks the whole comparison has.
        looks: How many looks are planned, at least 1.
        level: What all looks together may spend.
    """
    return Course(looks, tasks, len(done), tuple(_taken(done, tasks, look_levels(looks, level))))


def _taken(done: Sequence[DoneTask | None], tasks: int, levels: Sequence[float]) -> Iterator[Look]:
    looks = len(levels)
    for number, level in enumerate(levels, start=1):
        needed = look_tasks(number, looks, tasks)
        if needed > len(done):
            return
        look = _look(number, done[:needed], level)
        yield look
        if look.is_decisive:
            return


def _look(number: int, done: Sequence[DoneTask | None], level: float) -> Look:
    tasks = [task for task in done if task is not None]
    pairs = _least_different(tasks)
    value = _change(pairs) / len(pairs) if pairs else 0.0
    lost = sum(task.lost for task in tasks)
    worst = _least_different([task.worst() for task in tasks])
    p_value, least = paired_test(pairs).p_value, paired_test(worst).p_value
    return Look(number, len(done), value, p_value, least, level, lost)


def _least_different(tasks: Sequence[DoneTask]) -> Sequence[Pair]:
    """Return the verdicts that make the runs differ least; none where they could be equal.

    The p-value of either side grows with every task's change, so no other verdicts of the lost
    attempts give a larger one.
    """
    lowest, highest = [task.lowest() for task in tasks], [task.highest() for task in tasks]
    if _change(lowest) > 0:
        return lowest
    return highest if _change(highest) < 0 else ()


def _change(pairs: Sequence[Pair]) -> float:
    return sum(pair.change for pair in pairs)
