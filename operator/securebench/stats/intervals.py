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

    from securebench.stats.verdicts import TaskKinds

Z_95 = 1.959963984540054
"""Quantile of the standard normal distribution for a 95 % interval."""


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(passed: int, verified: int) -> Interval | None:
    """Return a share of independent verdicts with its Wilson score interval; None without any.

    Source: E. B. Wilson, JASA 22 (1927) 209.
    """
    if verified == 0:
        return None
    share = passed / verified
    square = Z_95 * Z_95 / verified
    center = (share + square / 2) / (1 + square)
    half = sqrt(share * (1 - share) / verified + square / (4 * verified)) * Z_95 / (1 + square)
    return Interval(share, max(0.0, center - half), min(1.0, center + half))


def pass_rate(kinds: TaskKinds) -> Interval | None:
    """Return the share of verdicts that passed; None without a verdict.

    With one verdict per task the interval is Wilson's, otherwise a cluster bootstrap.
    """
    if not kinds:
        return None
    if max(kind.verified for kind in kinds) == 1:
        return wilson(_passed(kinds), _verified(kinds))
    return _clustered(kinds, lambda sample: _passed(sample) / _verified(sample))


def pass_at_k(kinds: TaskKinds, k: int) -> Interval | None:
    """Return the chance that at least one of ``k`` attempts passes, averaged over tasks.

    Tasks with fewer than ``k`` verdicts cannot be estimated and are left out; None without others.
    The estimator is unbiased: 1 - C(n - c, k) / C(n, k) for ``c`` passes among ``n`` verdicts.

    Source: Chen et al., arXiv:2107.03374 (2021), equation 1.
    """
    usable = Counter({kind: count for kind, count in kinds.items() if kind.verified >= k})
    if not usable:
        return None
    chances = {
        kind: 1 - comb(kind.verified - kind.passed, k) / comb(kind.verified, k) for kind in usable
    }

    def mean(sample: TaskKinds) -> float:
        return sum(chances[kind] * count for kind, count in sample.items()) / sample.total()

    if max(kind.verified for kind in usable) == 1:
        return wilson(_passed(usable), _verified(usable))
    return _clustered(usable, mean)


def _clustered(kinds: TaskKinds, estimate: Callable[[TaskKinds], float]) -> Interval:
    """Return an estimate with the interval of a cluster bootstrap.

    If all tasks agree, every resample does too, which says nothing about other tasks: the interval
    is then Wilson's, with tasks instead of attempts.
    """
    value = estimate(kinds)
    low, high = percentile_interval(estimate(sample) for sample in resamples(kinds))
    if low < high:
        return Interval(value, low, high)
    tasks = kinds.total()
    cautious = wilson(round(value * tasks), tasks)
    assert cautious is not None  # noqa: S101 - there is at least one task
    return Interval(value, min(value, cautious.low), max(value, cautious.high))


def _passed(kinds: TaskKinds) -> int:
    return sum(kind.passed * count for kind, count in kinds.items())


def _verified(kinds: TaskKinds) -> int:
    return sum(kind.verified * count for kind, count in kinds.items())
