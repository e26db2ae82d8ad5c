"""The sign-flip test: how likely a change is as large, if each task's could have either sign."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from securebench.stats.resampling import FLIPS, flipped_sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
