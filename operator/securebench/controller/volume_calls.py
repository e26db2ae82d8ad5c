"""Calls to the results volume: made in threads of their own, and known while they last.

A file server that is away lets a call hang without an error and without an end, as NFS does by
default. Whoever has to tell of that looks here, and makes no call itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

from securebench.files import tell_progress_to

THREADS: Final = 16
"""Calls of the whole operator that can be under way at once. Further ones wait for a thread, and
count as under way; nothing else that the operator does needs one of these."""

ANSWER_SECONDS: Final = 3.0
"""After which a call is late that reads or writes little."""

BULK_SECONDS: Final = 120.0
"""After which a call is late that may read or write much: a pack, a journal, results that are
sealed with a key that a service holds."""

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(THREADS, "volume")


class VolumeCall:
    """One call; times are monotonic seconds.

    Attributes:
        since: When it began, or last told of progress.
        late_at: When it should have returned, or told of progress again.
        has_begun: Whether it has a thread.
    """

    __slots__ = ("_limit_seconds", "has_begun", "late_at", "since")

    def __init__(self, since: float, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self.note_progress(since)
        self.has_begun = False

    def note_progress(self, now: float) -> None:
        """Note that the volume has answered a part of the call; threads may say so."""
        self.since, self.late_at = now, now + self._limit_seconds


class VolumeCalls:
    """The calls of one run, or of the whole operator, that are under way.

    Args:
        whole: Gets them too.
    """

    def __init__(self, whole: VolumeCalls | None = None) -> None:
        self._whole = whole
        self._calls: set[VolumeCall] = set()
        self._is_late = asyncio.Event()

    def add(self, call: VolumeCall) -> None:
        """Note that a call begins."""
        self._calls.add(call)
        if self._whole is not None:
            self._whole.add(call)

    def discard(self, call: VolumeCall) -> None:
        """Note that a call has returned; threads may say so, and more than once."""
        self._calls.discard(call)
        if self._whole is not None:
            self._whole.discard(call)

    def silent_since(self, now: float) -> float | None:
        """Return when the oldest of the late calls began, or None if none is late.

        Args:
            now: Monotonic seconds, as those that are returned.
        """
        late = [call.since for call in tuple(self._calls) if now >= call.late_at]
        return min(late, default=None)

    def note_late(self) -> None:
        """Wake who waits for a late call."""
        self._is_late.set()

    async def wait_until_late(self) -> None:
        """Return when a call has become late since this was called last."""
        await self._is_late.wait()
        self._is_late.clear()


OPERATOR_CALLS: Final = VolumeCalls()
"""Those of the whole process: it has one volume."""

_CALLER: ContextVar[VolumeCalls] = ContextVar("volume_calls", default=OPERATOR_CALLS)


def call_volume_as(calls: VolumeCalls) -> None:
    """Let the calls of this task and its children be among these from now on."""
    _CALLER.set(calls)


class _LateWatch:
    """Wakes who waits for a late call once this one is, however often it tells of progress before.

    Args:
        loop: The event loop of who makes the call.
        calls: Those that the call belongs to.
        call: The call.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, calls: VolumeCalls, call: VolumeCall
    ) -> None:
        self._loop = loop
        self._calls = calls
        self._call = call
        self._timer = loop.call_at(call.late_at, self._look)

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now, again_at = self._loop.time(), self._call.late_at
        if now >= again_at:
            self._calls.note_late()
            again_at = now + ANSWER_SECONDS
        self._timer = self._loop.call_at(again_at, self._look)


async def on_volume(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work that reads or writes little on the volume, in a thread; return what it returns."""
    return await on_volume_within(ANSWER_SECONDS, work, *args, **kwargs)


async def bulk_on_volume(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work that may read or write much on the volume; see ``on_volume``."""
    return await on_volume_within(BULK_SECONDS, work, *args, **kwargs)


async def on_volume_within(
    limit_seconds: float, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do work on the volume in a thread, however long it takes; return what it returns.

    The thread cannot be stopped: a call that is cancelled while it lasts stays under way.

    Args:
        limit_seconds: After which the call is late, counted from its last progress
            (``securebench.files``).
        work: Blocks.
        *args: For ``work``.
        **kwargs: For ``work``.
    """
    return await _begun(limit_seconds, partial(work, *args, **kwargs))


async def surely_on_volume(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on the volume that is done also if its waiter is cancelled; see ``on_volume``.

    Who is cancelled waits no longer, whether the volume answers or not.
    """
    return await asyncio.shield(_begun(ANSWER_SECONDS, partial(work, *args, **kwargs)))


async def open_on_volume(opening: Callable[[], T], closing: Callable[[T], None]) -> T:
    """Open what may be large on the volume; it is closed again if its waiter is cancelled.

    Args:
        opening: Blocks; returns what is open.
        closing: Blocks; gets what nobody waits for any more.
    """
    opened = _begun(BULK_SECONDS, opening)
    try:
        return await asyncio.shield(opened)
    except asyncio.CancelledError:
        opened.add_done_callback(partial(_give_back, closing))
        raise


def _give_back(closing: Callable[[T], None], opened: asyncio.Future[T]) -> None:
    if not opened.cancelled() and opened.exception() is None:
        _begun(ANSWER_SECONDS, partial(closing, opened.result()))


def _begun(limit_seconds: float, work: Callable[[], T]) -> asyncio.Future[T]:
    """Hand work to a thread; cancelling what this returns takes it back if none has begun it."""
    loop, calls = asyncio.get_running_loop(), _CALLER.get()
    call = VolumeCall(loop.time(), limit_seconds)

    def done() -> T:
        call.has_begun = True
        tell_progress_to(lambda: call.note_progress(loop.time()))
        try:
            return work()
        finally:
            calls.discard(call)

    def forget(_: asyncio.Future[T]) -> None:
        watching.cancel()
        if not call.has_begun:
            calls.discard(call)

    calls.add(call)
    watching = _LateWatch(loop, calls, call)
    result = loop.run_in_executor(_THREADS, partial(copy_context().run, done))
    result.add_done_callback(forget)
    return result
