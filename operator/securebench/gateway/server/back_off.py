"""Whether the model provider makes a launch wait, from what became of its calls.

The gateway repeats no call: the agent's CLI does, after a pause of its own or the provider's
Retry-After. Its first failed call in a row begins the wait; an answer ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import Final

from securebench.clock import Clock
from securebench.protocol.gateway import MAX_LISTED_WAITS, ProviderWait, ProviderWaits

MAX_RETRY_AFTER_SECONDS: Final = 24 * 3600.0
"""Upper bound of a Retry-After."""
STALE_AFTER_SECONDS: Final = 300.0
"""A launch that has not asked again for so long, beyond Retry-After, may have ended unseen."""


class BackOff:
    """The wait of one launch for its model provider.

    Args:
        pod: Name of the launch's Pod.
        clock: Wall clock.
        changed: Called when the wait begins, changes or ends.
    """

    def __init__(self, pod: str, clock: Clock, changed: Callable[[], None]) -> None:
        self._pod = pod
        self._clock = clock
        self._changed = changed
        self._wait: ProviderWait | None = None
        self._failed_at = 0.0
        self._is_answered = False

    def call_failed(self, status: int, retry_after: str) -> None:
        """Note that a call failed; the wait begins, or goes on with the next pause.

        Args:
            status: HTTP status of its answer, 0 for none.
            retry_after: Value of the header Retry-After, or empty.
        """
        now = self._failed_at = self._clock.now()
        pause = retry_seconds(retry_after, now)
        until = None if pause is None else now + pause
        since = now if self._wait is None else self._wait.since
        self._wait = ProviderWait(self._pod, since, status, until)
        self._is_answered = False
        self._changed()

    def answer_began(self) -> None:
        """Note that the provider answers a call; if that answer breaks, the wait goes on."""
        self._answered()

    def ended(self) -> None:
        """Note that a call was answered to its end, or that the launch has ended."""
        self._answered()
        self._wait = None

    def wait(self) -> ProviderWait | None:
        """Return the wait, or None while the launch does not wait."""
        wait = self._wait
        if wait is None or self._is_answered:
            return None
        is_told = self._clock.now() < max(self._failed_at, wait.until or 0.0) + STALE_AFTER_SECONDS
        return wait if is_told else None

    def _answered(self) -> None:
        if self._wait is not None and not self._is_answered:
            self._is_answered = True
            self._changed()


def retry_seconds(value: str, now: float) -> float | None:
    """Return the seconds that a Retry-After asks for, or None for a value without sense.

    Args:
        value: Seconds or a date, as the header has it.
        now: Seconds since the epoch.
    """
    text = value.strip()
    if text.isascii() and text.isdecimal():
        seconds = float(text[:10])
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def waits_of(launches: Iterable[BackOff]) -> ProviderWaits:
    """Return the launches that wait, the longest first."""
    found = [wait for launch in launches if (wait := launch.wait()) is not None]
    found.sort(key=attrgetter("since", "pod"))
    return ProviderWaits(len(found), tuple(found[:MAX_LISTED_WAITS]))
