"""The life cycle of runs in this process: queued, prepared, looped, ended.

A run is active only with a slot, and not while it is suspended. A run that had begun and
whose spec or pack this version refuses ends without a plan: there are no digests, labels or tasks,
so open attempts get no record. Finished attempts are in the journal with the digests of their
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from securebench.clock import Clock, backoff, seconds_since_epoch
from securebench.cluster.port import ObjectKind
from securebench.controller.binding import prepare
from securebench.controller.context import Context, RunObject, run_object
from securebench.controller.loop_tasks import log_as_run, wait_until_set
from securebench.controller.metrics import RUN_RETRIES
from securebench.controller.object_loop import (
    RETRY_LIMIT_SECONDS,
    LatestObject,
    ObjectLoop,
    ObjectSupervisor,
)
from securebench.controller.publish import Publisher, sealed
from securebench.controller.run_ledger import RunLedger
from securebench.controller.run_loop import RunLoop
from securebench.controller.sealing import Exported, seal_run
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import on_volume, open_on_volume, surely_on_volume
from securebench.errors import (
    ConfigErrors,
    InvalidInputError,
    InvariantViolationError,
    MissingInputError,
    PackError,
    PackImageMissingError,
    PlanChangedError,
    RegistryUnavailableError,
)
from securebench.json_values import number_at, object_at, text_at
from securebench.names import RUN_UID_LABEL
from securebench.run.api.status import Reason
from securebench.run.decide.controls import DesiredState
from securebench.run.decide.waits import SUSPENDED_MESSAGE
from securebench.run.layout import gateway_name
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import RunPlan
from securebench.run.state.entries import RunEnded
from securebench.run.state.history import whole_history

logger = logging.getLogger(__name__)


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


INPUT_POLL_SECONDS = 2.0
"""Polling interval for a ConfigMap, a Secret or a folder that a new run names. For an image that
its registry does not have yet: the first pause, doubled up to ``RETRY_LIMIT_SECONDS``."""

_ASKED_AGAIN = (
    f"; the registry is asked again after {INPUT_POLL_SECONDS:g} seconds, then with doubled pauses"
    f" of at most {RETRY_LIMIT_SECONDS:g} seconds"
)


QUEUED_MESSAGE = (
    "waiting for a slot: {limit} runs are active, and settings.maxActiveRuns allows no more"
)


class RunLifecycle(ObjectLoop[RunObject]):
    """Drives one run until it has ended, across errors, suspension and lost slots.

    Args:
        slots: Limit the number of active runs.
    """

    def __init__(self, context: Context, slots: RunSlots, run: RunObject) -> None:
        latest = LatestObject(run)
        self._publisher = Publisher(context, latest)
        super().__init__(context, latest, self._publisher)
        self._context = context
        self._run = run
        self._is_parked = False
        self._started_at: float | None = None
        self._give_up_at: float | None = None
        self._image_misses = 0
        self._store = RunStore(context.settings.data_root, run.uid, context.lead)
        self._slots = slots
        self._is_in = False

    async def run(self) -> None:
        """Return when the run is deleted, or has ended and its status covers the latest spec."""
        log_as_run(self._run.name, self._run.uid)
        await super().run()

    def leave(self) -> None:
        """Give back the slot, and the share of what all runs have."""
        self._context.capacity.unregister(self._run.uid)
        self.give_way()

    def give_way(self) -> None:
        """Give up the slot, or the place in the queue; a run that has begun never queues."""
        self._is_in = False
        self._slots.release(self._run.uid)

    def note_retry(self, reason: Reason) -> None:
        """Count a try that failed."""
        RUN_RETRIES.labels(reason.value).inc()

    async def announce(self, reason: Reason, message: str) -> None:
        """Publish what holds the run up."""
        await self._publisher.announce(reason, message)

    @property
    def _desired(self) -> DesiredState:
        return self.latest.object.desired

    async def work(self) -> bool:
        """Run until the run ends or has to wait; return whether it has ended."""
        final = await on_volume(self._store.read_final_status)
        if final is not None:
            await self._publisher.repeat(final)
            return True
        has_begun = await on_volume(self._store.exists)
        parked = await on_volume(self._store.read_parked)
        if parked is not None:
            self._is_parked, self._started_at = True, number_at(parked, "started_at")
        # A run that has begun may have Pods, which cost resources: it never queues behind others.
        is_active = has_begun and not self._is_parked
        await self._admit(is_active=is_active)
        if parked is not None:
            await on_volume(self._store.unpark)
        try:
            plan = await prepare(self._context, self.latest.object)
        except InvalidInputError as error:
            if isinstance(error, MissingInputError):
                seconds_left = self._input_seconds_left()
                if seconds_left > 0:
                    await self._wait_for_input(error, seconds_left)
                    return False
            reason = Reason.PACK_INVALID if is_pack_error(error) else Reason.INVALID_SPEC
            await self._end_unplanned(reason, str(error))
            return True
        except RegistryUnavailableError as error:
            stop = self._desired.stop_reason(None, self._context.clock.now())
            if stop is None:
                raise
            await self._end_unplanned(stop[0], f"{stop[1]}; {error.reason}")
            return True
        if plan.mismatch:
            return await self._end_unreadable(plan)
        return await self._run_loop(plan)

    async def _admit(self, *, is_active: bool) -> None:
        """Return when the run has a slot; publish what it waits for meanwhile.

        Args:
            is_active: Whether the run has begun and is not parked: it does not queue, and ends what
                is under way also while it is suspended.

        Raises:
            ClusterError: The API server refused the status.
        """
        changed = asyncio.Event()
        with self.latest.notifying(changed.set):
            while not self._is_in:
                changed.clear()
                await self._try_to_enter(changed, is_active=is_active)

    async def _try_to_enter(self, changed: asyncio.Event, *, is_active: bool) -> None:
        desired, started_at = self._desired, self._started_at
        is_ending = desired.is_ending(started_at, self._clock.now())
        if not is_active and desired.is_suspended and not is_ending:
            self.give_way()
            await self._publisher.announce(Reason.SUSPENDED, SUSPENDED_MESSAGE)
        elif self._slots.try_acquire(
            self._run.uid, changed.set, is_ending=is_ending, is_active=is_active
        ):
            self._is_in = True
            return
        else:
            queued = QUEUED_MESSAGE.format(limit=self._slots.limit)
            await self._publisher.announce(Reason.QUEUED, queued)
        deadline = None if is_ending else desired.deadline(started_at)
        due_at = self._publisher.due_at()
        waits = [deadline - self._clock.now()] if deadline is not None else []
        waits += [due_at - self._clock.monotonic()] if due_at is not None else []
        await wait_until_set(changed, max(min(waits), 0.0) if waits else None)

    def _input_seconds_left(self) -> float:
        """Return how long the run still waits for a missing input, counted from the first miss.

        0 for a run that is to end.
        """
        if self._desired.is_ending(None, self._clock.now()):
            return 0.0
        if self._give_up_at is None:
            self._give_up_at = self._clock.monotonic() + self._context.settings.input_wait_seconds
        return self._give_up_at - self._clock.monotonic()

    async def _wait_for_input(self, error: MissingInputError, seconds_left: float) -> None:
        """Wait until the next poll for a missing input; the last poll is at the end of the time."""
        seen = self.latest.version
        limit = f"{self._context.settings.input_wait_seconds:g}"
        message = f"{error.missing}; the run waits for it for up to {limit} seconds"
        pause = INPUT_POLL_SECONDS
        if isinstance(error, PackImageMissingError):
            self._image_misses += 1
            pause = backoff(INPUT_POLL_SECONDS, RETRY_LIMIT_SECONDS, self._image_misses)
            message += _ASKED_AGAIN
        await self.report(Reason.INPUT_MISSING, message)
        self.give_way()
        await self.pause(min(pause, seconds_left), seen)

    async def _run_loop(self, plan: RunPlan) -> bool:
        context = self._context
        ledger = await RunLedger.open(plan, self._store, context.clock)
        try:
            self._started_at = ledger.history.started_at
            self._is_parked = False
            loop = RunLoop(
                context,
                ledger,
                self.latest,
                self._publisher,
                partial(self._slots.is_turn_over, self._run.uid),
            )
            if ledger.history.epoch == 1:
                await self._publisher.started(plan)
            if not await loop.run():
                self._is_parked = True
                await on_volume(self._store.park, self._started_at)
                self.leave()
                return False
            await on_volume(self._store.write_final_status, self._publisher.written)
        finally:
            await ledger.close()
        return True

    async def _end_unreadable(self, plan: RunPlan) -> bool:
        """End a run of another version if its user or deadline demands it.

        Raises:
            PlanChangedError: It is to continue.
        """
        binding = await on_volume(self._store.binding)
        started_at = seconds_since_epoch(text_at(object_at(binding, "index"), "started_at"))
        stop = self._desired.stop_reason(started_at, self._context.clock.now())
        if stop is None:
            raise PlanChangedError(
                f"{plan.mismatch}: install that version again, or set spec.cancel and "
                "start another run"
            )
        try:
            return await self._run_loop(plan)
        except InvariantViolationError as error:
            # The journal names attempts that this version does not find in the pack.
            logger.warning("run %s ends without a plan: %s", self._run.name, error.reason)
        await self._end_unplanned(stop[0], f"{stop[1]}; {plan.mismatch}")
        return True

    async def _end_unplanned(self, reason: Reason, message: str) -> None:
        """Leave nothing of the run in the cluster, seal what it finished, and say why it ended.

        Raises:
            ClusterError: The API server refused something; may be called again.
            StorageError: A later leader has the journal, or it is corrupt.
            OSError: The volume did not do what was asked; may be called again.
        """
        seal = None
        if await on_volume(self._store.exists):
            await self._delete_objects()
            seal = sealed((await self._seal(reason, message)).unsigned)
        status = await self._publisher.refused(reason, message, seal)
        await on_volume(self._store.write_final_status, status)

    async def _seal(self, reason: Reason, message: str) -> Exported:
        store = self._store
        journal = await open_on_volume(store.open_journal, Journal.close)
        try:
            last = RunEnded(reason.value, message, self._context.clock.now())
            history = whole_history(journal.take_entries())
            end = [last] if history.ended is None else []
            journal_end = partial(on_volume, journal.append, end)
            context = self._context
            return await seal_run(context, store, history, None, reason.value, journal_end)
        finally:
            await surely_on_volume(journal.close)

    async def _delete_objects(self) -> None:
        cluster, uid = self._context.cluster, self._run.uid
        pods = await cluster.list(ObjectKind.POD, f"{RUN_UID_LABEL}={uid}")
        for pod in filter(None, map(pod_view, pods.items)):
            await cluster.delete(ObjectKind.POD, pod.name, uid=pod.uid, grace_seconds=None)
        await cluster.delete(ObjectKind.SERVICE, gateway_name(uid), uid=None, grace_seconds=None)


def is_pack_error(error: InvalidInputError) -> bool:
    """Whether the pack, and not the spec, has to change."""
    if isinstance(error, ConfigErrors):
        return all(is_pack_error(item) for item in error.errors)
    return isinstance(error, PackError)


class Supervisor(ObjectSupervisor[RunObject]):
    """Holds the life cycles of runs."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._capacity = context.capacity
        self._slots = RunSlots(settings.max_active_runs, settings.turn_seconds, context.clock)
        super().__init__(run_object, partial(RunLifecycle, context, self._slots))

    @property
    def queued(self) -> int:
        """How many runs wait for a slot."""
        return self._slots.waiting

    @property
    def throttled_runs(self) -> int:
        """How many runs have Pods that a bound of the operator holds back."""
        return self._capacity.throttled_runs
