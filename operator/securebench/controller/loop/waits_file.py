"""Keeps the file of what a run's launches wait for, which those who watch the run are told."""

from __future__ import annotations

import logging
import math

from securebench.clock import Clock
from securebench.controller.volume.store import RunStore, read_launch_waits, write_launch_waits
from securebench.controller.volume_calls import on_volume
from securebench.protocol.launch_waits import SharedWait
from securebench.run.decide.decision_cache import LaunchPods
from securebench.run.decide.reconcile import ObservedState
from securebench.run.decide.waits import launch_waits

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Least time between two looks, hence between two writes."""

RETRY_SECONDS = 30.0
"""Pause after a write that failed."""


class WaitsFile:
    """The file of one run. It is written on a change only; its loss changes no decision.

    Args:
        store: The run's folder.
        clock: For pauses, its monotonic time.
    """

    def __init__(self, store: RunStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._written: tuple[SharedWait, ...] | None = None
        self._next_at = -math.inf
        self._due_at: float | None = None

    def due_at(self) -> float | None:
        """Return when the next look is due without an event, monotonic seconds, or None."""
        return self._due_at

    async def update(self, observed: ObservedState, live: LaunchPods) -> None:
        """Write what launches wait for, if that has changed since the last look.

        Args:
            observed: The input of a pass.
            live: Pods of live launches after it.
        """
        if self._written == () and _is_quiet(observed, live):
            self._due_at = None
            return
        now = self._clock.monotonic()
        if now < self._next_at:
            self._due_at = self._next_at
            return
        waits, changes_at = launch_waits(
            live, observed.pods, observed.history, observed.network, observed.writes, observed.now
        )
        self._next_at = now + LOOK_SECONDS
        self._due_at = None
        if changes_at is not None:
            self._due_at = max(now + changes_at - observed.now, self._next_at)
        await self._write(waits)

    async def clear(self) -> None:
        """Write that nothing waits, if the file says something else."""
        self._due_at = None
        await self._write(())

    async def _write(self, waits: tuple[SharedWait, ...]) -> None:
        try:
            if self._written is None:
                self._written = await on_volume(read_launch_waits, self._store.folder)
            if waits != self._written:
                await on_volume(write_launch_waits, self._store, waits)
                self._written = waits
        except OSError as error:
            logger.warning("what the launches of a run wait for cannot be written: %s", error)
            self._next_at = self._due_at = self._clock.monotonic() + RETRY_SECONDS


def _is_quiet(observed: ObservedState, live: LaunchPods) -> bool:
    """Whether no launch can wait for anything."""
    network = observed.network
    return not live.starting and network.is_gateway_ready and not network.provider.longest
