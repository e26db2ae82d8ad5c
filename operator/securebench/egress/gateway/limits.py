"""Rates."""

from __future__ import annotations

import time
from collections.abc import Callable


class Bucket:
    """A token bucket: so many at once, then so many a second.

    Args:
        per_second: Sustained rate, above 0.
        burst: Largest number without a wait, at least 1.
        monotonic: Seconds of a clock that never goes back.
    """

    def __init__(
        self, per_second: float, burst: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = per_second
        self._burst = max(1.0, burst)
        self._monotonic = monotonic
        self._tokens = self._burst
        self._at = monotonic()

    def take(self) -> float:
        """Take one and return the seconds that the taker must wait: 0 within the burst."""
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)
