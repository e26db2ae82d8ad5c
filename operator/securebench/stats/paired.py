"""The difference between a candidate run and a baseline run of the same tasks.

Tasks differ in difficulty more than agents do; comparing each task with itself removes that, and
shows differences that two separate intervals would hide. The sign-flip test says how likely a
change is as large, if the change of each task could have either sign.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from itertools import accumulate
from math import comb, exp, lcm, sqrt
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.intervals import (
    FLIPS,
    MIN_BOOTSTRAP_TASKS,
    Z_95,
    Interval,
    flipped_sums,
    percentile_interval,
    resamples,
    wilson,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from securebench.stats.intervals import TaskVerdicts

MAX_SUMS = 100_000
"""Different sums in an exact test; these take about 10 MB."""

MAX_STEPS = 20_000_000
"""Products of probabilities in an exact test; these take one or two seconds."""


class _Kind(NamedTuple):
    """Fair coins of one value."""

    value: int
    coins: int


def sign_flip(changes: Mapping[int, int]) -> float:
    """Return the two-sided p-value of a sign-flip test of the tasks' changes.

    If the runs do not differ, each task's change is equally likely with either sign. All
    assignments of signs are counted. Changes of one sign have the p-value of the exact McNemar
    test, whatever their sizes.

    Where there are too many different sums to count, signs are drawn. Their share cannot show how
    small a p-value below 1 / ``FLIPS`` is; Hoeffding's bound, which none exceeds, can.

    Args:
        changes: Number of tasks by their change; the unit does not matter.

    Source: R. A. Fisher, The Design of Experiments (1935), section 21; for random signs Phipson and
    Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39; W. Hoeffding, JASA 58 (1963) 13, theorem 2.
    """
    sizes = Counter[int]()
    for change, count in changes.items():
        if change:
            sizes[abs(change)] += count
    seen = abs(sum(change * count for change, count in changes.items()))
    if not seen:
        return 1.0
    total = sum(size * count for size, count in sizes.items())
    # Tasks with one of the signs are heads: as large is a sum of at most this, or of as many tails.
    most = (total - seen) // 2
    kinds = sorted((_Kind(*each) for each in sizes.items()), key=lambda each: each.coins)
    if _is_countable(kinds, most):
        return min(1.0, 2 * _chance_of_at_most(most, kinds))
    squares = sum(size * size * count for size, count in sizes.items())
    as_large = sum(abs(each) >= seen for each in flipped_sums(sizes))
    return min((as_large + 1) / (FLIPS + 1), 2 * exp(-seen * seen / (2 * squares)))


def _is_countable(kinds: Sequence[_Kind], most: int) -> bool:
    greatest, sums, steps = 0, 1, 0
    for value, count in kinds[:-1]:
        steps += sums * (count + 1)
        greatest += value * count
        sums = min(sums * (count + 1), greatest + 1, most + 1)
    return sums <= MAX_SUMS and steps <= MAX_STEPS


def _chance_of_at_most(most: int, kinds: Sequence[_Kind]) -> float:
    """Return the probability that the values of the heads add up to at most so much.

    Args:
        most: At least 0.
        kinds: At least one; the last costs least, so it should be that of most coins.
    """
    sums = {0: 1.0}
    for each in kinds[:-1]:
        sums = _with_coins(sums, each, most)
    value, count = kinds[-1]
    at_most = list(accumulate(_heads(count)))
    return sum(
        chance * at_most[min(count, (most - added) // value)] for added, chance in sums.items()
    )


def _with_coins(sums: Mapping[int, float], kind: _Kind, most: int) -> dict[int, float]:
    """Return the probabilities of all sums up to ``most``, with more coins of one value."""
    found: dict[int, float] = {}
    for heads, chance in enumerate(_heads(kind.coins)):
        room = most - heads * kind.value
        for before, its_chance in sums.items():
            if before <= room:
                added = before + heads * kind.value
                found[added] = found.get(added, 0.0) + chance * its_chance
    return found


def _heads(coins: int) -> list[float]:
    """Return the probability of each number of heads, from 0."""
    ways, all_ways, found = 1, 1 << coins, []
    for heads in range(coins + 1):
        found.append(ways / all_ways)
        ways = ways * (coins - heads) // (heads + 1)
    return found


Z_POWER = 0.8416212335729143
"""Quantile of the standard normal distribution for a power of 80 %."""

LEVEL = 0.05
"""Two-sided significance level of the tests."""


class PairedTest(StrEnum):
    """How the p-value was computed."""

    MCNEMAR = "mcnemar-exact"
    SIGN_FLIP = "paired-sign-flip"


class PairedTestResult(NamedTuple):
    """What a test of two runs says.

    Args:
        test: How the p-value was computed.
        p_value: Two-sided.
    """

    test: PairedTest
    p_value: float


class Pair(NamedTuple):
    """Verdicts of both runs on one task; each has at least one."""

    baseline: TaskVerdicts
    candidate: TaskVerdicts

    @property
    def change(self) -> float:
        """Pass rate of the candidate minus that of the baseline, from -1 to 1."""
        return self.candidate.rate - self.baseline.rate


class RateChanges(NamedTuple):
    """Changes of tasks' pass rates in whole parts: as floats, 1 - 2/3 is not 1/3.

    Args:
        counts: Number of tasks by their change, in parts; at least one task where a mean is asked.
        parts: How many of them are a change by 1.
    """

    counts: Counter[int]
    parts: int

    def mean(self) -> float:
        """Return the mean change, from -1 to 1."""
        total = sum(change * count for change, count in self.counts.items())
        return total / (self.counts.total() * self.parts)


class Difference(NamedTuple):
    """The candidate run compared with the baseline.

    Args:
        tasks: Tasks with a verdict in both runs.
        value: Mean change of the tasks' pass rates.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p_value: Two-sided: probability of a change at least as large if the runs do not differ.
        test: How the p-value was computed.
        detectable: Minimum detectable difference at a significance level of 5 % and a power of
            80 %, estimated from the observed changes; None if so few tasks can show none.
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

    With one verdict per task and run, the interval is Newcombe's and the p-value is that of the
    exact McNemar test. With several, they are their counterparts for pass rates: a bootstrap over
    tasks and a sign-flip test.
    """
    if not pairs:
        return None
    changes = changes_of(pairs)
    found = paired_test(pairs)
    is_single = found.test is PairedTest.MCNEMAR
    interval = newcombe(pairs) if is_single else _resampled(pairs, changes)
    return Difference(
        len(pairs), *interval, found.p_value, found.test, detectable_difference(changes)
    )


def paired_test(pairs: Sequence[Pair]) -> PairedTestResult:
    """Test whether two runs differ; without a task they do not."""
    counts = changes_of(pairs).counts
    if all(pair.baseline.verified == pair.candidate.verified == 1 for pair in pairs):
        return PairedTestResult(PairedTest.MCNEMAR, mcnemar_exact(counts[1], counts[-1]))
    return PairedTestResult(PairedTest.SIGN_FLIP, sign_flip(counts))


def changes_of(pairs: Iterable[Pair]) -> RateChanges:
    """Count tasks by how much their pass rates changed."""
    kinds = Counter(pairs)
    parts = lcm(*(verdicts.verified for pair in kinds for verdicts in pair))
    counts = Counter[int]()
    for (old, new), count in kinds.items():
        change = new.passed * (parts // new.verified) - old.passed * (parts // old.verified)
        counts[change] += count
    return RateChanges(counts, parts)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected so that one false alarm in all is rare.

    Args:
        p_values: P values of the tests, in any order.

    Returns:
        The corrected ones in the same order, each at most 1.

    Source: S. Holm, Scandinavian Journal of Statistics 6 (1979) 65.
    """
    corrected, highest = list(p_values), 0.0
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def newcombe(pairs: Sequence[Pair]) -> Interval:
    """Return the mean change with Newcombe's interval, which holds also where no task changed.

    It combines the Wilson intervals of both runs by the correlation of their verdicts.

    Source: R. G. Newcombe, Statistics in Medicine 17 (1998) 2635, method 10.
    """
    tasks = len(pairs)
    both_passed = sum(pair.baseline.rate * pair.candidate.rate for pair in pairs)
    baseline_passed = sum(pair.baseline.rate for pair in pairs)
    candidate_passed = sum(pair.candidate.rate for pair in pairs)
    baseline, candidate = wilson(baseline_passed, tasks), wilson(candidate_passed, tasks)
    assert baseline is not None  # noqa: S101 - there is at least one task
    assert candidate is not None  # noqa: S101 - the same
    phi = _correlation(both_passed, baseline_passed, candidate_passed, tasks)
    value = (candidate_passed - baseline_passed) / tasks
    down = _combined(candidate.value - candidate.low, baseline.high - baseline.value, phi)
    up = _combined(candidate.high - candidate.value, baseline.value - baseline.low, phi)
    return Interval(value, max(-1.0, value - down), min(1.0, value + up))


