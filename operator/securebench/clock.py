"""Time as an argument: clocks, the forms in which times are written, rates and back-off.

Records carry the wall clock; deadlines and waits use the monotonic clock. Pure code is given a
``Clock`` or an ``Instant``; ``SystemClock`` and ``elapsed_seconds`` alone read the machine's clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """What the control plane asks about time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; no setting of the machine's time moves them."""
        ...


class SystemClock:
    """Clocks of the machine."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since some moment; no setting of the machine's time moves them."""
        return time.monotonic()


class Instant(NamedTuple):
    """One moment on both clocks.

    Attributes:
        wall: Seconds since the epoch; compared with times in objects, journal and records.
        monotonic: Seconds since some moment; for waits that a process only remembers.
    """

    wall: float
    monotonic: float

    def wall_at(self, monotonic: float) -> float:
        """Return when that moment is, seconds since the epoch, if nobody sets the clock."""
        return self.wall + monotonic - self.monotonic


def elapsed_seconds() -> float:
    """Return seconds of a monotonic clock that includes suspension of the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_since_epoch(time: str) -> float:
    """Return the time that a text in the form of RFC 3339 names.

    Raises:
        ValueError: It names none.
    """
    return datetime.fromisoformat(time).timestamp()


def rfc3339(seconds: float) -> str:
    """Return the UTC time in the form that Kubernetes writes, e.g. 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(seconds: float) -> str:
    """Return the UTC time with six digits behind the point, e.g. 2026-01-31T12:00:00.250000Z.

    Leases and Events have it; the API server takes no other form there.
    """
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
