"""What a status says while the results volume does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from securebench.controller.runtime.volume_calls import VolumeCalls
from securebench.core.clock import Clock
from securebench.run.observe.waiting import WaitReason, volume_silent

LOOK_SECONDS = 1.0
"""Between two looks whether a call to the volume still lasts that the status tells of."""


class VolumeSilence:
    """Since when a call of one object is late, in words that stay the same meanwhile.

    Args:
        calls: Those of the object.
        clock: The wall clock.
        who: ``run`` or ``suite``.
    """

    def __init__(self, calls: VolumeCalls, clock: Clock, who: str) -> None:
        self._calls = calls
        self._clock = clock
        self._who = who
        self._since: float | None = None
        self._began_at = 0.0

    def finding(self) -> WaitReason | None:
        """Return what the object waits for; None while no call is late."""
        now = self._clock.monotonic()
        since = self._calls.silent_since(now)
        if since is not None and since != self._since:
            self._began_at = self._clock.now() - (now - since)
        self._since = since
        return None if since is None else volume_silent(self._began_at, self._who)


async def tell_while_late(calls: VolumeCalls, tell: Callable[[], Awaitable[bool]]) -> NoReturn:
    """Tell of calls that hang, also while all else of the object waits for them; until cancelled.

    Args:
        calls: Those of the object.
        tell: Publishes since when one is late, or that none is any more; returns whether to call
            it again in a moment.
    """
    while True:
        if await tell():
            await asyncio.sleep(LOOK_SECONDS)
        else:
            await calls.wait_until_late()
