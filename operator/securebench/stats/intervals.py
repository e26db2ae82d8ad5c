"""Share of attempts that passed and pass@k, with 95 % intervals.

Attempts of one task are not independent: an interval over attempts would be too narrow. Where
tasks have several verdicts, tasks are resampled, each with all its attempts (cluster bootstrap).
"""

from __future__ import annotations

from collections import Counter
from math import comb, sqrt
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.resampling import percentile_interval, resamples

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.stats.verdicts import VerdictCounts

Z_95 = 1.959963984540054
"""Quantile of the standard normal distribution for a 95 % interval."""

MIN_BOOTSTRAP_TASKS = 10
"""Below, resampled intervals are too narrow (simulated: 86 to 92 % hold the truth, not 95 %)."""

MAX_CONSECUTIVE_K = 10
"""pass@k is listed for every k up to this one, then for ``_LATER_K`` and the last."""

_LATER_K = (20, 50)


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


class PassAtK(NamedTuple):
    """The chance that at least one of several attempts passes.

    Args:
        k: Number of attempts.
        tasks: Tasks with at least as many verdicts; the others say nothing about it.
        estimate: Averaged over these tasks.
    """

    k: int
    tasks: int
    estimate: Interval


def wilson(passed: float, verified: int) -> Interval | None:
    """Return a share of independent verdicts with its Wilson score interval; None without any.

    Args:
        passed: Sum of what counts, from 0 to ``verified``; shares of tasks may add up to halves.
        verified: Number of verdicts, or of tasks.

    Source: E. B. Wilson, JASA 22 (1927) 209.
    """
    if verified == 0:
        return None
    share = passed / verified
    square = Z_95 * Z_95 / verified
    center = (share + square / 2) / (1 + square)
    half = sqrt(share * (1 - share) / verified + square / (4 * verified)) * Z_95 / (1 + square)
    return Interval(share, min(share, max(0.0, center - half)), max(share, min(1.0, center + half)))


def pass_rate(counts: VerdictCounts) -> Interval | None:
    """Return the share of verdicts that passed; None without a verdict.

    With one verdict per task the interval is Wilson's, otherwise a cluster bootstrap.
    """
    if not counts:
        return None
    if max(verdicts.verified for verdicts in counts) == 1:
        return wilson(_passed(counts), _verified(counts))
    return _clustered(counts, lambda sample: _passed(sample) / _verified(sample))


def pass_at_k(counts: VerdictCounts, k: int) -> PassAtK | None:
    """Return the chance that at least one of ``k`` attempts passes, averaged over tasks.

    Tasks with fewer than ``k`` verdicts cannot be estimated and are left out; None without others.
    The estimator is unbiased: 1 - C(n - c, k) / C(n, k) for ``c`` passes among ``n`` verdicts.

    Source: Chen et al., arXiv:2107.03374 (2021), equation 1.
    """
    usable = Counter(
        {verdicts: count for verdicts, count in counts.items() if verdicts.verified >= k}
    )
    if not usable:
        return None
    chances = {
        verdicts: 1 - comb(verdicts.verified - verdicts.passed, k) / comb(verdicts.verified, k)
        for verdicts in usable
    }

    def mean(sample: VerdictCounts) -> float:
        return sum(chances[verdicts] * count for verdicts, count in sample.items()) / sample.total()

    tasks = usable.total()
    if max(verdicts.verified for verdicts in usable) == 1:
        interval = wilson(_passed(usable), tasks)
        return None if interval is None else PassAtK(k, tasks, interval)
    return PassAtK(k, tasks, _clustered(usable, mean))


def pass_at_each_k(counts: VerdictCounts) -> tuple[PassAtK, ...]:
    """Return pass@1 to pass@n for the most verdicts that a task has; empty for one per task."""
    most = max((verdicts.verified for verdicts in counts), default=0)
    if most <= 1:
        return ()
    wanted = {*range(1, min(most, MAX_CONSECUTIVE_K) + 1), *(k for k in _LATER_K if k < most), most}
    found = (pass_at_k(counts, k) for k in sorted(wanted))
    return tuple(each for each in found if each is not None)


def _clustered(counts: VerdictCounts, estimate: Callable[[VerdictCounts], float]) -> Interval:
    """Return an estimate with the interval of a cluster bootstrap.

    Few tasks, or tasks that all agree, say less about other tasks than their resamples suggest:
    the interval is then Wilson's, with tasks instead of attempts, which is never too narrow.
    """
    value, tasks = estimate(counts), counts.total()
    cautious = wilson(value * tasks, tasks)
    if cautious is not None and (tasks < MIN_BOOTSTRAP_TASKS or len(counts) == 1):
        return cautious
    return Interval(value, *percentile_interval(estimate(sample) for sample in resamples(counts)))


def _passed(counts: VerdictCounts) -> int:
    return sum(verdicts.passed * count for verdicts, count in counts.items())


def _verified(counts: VerdictCounts) -> int:
    return sum(verdicts.verified * count for verdicts, count in counts.items())
