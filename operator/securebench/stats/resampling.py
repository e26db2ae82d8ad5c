"""Bootstrap: draw as many tasks as there are, with replacement, from the tasks of a run."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SEED = 1
"""Of everything drawn here: the same verdicts have the same interval, wherever it is computed."""

RESAMPLES = 1_000
"""Enough for the second decimal of an interval's ends."""

FLIPS = 10_000
"""Random signs of a sign-flip test; a p-value of 5 % is right to about 0.4 %."""

_TAIL = 0.025

Item = TypeVar("Item")


class Quantiles(NamedTuple):
    """The 2.5 % and 97.5 % quantiles of an estimate."""

    low: float
    high: float


def resamples(counts: Mapping[Item, int]) -> Iterator[Counter[Item]]:
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


def percentile_interval(estimates: Iterable[float]) -> Quantiles:
    """Return the 2.5 % and 97.5 % quantiles of the estimates.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), 13.3.
    """
    ordered = sorted(estimates)
    cut = round(_TAIL * len(ordered))
    return Quantiles(ordered[cut], ordered[-1 - cut])


def _resample(random: Random, ordered: Iterable[tuple[Item, int]]) -> Counter[Item]:
    sample = Counter[Item]()
    draws = items = sum(count for _, count in ordered)
    for item, count in ordered:
        drawn = binomial(random, draws, count, items)
        if drawn:
            sample[item] = drawn
        draws, items = draws - drawn, items - count
    return sample
