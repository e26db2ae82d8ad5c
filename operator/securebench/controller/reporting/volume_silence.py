"""What a status says while the results volume does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from securebench.clock import Clock
from securebench.controller.volume_calls import VolumeCalls
from securebench.errors import ClusterError
from securebench.run.observe.waiting import WaitReason, volume_silent

logger = logging.getLogger(__name__)

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


async def tell_while_late(
    calls: VolumeCalls, tell: Callable[[], Awaitable[bool]], who: str
) -> NoReturn:
    """Tell of calls that hang, also while all else of the object waits for them; until cancelled.

    Args:
        calls: Those of the object.
        tell: Publishes since when one is late, or that none is any more; returns whether to call
            it again in a moment. It is called again too if it fails, whatever the reason.
        who: Kind and name of the object, for logs.
    """
    while True:
        if await _is_to_look_again(tell, who):
            await asyncio.sleep(LOOK_SECONDS)
        else:
            await calls.wait_until_late()


async def _is_to_look_again(tell: Callable[[], Awaitable[bool]], who: str) -> bool:
    try:
        return await tell()
    except ClusterError as error:
        logger.warning("status of %s was not written: %s", who, error)
    except Exception:
        logger.exception("status of %s was not written", who)
    return True
