"""A queue in which parties take turns, however much each of them brings."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnQueue(Generic[T]):
    """Serves one item of each party after the other; those of one party in their order.

    A party that comes anew is served after all that are there, once each.
    """

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)

    def put(self, party: str, item: T) -> None:
        """Take an item in, as the last one of its party."""
        self._items.setdefault(party, deque()).append(item)

    def take(self) -> T:
        """Take the next item out; the party is served again after all others.

        Raises:
            IndexError: Nothing waits.
        """
        if not self._items:
            raise IndexError("nothing waits")
        party = next(iter(self._items))
        items = self._items.pop(party)
        item = items.popleft()
        if items:
            self._items[party] = items
        return item

    def drop(self, party: str, item: T) -> None:
        """Take an item out that needs no turn any more; it may be gone already."""
        items = self._items.get(party, deque())
        if item in items:
            items.remove(item)
            if not items:
                del self._items[party]