def mcnemar_exact(gained: int, lost: int) -> float:
    """Return the two-sided p-value of the exact McNemar test.

    Args:
        gained: Tasks that only the candidate passed.
        lost: Tasks that only the baseline passed.

    Source: McNemar, Psychometrika 12 (1947) 153; exact by the binomial distribution.
    """
    total = gained + lost
    tail = sum(comb(total, count) for count in range(min(gained, lost) + 1))
    return float(min(1, 2 * tail / 2**total))


def detectable_difference(changes: RateChanges) -> float | None:
    """Return the minimum detectable mean change (level 5 %, power 80 %).

    Assumes the observed changes and, on top of them, those that make up the difference, all in one
    direction. None for so few tasks that no change is significant.

    Source: the normal approximation of Connor, Biometrics 43 (1987) 207; conservative.
    """
    tasks = changes.counts.total()
    if mcnemar_exact(tasks, 0) > LEVEL:
        return None
    squares = sum(count * change * change for change, count in changes.counts.items())
    square = squares / (tasks * changes.parts**2)
    unit = (Z_95 + Z_POWER) ** 2 / tasks
    return min(1.0, unit / 2 + sqrt(unit * unit / 4 + unit * square))


def _resampled(pairs: Sequence[Pair], changes: RateChanges) -> Interval:
    """Return the mean change and its bootstrap interval; Newcombe's for few or equal changes."""
    if len(pairs) < MIN_BOOTSTRAP_TASKS or len(changes.counts) == 1:
        return newcombe(pairs)
    samples = (RateChanges(sample, changes.parts) for sample in resamples(changes.counts))
    return Interval(changes.mean(), *percentile_interval(each.mean() for each in samples))


def _correlation(both: float, baseline: float, candidate: float, tasks: int) -> float:
    """Return the phi coefficient of two runs' verdicts, corrected for continuity."""
    product = baseline * (tasks - baseline) * candidate * (tasks - candidate)
    if product <= 0:
        return 0.0
    neither = tasks - baseline - candidate + both
    excess = both * neither - (baseline - both) * (candidate - both)
    if excess > 0:
        excess = max(0.0, excess - tasks / 2)
    return excess / sqrt(product)


def _combined(one: float, two: float, correlation: float) -> float:
    return sqrt(max(0.0, one * one - 2 * correlation * one * two + two * two))
