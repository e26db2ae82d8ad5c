"""Share of attempts that passed, pass@k and mean reward, with 95 % intervals.

Attempts of one task are not independent: an interval over attempts would be too narrow. Where
tasks have several verdicts, tasks are resampled, each with all its attempts (cluster bootstrap).
The seed is constant, so that the same verdicts have the same interval.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from math import comb, frexp, fsum, ldexp, sqrt
from random import Random
from statistics import median_high
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class TaskVerdicts(NamedTuple):
    """Attempts of one task that have a verdict.

    Args:
        verified: Attempts with a verdict, at least 0.
        passed: Those that passed.
    """

    verified: int
    passed: int

    @property
    def rate(self) -> float:
        """Share of the verdicts that passed, from 0 to 1; the task has at least one verdict."""
        return self.passed / self.verified


class AttemptVerdict(NamedTuple):
    """The verdict on one attempt.

    Args:
        task: Tells tasks apart.
        passed: Whether the attempt passed.
    """

    task: str | int
    passed: bool


VerdictCounts = Counter[TaskVerdicts]
"""Number of tasks by their verdicts; tasks of the same kind are interchangeable in a resample."""


def verdicts_by_task(verdicts: Iterable[AttemptVerdict]) -> dict[str | int, TaskVerdicts]:
    """Count the verdicts of each task, in the order of their first ones."""
    verified, passed = Counter[str | int](), Counter[str | int]()
    for verdict in verdicts:
        verified[verdict.task] += 1
        passed[verdict.task] += verdict.passed
    return {task: TaskVerdicts(count, passed[task]) for task, count in verified.items()}


def verdict_counts(tasks: Iterable[TaskVerdicts]) -> VerdictCounts:
    """Count tasks by their verdicts; those without any are left out."""
    return Counter(task for task in tasks if task.verified)


SEED = 1
"""Of everything drawn here: the same verdicts have the same interval, wherever it is computed."""

RESAMPLES = 1_000
"""Enough for the second decimal of an interval's ends."""

FLIPS = 10_000
"""Random signs of a sign-flip test; a p-value of 5 % is right to about 0.4 %."""

_TAIL = 0.025

_Item = TypeVar("_Item")


def resamples(counts: Mapping[_Item, int]) -> Iterator[Counter[_Item]]:
    """Yield ``RESAMPLES`` samples of as many items as there are, each counted by item.

    Items of one item are drawn together: the numbers of a sample by item are multinomial, drawn as
    one binomial after the other. The cost grows with the number of distinct items, not of all
    items.

    Args:
        counts: Multiplicity of each distinct item; at least one item. Order does not matter.
    """
    random = Random(SEED)  # noqa: S311 - statistics, no secret
    ordered = [(item, counts[item]) for item in sorted(counts) if counts[item]]  # type: ignore[type-var]
    for _ in range(RESAMPLES):
        yield _resample(random, ordered)


def binomial(random: Random, draws: int, part: int, whole: int) -> int:
    """Return how many of ``draws`` succeed, each with the chance ``part / whole``; exact.

    Each draw is a random binary fraction, compared with the chance bit by bit; all that are not
    decided yet get their next bit at once.
    """
    if part == whole:
        return draws
    succeeded = 0
    while draws and part:
        ones = random.getrandbits(draws).bit_count()
        part *= 2
        if part >= whole:
            part -= whole
            succeeded += draws - ones
            draws = ones
        else:
            draws -= ones
    return succeeded


def flipped_sums(sizes: Mapping[int, int]) -> Iterator[int]:
    """Yield ``FLIPS`` sums of sizes, each size with a random sign.

    Args:
        sizes: How often each size occurs. Their order does not matter.
    """
    random = Random(SEED)  # noqa: S311 - statistics, no secret
    ordered = sorted(sizes.items())
    for _ in range(FLIPS):
        yield sum(
            size * (2 * random.getrandbits(count).bit_count() - count) for size, count in ordered
        )


