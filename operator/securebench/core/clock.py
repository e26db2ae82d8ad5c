"""Time as an argument: the wall clock of records, the monotonic clock of deadlines."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple, Protocol


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
