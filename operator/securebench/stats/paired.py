"""The difference between two runs of the same tasks.

Tasks differ in difficulty more than agents do; comparing each task with itself removes that, and
shows differences that two separate intervals would hide.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from itertools import product
from math import comb, sqrt
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.intervals import FEWEST_TASKS, Z_95, Interval, wilson
from securebench.stats.resampling import FLIPS, flipped_sums, percentile_interval, resamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.stats.verdicts import TaskVerdicts

Z_POWER = 0.8416212335729143
"""Quantile of the standard normal distribution for a power of 80 %."""

LEVEL = 0.05
"""Two-sided level of the tests."""

MOST_EXACT = 12
"""So many changes have all their signs tried: 4,096."""

_ROUNDING = 1e-9
"""Sums of pass rates that differ by less are equal."""


class PairedTest(StrEnum):
    """How the p-value was computed."""

    MCNEMAR = "mcnemar-exact"
    SIGN_FLIP = "paired-sign-flip"


class Pair(NamedTuple):
    """Verdicts of two runs on one task; both have at least one."""

    before: TaskVerdicts
    after: TaskVerdicts

    @property
    def change(self) -> float:
        """Pass rate of the second run less that of the first, from -1 to 1."""
        return self.after.rate - self.before.rate


class Difference(NamedTuple):
    """The second run compared with the first.

    Args:
        tasks: Tasks with a verdict in both runs.
        value: Mean change of the tasks' pass rates.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p_value: Two-sided: how likely a change as large is if the runs do not differ.
        test: How the p-value was computed.
        detectable: Smallest difference that so many tasks show at a level of 5 % with a power
            of 80 %, estimated from the changes that were seen; None if they can show none.
    """

    tasks: int
    value: float
    low: float
    high: float
    p_value: float
    test: PairedTest
    detectable: float | None


def paired_difference(pairs: Sequence[Pair]) -> Difference | None:
    """Compare two runs task by task; None without a common task.

    With one verdict per task and run, the interval is Newcombe's and the p-value that of the exact
    McNemar test; otherwise they come from resampled tasks and from flipped signs, the forms of the
    two for pass rates.
    """
    if not pairs:
        return None
    changes = Counter(pair.change for pair in pairs)
    if all(pair.before.verified == pair.after.verified == 1 for pair in pairs):
        interval = newcombe(pairs)
        test, p_value = PairedTest.MCNEMAR, mcnemar_exact(changes[1.0], changes[-1.0])
    else:
        interval = _resampled(pairs, changes)
        test, p_value = PairedTest.SIGN_FLIP, sign_flip(changes)
    return Difference(len(pairs), *interval, p_value, test, detectable_difference(changes))


def newcombe(pairs: Sequence[Pair]) -> Interval:
    """Return the mean change with Newcombe's interval: right also where no task changed.

    Wilson's intervals of both runs, joined by the correlation of their verdicts.

    Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 2635, method 10.
    """
    tasks = len(pairs)
    both = sum(pair.before.rate * pair.after.rate for pair in pairs)
    first = sum(pair.before.rate for pair in pairs)
    second = sum(pair.after.rate for pair in pairs)
    one, two = wilson(first, tasks), wilson(second, tasks)
    assert one is not None  # noqa: S101 - there is at least one task
    assert two is not None  # noqa: S101 - the same
    shared = _correlation(both, first, second, tasks)
    value = (second - first) / tasks
    down = _joined(two.value - two.low, one.high - one.value, shared)
    up = _joined(two.high - two.value, one.value - one.low, shared)
    return Interval(value, max(-1.0, value - down), min(1.0, value + up))


def mcnemar_exact(gained: int, lost: int) -> float:
    """Return the two-sided p-value of the exact McNemar test.

    Args:
        gained: Tasks that only the second run passed.
        lost: Tasks that only the first run passed.

    Source: McNemar, Psychometrika 12 (1947) 153; exact by the binomial distribution.
    """
    total = gained + lost
    tail = sum(comb(total, count) for count in range(min(gained, lost) + 1))
    return float(min(1, 2 * tail / 2**total))


def sign_flip(changes: Counter[float]) -> float:
    """Return the two-sided p-value of a sign-flip test of the tasks' changes; never zero.

    If the runs do not differ, each task's change is as likely with the other sign. Few changes have
    all their signs tried, more of them random ones. For changes of -1, 0 and 1 this is the exact
    McNemar test.

    Source: R. A. Fisher, The Design of Experiments (1935), section 21; for random signs Phipson and
    Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39.
    """
    sizes = Counter[float]()
    for change, count in changes.items():
        if change:
            sizes[abs(change)] += count
    seen = abs(sum(change * count for change, count in changes.items())) - _ROUNDING
    if sizes.total() <= MOST_EXACT:
        signed = product(*((size, -size) for size in sizes.elements()))
        return sum(abs(sum(each)) >= seen for each in signed) / (1 << sizes.total())
    as_large = sum(abs(total) >= seen for total in flipped_sums(sizes))
    return (as_large + 1) / (FLIPS + 1)


def detectable_difference(changes: Counter[float]) -> float | None:
    """Return the smallest mean change that this many tasks show (level 5 %, power 80 %).

    Tasks change as much as was seen, and those of the difference besides, all of them one way.
    None for so few tasks that no change is significant.

    Source: the normal approximation of Connor, Biometrics 43 (1987) 207, on the safe side.
    """
    tasks = changes.total()
    if mcnemar_exact(tasks, 0) > LEVEL:
        return None
    square = sum(count * change * change for change, count in changes.items()) / tasks
    unit = (Z_95 + Z_POWER) ** 2 / tasks
    return min(1.0, unit / 2 + sqrt(unit * unit / 4 + unit * square))


def _resampled(pairs: Sequence[Pair], changes: Counter[float]) -> Interval:
    """Return the mean change with its bootstrap interval; Newcombe's, for few or equal changes."""
    if len(pairs) < FEWEST_TASKS or len(changes) == 1:
        return newcombe(pairs)
    return Interval(_mean(changes), *percentile_interval(map(_mean, resamples(changes))))


def _correlation(both: float, first: float, second: float, tasks: int) -> float:
    """Return the correlation of two runs' verdicts, corrected for continuity."""
    product = first * (tasks - first) * second * (tasks - second)
    if product <= 0:
        return 0.0
    neither = tasks - first - second + both
    excess = both * neither - (first - both) * (second - both)
    if excess > 0:
        excess = max(0.0, excess - tasks / 2)
    return excess / sqrt(product)


def _joined(one: float, two: float, correlation: float) -> float:
    return sqrt(max(0.0, one * one - 2 * correlation * one * two + two * two))


def _mean(changes: Counter[float]) -> float:
    return sum(change * count for change, count in changes.items()) / changes.total()
