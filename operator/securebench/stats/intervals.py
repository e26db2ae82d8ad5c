"""Share of attempts that passed and pass@k, with 95 % intervals.

Attempts of one task are not independent: an interval over attempts would be too narrow. Where
tasks have several verdicts, tasks are resampled, each with all its attempts (cluster bootstrap).
"""

from __future__ import annotations

from collections import Counter
from math import comb, sqrt
from statistics import median_high
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.resampling import percentile_interval, resamples

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.stats.verdicts import VerdictCounts

Z_95 = 1.959963984540054
"""Quantile of the standard normal distribution for a 95 % interval."""

MIN_BOOTSTRAP_TASKS = 10
"""With fewer tasks, bootstrap intervals are too narrow (simulated coverage: 86 to 92 %)."""

MAX_CONSECUTIVE_K = 10
"""pass@k is listed for every k up to this one, then for ``_LATER_K`` and the last."""

_LATER_K = (20, 50)


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


class PassAtK(NamedTuple):
    """Probability that at least one of k attempts passes.

    Args:
        k: Number of attempts.
        tasks: Number of tasks in the average.
        estimate: Averaged over these tasks.
    """

    k: int
    tasks: int
    estimate: Interval


class Estimates(NamedTuple):
    """What the verdicts of a run say.

    Args:
        pass_rate: Share of verdicts that passed; None without a verdict.
        pass_at_k: pass@1 to pass@n; empty with one verdict per task, or before the run's end.
    """

    pass_rate: Interval | None = None
    pass_at_k: tuple[PassAtK, ...] = ()


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


def pass_at_k(counts: VerdictCounts, k: int) -> PassAtK:
    """Return the probability that at least one of ``k`` attempts passes, averaged over tasks.

    The estimator is unbiased: 1 - C(n - c, k) / C(n, k) for ``c`` passes among ``n`` verdicts.

    Args:
        counts: At least one task; every task has at least ``k`` verdicts.
        k: Number of attempts, at least 1.

    Source: Chen et al., arXiv:2107.03374 (2021), equation 1.
    """
    estimates = {
        task: 1 - comb(task.verified - task.passed, k) / comb(task.verified, k) for task in counts
    }

    def mean(sample: VerdictCounts) -> float:
        return sum(estimates[task] * count for task, count in sample.items()) / sample.total()

    return PassAtK(k, counts.total(), _clustered(counts, mean))


def pass_at_each_k(counts: VerdictCounts) -> tuple[PassAtK, ...]:
    """Return pass@1 to pass@n, all over the same tasks, so that they are comparable.

    n is the largest number of verdicts that at least half of the tasks have, and the tasks are
    those with at least n verdicts: a few incomplete tasks do not shorten the list, and no figure
    rests on a few complete ones. Empty for n below 2.

    Args:
        counts: Tasks by their verdicts; those without a verdict are not among them.
    """
    most = median_high(task.verified for task in counts.elements()) if counts else 0
    if most <= 1:
        return ()
    complete = Counter({task: count for task, count in counts.items() if task.verified >= most})
    wanted = {*range(1, min(most, MAX_CONSECUTIVE_K) + 1), *(k for k in _LATER_K if k < most), most}
    return tuple(pass_at_k(complete, k) for k in sorted(wanted))


def _clustered(counts: VerdictCounts, estimate: Callable[[VerdictCounts], float]) -> Interval:
    """Return an estimate with the interval of a cluster bootstrap.

    With few tasks, or tasks that all agree, a bootstrap underestimates the variance. The interval
    is then Wilson's over tasks instead of attempts, which is conservative. Tasks agree if each
    alone has the same estimate, from whatever number of attempts.
    """
    value, tasks = estimate(counts), counts.total()
    cautious = wilson(value * tasks, tasks)
    do_agree = len({estimate(Counter({task: 1})) for task in counts}) == 1
    if cautious is not None and (tasks < MIN_BOOTSTRAP_TASKS or do_agree):
        return cautious
    return Interval(value, *percentile_interval(estimate(sample) for sample in resamples(counts)))


def _passed(counts: VerdictCounts) -> int:
    return sum(verdicts.passed * count for verdicts, count in counts.items())


def _verified(counts: VerdictCounts) -> int:
    return sum(verdicts.verified * count for verdicts, count in counts.items())
