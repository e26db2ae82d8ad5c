"""Admission of runs: one is active only with a slot, and not while it is suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from securebench.clock import Clock
from securebench.controller.loop_tasks import LatestSpec, wait_until_set
from securebench.controller.reporting.publish import Publisher
from securebench.run.api.conditions import Reason
from securebench.run.decide.waits import SUSPENDED_MESSAGE

ENDING_SLOTS = 4
"""Slots beyond the bound for runs that only have to be ended, so that a cancelled run never waits
behind long ones."""


class RunSlots:
    """The slots of one operator; who came first is served first.

    Args:
        limit: Slots for active runs.
        turn_seconds: For how long a run keeps its slot while others wait for one.
        clock: Says since when runs have their slots.
    """

    def __init__(self, limit: int, turn_seconds: float, clock: Clock) -> None:
        self._limit = limit
        self._turn_seconds = turn_seconds
        self._clock = clock
        self._taken: dict[str, float] = {}
        self._waiting: dict[str, Callable[[], None]] = {}

    @property
    def limit(self) -> int:
        """Slots for active runs."""
        return self._limit

    @property
    def taken(self) -> int:
        """How many runs have a slot."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        """How many runs wait for a slot."""
        return len(self._waiting)

    def try_acquire(
        self,
        uid: str,
        wake: Callable[[], None],
        *,
        is_ending: bool = False,
        is_active: bool = False,
    ) -> bool:
        """Take a slot, or join the queue.

        Args:
            uid: The run.
            wake: Called when it should ask again, instead of the one before; its place stays.
            is_ending: Whether the run only has to be ended.
            is_active: Whether the run has begun and is not parked; it never queues.

        Returns:
            Whether it has a slot now.
        """
        self._waiting[uid] = wake
        is_next = next(iter(self._waiting)) == uid and self.taken < self._limit
        if not (is_active or is_next or (is_ending and self.taken < self._limit + ENDING_SLOTS)):
            return False
        del self._waiting[uid]
        self._taken[uid] = self._clock.now()
        self._wake_all()
        return True

    def is_turn_over(self, uid: str) -> bool:
        """Whether a run gives its slot to one that waits, once nothing of it is under way.

        Those that have had theirs longest give it, as many as others wait for one.
        """
        needed = len(self._waiting) - max(self._limit - self.taken, 0)
        if needed <= 0 or uid not in self._taken:
            return False
        oldest = sorted(self._taken, key=lambda each: (self._taken[each], each))[:needed]
        return uid in oldest and self._clock.now() >= self._taken[uid] + self._turn_seconds

    def release(self, uid: str) -> None:
        """Give the slot, or the place in the queue, to those who wait."""
        self._taken.pop(uid, None)
        self._waiting.pop(uid, None)
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._waiting.values():
            wake()


class SlotAdmission:
    """Admits one run: waits for a slot and gives it back.

    Args:
        slots: Slots of this operator.
        uid: The run.
        spec: The latest one of the run.
        publisher: Says why the run waits.
        clock: For the deadline of a suspended run.
    """

    def __init__(
        self, slots: RunSlots, uid: str, spec: LatestSpec, publisher: Publisher, clock: Clock
    ) -> None:
        self._slots = slots
        self._uid = uid
        self._spec = spec
        self._publisher = publisher
        self._clock = clock
        self._is_in = False

    async def enter(self, started_at: float | None, *, is_active: bool) -> None:
        """Return when the run has a slot; publish what it waits for meanwhile.

        Args:
            started_at: When the run began, None before that; its deadline counts from then.
            is_active: Whether the run has begun and is not parked: it does not queue, and ends what
                is under way also while it is suspended.

        Raises:
            ClusterError: The API server refused the status.
        """
        changed = asyncio.Event()
        with self._spec.notifying(changed.set):
            while not self._is_in:
                changed.clear()
                await self._try_enter(changed, started_at, is_active=is_active)

    def is_turn_over(self) -> bool:
        """Whether the run has to let another one have its slot."""
        return self._slots.is_turn_over(self._uid)

    def leave(self) -> None:
        """Give up the slot, or the place in the queue."""
        self._is_in = False
        self._slots.release(self._uid)

    async def _try_enter(
        self, changed: asyncio.Event, started_at: float | None, *, is_active: bool
    ) -> None:
        desired = self._spec.desired
        is_ending = desired.is_ending(started_at, self._clock.now())
        if not is_active and desired.is_suspended and not is_ending:
            self.leave()
            await self._publisher.announce(Reason.SUSPENDED, SUSPENDED_MESSAGE)
        elif self._slots.try_acquire(
            self._uid, changed.set, is_ending=is_ending, is_active=is_active
        ):
            self._is_in = True
            return
        else:
            await self._publisher.announce(Reason.QUEUED, self._queued())
        deadline = None if is_ending else desired.deadline(started_at)
        await self._wait(changed, deadline, self._publisher.due_at())

    def _queued(self) -> str:
        return (
            f"waiting for a slot: {self._slots.limit} runs are active, and "
            "settings.maxActiveRuns allows no more"
        )

    async def _wait(
        self, changed: asyncio.Event, deadline: float | None, due_at: float | None
    ) -> None:
        waits = [deadline - self._clock.now()] if deadline is not None else []
        waits += [due_at - self._clock.monotonic()] if due_at is not None else []
        seconds = max(min(waits), 0.0) if waits else None
        await wait_until_set(changed, seconds)
