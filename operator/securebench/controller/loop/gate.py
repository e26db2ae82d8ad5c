"""When a run may be worked on: not while it is suspended, and not before it has a place."""

from __future__ import annotations

import asyncio
import contextlib

from securebench.controller.loop.desired_state import DesiredState
from securebench.controller.loop.places import Places
from securebench.controller.reporting.publish import SUSPENDED_WORDS, Publisher
from securebench.core.clock import Clock
from securebench.run.api.conditions import Reason


class Gate:
    """Lets one run in and out.

    Args:
        places: Of this operator.
        uid: The run.
        desired: What the user wants.
        publisher: Says why the run waits.
        clock: For the deadline of a suspended run.
    """

    def __init__(
        self, places: Places, uid: str, desired: DesiredState, publisher: Publisher, clock: Clock
    ) -> None:
        self._places = places
        self._uid = uid
        self._desired = desired
        self._publisher = publisher
        self._clock = clock
        self._is_in = False

    async def enter(self, started_at: float | None, *, may_hold: bool, is_due: bool) -> None:
        """Return when the run has a place; says meanwhile what it waits for.

        Args:
            started_at: When the run began, None before that; its deadline counts from then.
            may_hold: Whether nothing of the run is under way, so that it waits while suspended.
            is_due: Whether it was worked on when this process began.

        Raises:
            ClusterError: The API server refused the status.
        """
        changed = asyncio.Event()
        self._desired.on_change = changed.set
        while not self._is_in:
            changed.clear()
            is_ending = self._desired.is_ending(started_at, self._clock.now())
            until = None
            if may_hold and self._desired.is_suspended and not is_ending:
                self.leave()
                until = self._desired.deadline(started_at)
                await self._publisher.announce(Reason.SUSPENDED, SUSPENDED_WORDS)
            elif self._places.take(self._uid, changed.set, is_ending=is_ending, is_due=is_due):
                self._is_in = True
                return
            else:
                await self._publisher.announce(Reason.QUEUED, self._queued())
            await self._wait(changed, until)

    def leave(self) -> None:
        """Give the place back, or the place in the queue."""
        self._is_in = False
        self._places.leave(self._uid)

    def _queued(self) -> str:
        return (
            f"waiting for a place: {self._places.limit} runs are active, and "
            "settings.maxActiveRuns allows no more"
        )

    async def _wait(self, changed: asyncio.Event, until: float | None) -> None:
        seconds = None if until is None else max(until - self._clock.now(), 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await changed.wait()
