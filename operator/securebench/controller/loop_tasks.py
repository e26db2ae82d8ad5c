"""What loops wait for: a change or a time, retries by key; and how their log records name the run.

A loop has one wait (``Wake``). ``RetryQueue`` is modelled on client-go's workqueue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Container, Hashable, Iterable
from contextvars import ContextVar
from typing import Generic, TypeVar

from securebench.clock import Clock, backoff

logger = logging.getLogger(__name__)

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


K = TypeVar("K", bound=Hashable)


class RetryQueue(Generic[K]):
    """Remembers by key when something may be tried again; each key backs off by itself.

    A key names one object for good: a uid, or a name that no other object of the run gets. Success
    is recorded by ``forget``; the next failure of that key counts as its first.

    Args:
        monotonic: Seconds of a clock that no setting of the machine's time moves.
        first_seconds: Pause after the first failure of a key; doubled for each further one.
        limit_seconds: Longest such pause.
    """

    def __init__(
        self, monotonic: Callable[[], float], first_seconds: float, limit_seconds: float
    ) -> None:
        self._monotonic = monotonic
        self._first_seconds = first_seconds
        self._limit_seconds = limit_seconds
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}

    @property
    def keys(self) -> Collection[K]:
        """What was tried, or will be, and is not forgotten."""
        return self._due.keys()

    def add(self, key: K) -> None:
        """Add a key that is due immediately; a key that is backing off keeps its due time."""
        self._due.setdefault(key, -math.inf)

    def begin(self, key: K) -> None:
        """Record the start of a try; earlier failures still count."""
        self._due[key] = -math.inf

    def wait(self, key: K, seconds: float) -> None:
        """Delay a key without counting a failure."""
        self._due[key] = self._monotonic() + seconds

    def retry(self, key: K, at_least_seconds: float | None = None) -> float:
        """Record a failed try.

        Args:
            key: Key of what was tried.
            at_least_seconds: Retry-After from the server, or None.

        Returns:
            The pause before the next try, in seconds.
        """
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        pause = backoff(self._first_seconds, self._limit_seconds, failures)
        pause = max(pause, at_least_seconds or 0.0)
        self.wait(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Remove a key that succeeded or is no longer wanted."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def keep(self, keys: Container[K]) -> None:
        """Forget everything but these."""
        for key in [key for key in self._due if key not in keys]:
            self.forget(key)

    def is_due(self, key: K) -> bool:
        """Whether a key may be tried now."""
        return self._monotonic() >= self._due.get(key, -math.inf)

    def next_after(self, since: float) -> float | None:
        """Return the first time later than ``since`` at which a key is due, or None.

        Args:
            since: Monotonic seconds. Keys due at or before this are skipped: their owner saw them
                and dropped them.
        """
        return min((at for at in self._due.values() if at > since), default=None)


AGAIN_SECONDS = 5.0
"""Between two tries of what the operator cannot start without."""

R = TypeVar("R")


async def until_done(
    what: str, errors: tuple[type[Exception], ...], step: Callable[[], Awaitable[R]]
) -> R:
    """Do something again and again until it succeeds; other errors are raised.

    Args:
        what: What it is about, for logs.
        errors: What is waited out.
        step: Does it.
    """
    while True:
        try:
            return await step()
        except errors as error:
            logger.warning("%s: %s; tried again", what, error)
        await asyncio.sleep(AGAIN_SECONDS)


_RUN: ContextVar[tuple[str, str]] = ContextVar("run", default=("", ""))


def log_as_run(name: str, uid: str) -> None:
    """Name the run in all records that this task, its children and their threads log."""
    _RUN.set((name, uid))


class RunFilter(logging.Filter):
    """Adds ``run`` and ``run_uid`` to records that are about a run."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; every record passes."""
        name, uid = _RUN.get()
        if uid:
            record.run, record.run_uid = name, uid
        return True
