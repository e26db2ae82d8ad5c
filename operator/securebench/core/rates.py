"""Token bucket, exponential back-off and the defaults of retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_ROUNDING: Final = 1e-9
"""In tokens; a caller that waits as long as told must find a whole token despite rounding."""


BACKOFF_SECONDS: Final = 5.0
"""Wait before the first launch after infrastructure trouble; doubled for each further one."""

BACKOFF_LIMIT_SECONDS: Final = 300.0
"""Longest such wait."""

MAX_UNSCHEDULABLE: Final = 8
"""Unschedulable Pods of one run at which nothing new begins; more only load the scheduler."""


_MAX_DOUBLINGS: Final = 64
"""Keeps ``2.0 ** n`` finite; every limit is reached long before."""


def backoff(first_seconds: float, limit_seconds: float, failures: int) -> float:
    """Return the wait in seconds after so many failures in a row, at least one: it doubles."""
    return min(first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS), limit_seconds)


class TokenBucket:
    """Limits a rate and lets short bursts through.

    Args:
        per_second: Tokens that come back per second, above 0.
        burst: Tokens at most, and at the start; at least 1.
        now: Seconds of a clock; one that jumps back gives no tokens and takes none.
    """

    def __init__(self, per_second: float, burst: float, now: Callable[[], float]) -> None:
        self._rate = per_second
        self._burst = max(1.0, burst)
        self._now = now
        self._tokens = self._burst
        self._filled_at = now()

    def take(self) -> float:
        """Take a token if there is one.

        Returns:
            0.0 when a token was taken, else the seconds until there will be one.
        """
        self._fill()
        if self._tokens >= 1 - _ROUNDING:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0
        return (1 - self._tokens) / self._rate

    def reserve(self) -> float:
        """Take a token in any case and return the seconds that the taker must wait for it."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def _fill(self) -> None:
        now = self._now()
        gained = max(0.0, now - self._filled_at) * self._rate
        self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at = now
