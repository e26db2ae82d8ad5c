"""How runs share what the operator bounds: who has least is served first, in turn. Pure.

Max-min fairness over whole Pods: a run gets what it wants as long as that is no more than what
every other run gets that wants more. Nothing is taken away from a run that has more than that.

Source: decision 0067.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Holding(NamedTuple):
    """What one run has of something that is bounded.

    Attributes:
        held: How many it has, at least 0.
        wanted: How many more it would use now, at least 0.
        served: The turn in which it was served last, 0 for never; decides between equals.
    """

    held: int
    wanted: int = 0
    served: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit that all runs share, as seen by one run.

    Attributes:
        limit: How many all runs together may have.
        uid: The run that looks.
        others: What the other runs have, by uid.
        served: The turn in which the run that looks was served last.
    """

    limit: int
    uid: str
    others: Mapping[str, Holding]
    served: int = 0

    def grant(self, held: int, wanted: int) -> int:
        """Return how many more of them the run may take now.

        Args:
            held: How many it has.
            wanted: How many more it would use.
        """
        mine = Holding(held, wanted, self.served)
        return grants(self.limit, {**self.others, self.uid: mine}).get(self.uid, 0)


def grants(limit: int, holdings: Mapping[str, Holding]) -> Mapping[str, int]:
    """Divide what is free.

    Args:
        limit: How many all runs together may have.
        holdings: What each run has and wants, by uid.

    Returns:
        How many more each run may take; one that may take none is left out.

    Invariants:
        The grants are no more than what is free, nor than what is wanted, and as many as both
        allow. Of two runs that want more than they get, neither ends with more than one more than
        the other, unless it had that before.
    """
    free = limit - sum(each.held for each in holdings.values())
    wanting = {uid: each for uid, each in holdings.items() if each.wanted > 0}
    if free <= 0 or not wanting:
        return {}
    if sum(each.wanted for each in wanting.values()) <= free:
        return {uid: each.wanted for uid, each in wanting.items()}
    level = _level(free, wanting)
    given = {uid: _up_to(each, level) for uid, each in wanting.items()}
    next_ones = [uid for uid, each in wanting.items() if _up_to(each, level + 1) > given[uid]]
    next_ones.sort(key=lambda uid: (wanting[uid].served, uid))
    for uid in next_ones[: free - sum(given.values())]:
        given[uid] += 1
    return {uid: count for uid, count in given.items() if count}


def _level(free: int, wanting: Mapping[str, Holding]) -> int:
    """Return the highest number that every run which wants so many can have."""
    low, high = 0, max(each.held + each.wanted for each in wanting.values())
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_up_to(each, middle) for each in wanting.values()) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def _up_to(holding: Holding, level: int) -> int:
    return min(max(level - holding.held, 0), holding.wanted)