def percentile_interval(estimates: Iterable[float]) -> tuple[float, float]:
    """Return the 2.5 % and 97.5 % quantiles of the estimates.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), 13.3.
    """
    ordered = sorted(estimates)
    cut = round(_TAIL * len(ordered))
    return ordered[cut], ordered[-1 - cut]


def _resample(random: Random, ordered: Iterable[tuple[_Item, int]]) -> Counter[_Item]:
    sample = Counter[_Item]()
    draws = items = sum(count for _, count in ordered)
    for item, count in ordered:
        drawn = binomial(random, draws, count, items)
        if drawn:
            sample[item] = drawn
        draws, items = draws - drawn, items - count
    return sample


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
        mean_reward: Mean of all rewards; None for a run without rewards.
    """

    pass_rate: Interval | None = None
    pass_at_k: tuple[PassAtK, ...] = ()
    mean_reward: Interval | None = None


def wilson(passed: float, verified: float) -> Interval | None:
    """Return a share of independent verdicts with its Wilson score interval; None without any.

    Args:
        passed: Sum of what counts, from 0 to ``verified``; shares of tasks may add up to halves.
        verified: Number of verdicts, or of tasks; also an effective number.

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


class AttemptReward(NamedTuple):
    """The score of one attempt that has a verdict.

    Args:
        task: Tells tasks apart.
        reward: Any finite number.
    """

    task: str | int
    reward: float


_AGREEMENT = 1e-9
"""Difference of means, as a share of the range of rewards, that may come from rounding."""


def mean_reward(rewards: Iterable[AttemptReward]) -> Interval | None:
    """Return the mean of rewards; None without any. Their order does not matter.

    The interval is Wilson's for the place of the mean in the range of the rewards, which holds at
    least 0 and 1. It rests on an effective number of tasks: as many as would give the same variance
    if each reward were one end of the range. The variance is that of a mean over tasks, each with
    all its attempts. With fewer than ``MIN_BOOTSTRAP_TASKS`` tasks, or tasks that all agree, each
    task counts once. Rewards of 0 and 1, one per task, have the interval of their pass rate.

    Source: Kott and Carr, Journal of Official Statistics 13 (1997) 355 (effective sample size).
    """
    found: defaultdict[str | int, list[float]] = defaultdict(list)
    for each in rewards:
        found[each.task].append(each.reward)
    if not found:
        return None
    unit = _unit(each for some in found.values() for each in some)
    by_task = {task: [each / unit for each in some] for task, some in found.items()}
    values = [each for some in by_task.values() for each in some]
    low, high = min(0.0, *values), max(1 / unit, *values)
    mean = min(high, max(low, fsum(values) / len(values)))
    place = (mean - low) / (high - low)
    errors = [fsum(some) - len(some) * mean for some in by_task.values()]
    variance = fsum(error * error for error in errors) / (len(values) * (high - low)) ** 2
    means = [fsum(some) / len(some) for some in by_task.values()]
    tasks: float = len(by_task)
    if tasks >= MIN_BOOTSTRAP_TASKS and max(means) - min(means) > _AGREEMENT * (high - low):
        tasks = place * (1 - place) / variance
    ends = wilson(place * tasks, tasks)
    if ends is None:
        return None
    below, above = (low + end * (high - low) for end in (ends.low, ends.high))
    return Interval(mean * unit, max(low, below) * unit, min(high, above) * unit)


def _unit(rewards: Iterable[float]) -> float:
    """Return the power of two that is not above the largest reward, at least 1.

    In this unit sums and squares stay in the range of a float, and no digit is lost.
    """
    _, exponent = frexp(max(1.0, *map(abs, rewards)))
    return ldexp(1.0, exponent - 1)


def reward_text(reward: Interval) -> str:
    """Return a mean reward with its interval, short whatever its size."""
    value, low, high = (f"{end:.4g}" for end in reward)
    return f"{value} (95 % interval {low} to {high})"


def total_reward(rewards: Iterable[float]) -> float:
    """Return the sum of finite rewards, at most the largest float; their order does not matter."""
    values = list(rewards)
    unit = _unit([0.0, *values])
    most = sys.float_info.max
    return min(most, max(-most, unit * fsum(value / unit for value in values)))


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
