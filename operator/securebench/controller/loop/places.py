"""Bounds how many runs are worked on at the same time."""

from __future__ import annotations

from collections.abc import Callable

ENDING_PLACES = 4
"""Places beyond the bound for runs that only have to be ended, so that a cancelled run never waits
behind long ones."""


class Places:
    """The places of one operator; who came first is served first.

    Args:
        limit: Places for runs that go on.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: set[str] = set()
        self._waiting: dict[str, Callable[[], None]] = {}

    @property
    def limit(self) -> int:
        """Places for runs that go on."""
        return self._limit

    @property
    def taken(self) -> int:
        """How many runs have a place."""
        return len(self._taken)

    def take(
        self, uid: str, wake: Callable[[], None], *, is_ending: bool = False, is_due: bool = False
    ) -> bool:
        """Take a place, or join the queue.

        Args:
            uid: The run.
            wake: Called when it should ask again.
            is_ending: Whether the run only has to be ended.
            is_due: Whether the run had its place before this process began.

        Returns:
            Whether it has a place now.
        """
        waiting = self._waiting.setdefault(uid, wake)
        is_first = next(iter(self._waiting.values())) is waiting
        is_next = is_first and self.taken < self._limit
        if not (is_due or is_next or (is_ending and self.taken < self._limit + ENDING_PLACES)):
            return False
        del self._waiting[uid]
        self._taken.add(uid)
        self._wake_all()
        return True

    def leave(self, uid: str) -> None:
        """Give the place, or the place in the queue, to those who wait."""
        self._taken.discard(uid)
        self._waiting.pop(uid, None)
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._waiting.values():
            wake()
