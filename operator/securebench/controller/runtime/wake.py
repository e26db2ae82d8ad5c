"""The one wait of a run loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from securebench.core.clock import Clock

FALLBACK_SECONDS = 30.0
"""A loop runs at least this often, so that a lost event cannot stop it for long."""

MIN_WAIT_SECONDS = 0.05
"""A loop waits at least so long for an event, so that a time in the past cannot make it spin."""


class Wake:
    """Waits for a change or a time.

    Args:
        clock: Clock of this process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = asyncio.Event()

    def set(self) -> None:
        """Say that something has changed."""
        self._changed.set()

    def clear(self) -> None:
        """Clear the flag before observing."""
        self._changed.clear()

    async def wait(self, times: Iterable[float | None], dues: Iterable[float | None] = ()) -> None:
        """Return when something has changed, or at the first of some times.

        Args:
            times: Seconds since the epoch, or None.
            dues: Monotonic seconds, or None.
        """
        now, monotonic = self._clock.now(), self._clock.monotonic()
        waits = [
            *(at - now for at in times if at is not None),
            *(at - monotonic for at in dues if at is not None),
        ]
        seconds = min(max(min(waits, default=FALLBACK_SECONDS), MIN_WAIT_SECONDS), FALLBACK_SECONDS)
        await wait_until_set(self._changed, seconds)


async def wait_until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Return when an event is set, or after some seconds; None for no limit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
