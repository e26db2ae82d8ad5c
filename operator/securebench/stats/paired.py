"""The difference between two runs of the same tasks.

Tasks differ in difficulty more than agents do; comparing each task with itself removes that, and
shows differences that two separate intervals would hide.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from math import comb, sqrt
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.intervals import Z_95
from securebench.stats.resampling import RESAMPLES, percentile_interval, resamples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.stats.verdicts import TaskVerdicts

Z_POWER = 0.8416212335729143
"""Quantile of the standard normal distribution for a power of 80 %."""

LEVEL = 0.05
"""Two-sided level of the tests."""


class PairedTest(StrEnum):
    """How the p-value was computed."""

    MCNEMAR = "mcnemar-exact"
    BOOTSTRAP = "paired-bootstrap"


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
        low: Lower end of its 95 % interval, by a paired bootstrap over tasks.
        high: Upper end.
        p_value: Two-sided: how likely a change as large is if the runs do not differ.
        test: How the p-value was computed.
        detectable: Smallest difference that so many tasks show at a level of 5 % with a power
            of 80 %, estimated from the changes that were seen.
    """

    tasks: int
    value: float
    low: float
    high: float
    p_value: float
    test: PairedTest
    detectable: float


def paired_difference(pairs: Sequence[Pair]) -> Difference | None:
    """Compare two runs task by task; None without a common task.

    With one verdict per task and run, the p-value is that of the exact McNemar test, otherwise of
    the bootstrap.
    """
    if not pairs:
        return None
    changes = Counter(pair.change for pair in pairs)
    estimates = [_mean(sample) for sample in resamples(changes)]
    low, high = percentile_interval(estimates)
    if all(pair.before.verified == pair.after.verified == 1 for pair in pairs):
        test, p_value = PairedTest.MCNEMAR, mcnemar_exact(changes[1.0], changes[-1.0])
    else:
        test, p_value = PairedTest.BOOTSTRAP, _bootstrap_p(estimates)
    return Difference(
        len(pairs), _mean(changes), low, high, p_value, test, detectable_difference(changes)
    )


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


def detectable_difference(changes: Counter[float]) -> float:
    """Return the smallest mean change that this many tasks show (level 5 %, power 80 %).

    Never below what an exact test needs to reject at all: enough tasks that changed one way.
    """
    tasks, mean = changes.total(), _mean(changes)
    variance = sum(count * (change - mean) ** 2 for change, count in changes.items()) / tasks
    normal = (Z_95 + Z_POWER) * sqrt(variance / tasks)
    return min(1.0, max(normal, _fewest_changes() / tasks))


def _fewest_changes() -> int:
    count = 1
    while mcnemar_exact(count, 0) > LEVEL:
        count += 1
    return count


def _bootstrap_p(estimates: Sequence[float]) -> float:
    """Share of resamples on the far side of no difference, twice; never zero."""
    below = sum(value <= 0 for value in estimates)
    above = sum(value >= 0 for value in estimates)
    return min(1.0, 2 * (min(below, above) + 1) / (RESAMPLES + 1))


def _mean(changes: Counter[float]) -> float:
    return sum(change * count for change, count in changes.items()) / changes.total()
