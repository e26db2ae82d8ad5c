"""Bootstrap: draw as many tasks as there are, with replacement, from the tasks of a run."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SEED = 1
"""Of every bootstrap: the same verdicts have the same interval, wherever it is computed."""

RESAMPLES = 1_000
"""Enough for the second decimal of an interval's ends; 10,000 tasks take a few seconds."""

_TAIL = 0.025

Kind = TypeVar("Kind")


class Quantiles(NamedTuple):
    """The 2.5 % and 97.5 % quantiles of an estimate."""

    low: float
    high: float


def resamples(kinds: Mapping[Kind, int]) -> Iterator[Counter[Kind]]:
    """Yield ``RESAMPLES`` samples of as many items as there are, each counted by kind.

    Args:
        kinds: Number of items by kind, at least one item. Their order does not matter.
    """
    random = Random(SEED)  # noqa: S311 - statistics, no secret
    ordered = sorted(kinds)  # type: ignore[type-var]
    cumulative = list(accumulate(kinds[kind] for kind in ordered))
    for _ in range(RESAMPLES):
        yield Counter(random.choices(ordered, cum_weights=cumulative, k=cumulative[-1]))


def percentile_interval(estimates: Iterable[float]) -> Quantiles:
    """Return the 2.5 % and 97.5 % quantiles of the estimates.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), 13.3.
    """
    ordered = sorted(estimates)
    cut = round(_TAIL * len(ordered))
    return Quantiles(ordered[cut], ordered[-1 - cut])
