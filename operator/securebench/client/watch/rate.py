"""How fast a run goes, from what was seen of it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_CHANGES = 30
"""Changes of the count that are looked back at: a run may have fast and slow parts."""


class _Seen(NamedTuple):
    done: int
    at: float


class Rate:
    """Finished attempts per second over the last changes; the clock is the caller's."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=_CHANGES)

    def note(self, done: int, at: float) -> None:
        """Note how many attempts have finished at a time in seconds."""
        if not self._seen or self._seen[-1].done != done:
            self._seen.append(_Seen(done, at))

    def per_second(self, now: float) -> float | None:
        """Return the rate, or None before the first observed completion."""
        if not self._seen:
            return None
        first, last = self._seen[0], self._seen[-1]
        if last.done <= first.done or now <= first.at:
            return None
        return (last.done - first.done) / (now - first.at)

    def seconds_left(self, total: int, now: float) -> float | None:
        """Return how long the rest takes at this rate, or None if that is unknown."""
        rate = self.per_second(now)
        if rate is None or total <= 0:
            return None
        return max(total - self._seen[-1].done, 0) / rate
