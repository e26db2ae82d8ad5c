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

FEWEST_TASKS = 10
"""Below, resampled intervals are too narrow (simulated: 86 to 92 % hold the truth, not 95 %)."""

EACH_K = 10
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
        chance: Averaged over these tasks.
    """

    k: int
    tasks: int
    chance: Interval


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


def pass_rate(kinds: TaskKinds) -> Interval | None:
    """Return the share of verdicts that passed; None without a verdict.

    With one verdict per task the interval is Wilson's, otherwise a cluster bootstrap.
    """
    if not kinds:
        return None
    if max(kind.verified for kind in kinds) == 1:
        return wilson(_passed(kinds), _verified(kinds))
    return _clustered(kinds, lambda sample: _passed(sample) / _verified(sample))


def pass_at_k(kinds: TaskKinds, k: int) -> PassAtK | None:
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

    tasks = usable.total()
    if max(kind.verified for kind in usable) == 1:
        interval = wilson(_passed(usable), tasks)
        return None if interval is None else PassAtK(k, tasks, interval)
    return PassAtK(k, tasks, _clustered(usable, mean))


def pass_at_each_k(kinds: TaskKinds) -> tuple[PassAtK, ...]:
    """Return pass@1 to pass@n for the most verdicts that a task has; empty for one per task."""
    most = max((kind.verified for kind in kinds), default=0)
    if most <= 1:
        return ()
    wanted = {*range(1, min(most, EACH_K) + 1), *(k for k in _LATER_K if k < most), most}
    found = (pass_at_k(kinds, k) for k in sorted(wanted))
    return tuple(each for each in found if each is not None)


def _clustered(kinds: TaskKinds, estimate: Callable[[TaskKinds], float]) -> Interval:
    """Return an estimate with the interval of a cluster bootstrap.

    Few tasks, or tasks that all agree, say less about other tasks than their resamples suggest:
    the interval is then Wilson's, with tasks instead of attempts, which is never too narrow.
    """
    value, tasks = estimate(kinds), kinds.total()
    cautious = wilson(value * tasks, tasks)
    if cautious is not None and (tasks < FEWEST_TASKS or len(kinds) == 1):
        return cautious
    return Interval(value, *percentile_interval(estimate(sample) for sample in resamples(kinds)))


def _passed(kinds: TaskKinds) -> int:
    return sum(kind.passed * count for kind, count in kinds.items())


def _verified(kinds: TaskKinds) -> int:
    return sum(kind.verified * count for kind, count in kinds.items())
