"""What the loops of runs and suites share: tasks, one wait, retries by key, the latest spec.

Each object has one loop, which begins again a while after it failed. A loop has one wait
(``Wake``), for a change or for a time. ``RetryQueue`` is modelled on client-go's workqueue.
``LatestSpec`` holds the newest spec that this process has seen. Each log record of a run's task
names the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import (
    Callable,
    Collection,
    Container,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from securebench.clock import Clock, backoff
from securebench.json_values import object_at
from securebench.run.decide.controls import DesiredState, desired_state

logger = logging.getLogger(__name__)


PAUSE_SECONDS = 60.0
"""Before a loop that failed begins again."""

Loop = Callable[[], Coroutine[Any, Any, None]]
"""Returns what works on an object until it is cancelled or there is nothing more to do."""


def is_gone(kind: str | None, body: Mapping[str, object]) -> bool:
    """Whether an event says that an object is deleted, or that it is about to be.

    Args:
        kind: ADDED, MODIFIED, DELETED, or None for the first listing.
        body: The object.
    """
    return kind == "DELETED" or bool(object_at(body, "metadata").get("deletionTimestamp"))


@dataclass(slots=True)
class _Started:
    title: str
    loop: Loop
    task: asyncio.Task[None]


class LoopTasks:
    """Holds the loops of all objects of a kind, by uid.

    Args:
        kind: How an object is called in logs and names of tasks: ``run`` or ``suite``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._started: dict[str, _Started] = {}

    @property
    def active(self) -> int:
        """How many objects have a loop now."""
        return sum(1 for each in self._started.values() if not each.task.done())

    @property
    def failed(self) -> int:
        """How many objects have a loop that failed and has not begun again yet."""
        return sum(1 for each in self._started.values() if _failure_of(each.task) is not None)

    def start(self, uid: str, name: str, loop: Loop) -> None:
        """Start the loop of an object, unless it runs.

        Args:
            uid: UID of the object.
            name: Name of the object, for logs.
            loop: Is called again after a failure.
        """
        known = self._started.get(uid)
        if known is None or known.task.done():
            self._begin(uid, f"{self._kind} {name}", loop)

    def stop(self, uid: str) -> None:
        """Cancel the loop of an object; nothing happens without one."""
        known = self._started.pop(uid, None)
        if known is not None:
            known.task.cancel()

    async def close(self) -> None:
        """Stop all loops and wait for their ends."""
        tasks = [each.task for each in self._started.values()]
        self._started.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, uid: str, title: str, loop: Loop) -> None:
        task = asyncio.create_task(loop(), name=title)
        task.add_done_callback(lambda ended: self._note_end(uid, ended))
        self._started[uid] = _Started(title, loop, task)

    def _note_end(self, uid: str, task: asyncio.Task[None]) -> None:
        """Have a loop begun again that ended with an error which it did not handle itself."""
        error = _failure_of(task)
        if error is None:
            return
        logger.error("%s: its loop failed and starts again later", task.get_name(), exc_info=error)
        later = asyncio.get_running_loop().call_later
        later(PAUSE_SECONDS, self._begin_again, uid, task)

    def _begin_again(self, uid: str, failed: asyncio.Task[None]) -> None:
        known = self._started.get(uid)
        if known is not None and known.task is failed:
            self._begin(uid, known.title, known.loop)


def _failure_of(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error that ended a task, or None."""
    return task.exception() if task.done() and not task.cancelled() else None


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


class LatestSpec:
    """Takes newer specs of a run in and tells those who wait for one.

    Args:
        spec: As the API server has it.
        generation: Generation of that spec.
    """

    def __init__(self, spec: Mapping[str, object], generation: int) -> None:
        self._raw = spec
        self._generation = generation
        self._desired: DesiredState | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def generation(self) -> int:
        """The generation of the spec."""
        return self._generation

    @property
    def desired(self) -> DesiredState:
        """What the spec asks for; parsed on first use, as most runs that are listed have ended."""
        if self._desired is None:
            self._desired = desired_state(self._raw, self._generation)
        return self._desired

    def update(self, spec: Mapping[str, object], generation: int) -> None:
        """Take a newer spec in; the fields that may not change the API server has checked."""
        if generation > self._generation:
            self._raw, self._generation, self._desired = spec, generation, None
            for listener in self._listeners:
                listener()

    @contextlib.contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call a function for every newer spec inside the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)


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
