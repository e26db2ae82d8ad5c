"""The life cycle of runs in this process: queued, prepared, looped, retried, ended.

``Supervisor`` starts, wakes and stops one life cycle for each active BenchmarkRun, as kopf delivers
events. A run is active only with a slot, and not while it is suspended. A run that had begun and
whose spec or pack this version refuses ends without a plan: there are no digests, labels or tasks,
so open attempts get no record. Finished attempts are in the journal with the digests of their
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from securebench.clock import Clock, backoff, seconds_since_epoch
from securebench.cluster.port import ObjectKind
from securebench.controller.binding import prepare
from securebench.controller.context import Context, PreparedRun, RunObject
from securebench.controller.events import OUTAGES, outage_reason
from securebench.controller.loop_tasks import (
    LatestSpec,
    LoopTasks,
    RetryQueue,
    is_gone,
    log_as_run,
    wait_until_set,
)
from securebench.controller.metrics import RUN_RETRIES
from securebench.controller.publish import Publisher, sealed, tell_while_late
from securebench.controller.run_ledger import RunLedger
from securebench.controller.run_loop import RunLoop
from securebench.controller.sealing import EndedRun, Exported, Totals, seal_run
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.registers import index_entry
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import (
    OPERATOR_CALLS,
    VolumeCalls,
    call_volume_as,
    on_volume,
    open_on_volume,
    surely_on_volume,
)
from securebench.errors import (
    ClusterError,
    ConfigErrors,
    InvalidInputError,
    InvariantViolationError,
    MissingInputError,
    PackError,
    PackImageMissingError,
    PlanChangedError,
    RegistryUnavailableError,
    RunGoneError,
)
from securebench.json_values import number_at, object_at, text_at
from securebench.names import AUDIT, PURPOSE_LABEL, QUEUE_LABEL, REQUESTER_ANNOTATION, RUN_UID_LABEL
from securebench.protocol.candidate import RECORD_BYTES
from securebench.run.api.status import Reason, read_conditions
from securebench.run.decide.waits import SUSPENDED_MESSAGE
from securebench.run.layout import gateway_name
from securebench.run.observe.pods import pod_view
from securebench.run.state.entries import Entry, Finished, Kept, LaunchLost, RunEnded, entry_noise

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


class UnplannedEnd:
    """Ends one run without its plan.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        store: Its folder on the volume.
        publisher: Publisher of its status.
    """

    def __init__(
        self, context: Context, run: RunObject, store: RunStore, publisher: Publisher
    ) -> None:
        self._context = context
        self._run = run
        self._store = store
        self._publisher = publisher

    async def end(self, reason: Reason, message: str) -> None:
        """Leave nothing of the run in the cluster, seal what it finished, and say why it ended.

        Args:
            reason: Reason of ``Succeeded``.
            message: One plain sentence.

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
        binding = await on_volume(store.binding)
        journal = await open_on_volume(store.open_journal, Journal.close)
        try:
            last = RunEnded(reason.value, message, self._context.clock.now())
            journal_end = partial(on_volume, _append_end, journal, last)
            ended = _ended_run(binding, journal.entries)
            return await seal_run(self._context, store, ended, reason.value, journal_end)
        finally:
            await surely_on_volume(journal.close)

    async def _delete_objects(self) -> None:
        cluster, uid = self._context.cluster, self._run.uid
        pods = await cluster.list(ObjectKind.POD, f"{RUN_UID_LABEL}={uid}")
        for pod in filter(None, map(pod_view, pods.items)):
            await cluster.delete(ObjectKind.POD, pod.name, uid=pod.uid, grace_seconds=None)
        await cluster.delete(ObjectKind.SERVICE, gateway_name(uid), uid=None, grace_seconds=None)


def _ended_run(binding: Mapping[str, object], entries: Sequence[Entry]) -> EndedRun:
    """Return what binding and journal tell of a run without its plan."""
    ends = sorted(
        (entry for entry in entries if isinstance(entry, Finished | Kept)),
        key=lambda entry: entry.finish.key,
    )
    lost = Counter(entry.lost.reason for entry in entries if isinstance(entry, LaunchLost))
    noise = Counter(kind for entry in entries for kind in entry_noise(entry))
    record_bytes = number_at(object_at(binding, "limits"), "record_bytes")
    index = index_entry(binding["index"])
    return EndedRun(
        index=index,
        records=[(entry.finish.key, entry.record_sha256) for entry in ends],
        finishes=[entry.finish for entry in ends],
        totals=Totals(None, lost, noise, tries=index.tries, tries_by_others=index.tries_by_others),
        is_audit=binding.get("audit") is True,
        record_bytes=int(record_bytes or RECORD_BYTES),
    )


def _append_end(journal: Journal, last: RunEnded) -> None:
    if not any(isinstance(entry, RunEnded) for entry in journal.entries):
        journal.append([last])


RESTART_SECONDS = 2.0
RESTART_LIMIT_SECONDS = 60.0
"""Back-off of a run loop that ended with an error; doubled each time up to the limit. A run whose
back-off has reached the limit gives its slot to others meanwhile; one that has begun does not queue
for another."""

INPUT_POLL_SECONDS = 2.0
"""Polling interval for a ConfigMap, a Secret or a folder that a new run names. For an image that
its registry does not have yet: the first pause, doubled up to ``RESTART_LIMIT_SECONDS``."""

_ASKED_AGAIN = (
    f"; the registry is asked again after {INPUT_POLL_SECONDS:g} seconds, then with doubled pauses"
    f" of at most {RESTART_LIMIT_SECONDS:g} seconds"
)


class RunLifecycle:
    """Drives one run until it has ended, across errors, suspension and lost slots.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        slots: Limit the number of active runs.
        run: The BenchmarkRun.
        spec: The latest one of the run.
    """

    def __init__(
        self,
        context: Context,
        slots: RunSlots,
        run: RunObject,
        spec: LatestSpec,
    ) -> None:
        self._context = context
        self._run = run
        self._spec = spec
        self._is_parked = False
        self._started_at: float | None = None
        self._give_up_at: float | None = None
        self._image_misses = 0
        self._store = RunStore(context.settings.data_root, run.uid, context.lead)
        self._calls = VolumeCalls(OPERATOR_CALLS)
        self._publisher = Publisher(context, run, spec, self._calls)
        self._unplanned = UnplannedEnd(context, run, self._store, self._publisher)
        self._gate = SlotAdmission(slots, run.uid, spec, self._publisher, context.clock)

    async def run(self) -> None:
        """Return when the run is deleted, or has ended and its status covers the latest spec."""
        log_as_run(self._run.name, self._run.uid)
        call_volume_as(self._calls)
        telling = asyncio.create_task(
            tell_while_late(self._calls, self._is_volume_late, f"run {self._run.name}")
        )
        try:
            await self._run_until_over()
        except RunGoneError as error:
            logger.info("run %s is left alone: %s", self._run.name, error.reason)
        finally:
            telling.cancel()
            self._context.capacity.unregister(self._run.uid)
            self._gate.leave()

    async def _is_volume_late(self) -> bool:
        """Tell of a call to the volume that is late; return whether to look again in a moment."""
        try:
            return await self._publisher.tell_of_volume()
        except RunGoneError:
            return False

    async def _run_until_over(self) -> None:
        name, uid, clock = self._run.name, self._run.uid, self._context.clock
        restarts = RetryQueue[str](clock.monotonic, RESTART_SECONDS, RESTART_LIMIT_SECONDS)
        while True:
            generation, began = self._spec.generation, clock.monotonic()
            try:
                is_over = await self._run_once()
            except OUTAGES as error:
                reason, message, _ = outage_reason(error)
                logger.warning("run %s is held up: %s", name, message)
            except InvariantViolationError as error:
                reason, message = Reason.INTERNAL, error.reason
                logger.exception("run %s: loop failed", name)
            except RunGoneError:
                raise
            except Exception:
                reason, message = Reason.INTERNAL, "the run loop failed; see the operator's log"
                logger.exception("run %s: loop failed", name)
            else:
                if is_over and self._spec.generation == generation:
                    return
                continue
            RUN_RETRIES.labels(reason.value).inc()
            seen = self._spec.generation
            await self._announce(reason, message)
            if clock.monotonic() > began + RESTART_LIMIT_SECONDS:
                restarts.forget(uid)
            await self._back_off(restarts.retry(uid), seen)

    async def _announce(self, reason: Reason, message: str) -> None:
        """Say why the run is held up; whatever else becomes of that, the run is tried again.

        Raises:
            RunGoneError: The run is gone.
        """
        try:
            await self._publisher.announce(reason, message)
        except RunGoneError:
            raise
        except ClusterError as error:
            logger.warning("status: %s", error)
        except Exception:
            logger.exception("run %s: its status was not written", self._run.name)

    async def _back_off(self, seconds: float, seen: int) -> None:
        """Wait until the next try; a newer generation of the spec than that ends the wait."""
        if seconds >= RESTART_LIMIT_SECONDS:
            self._gate.leave()
        changed = asyncio.Event()
        with self._spec.notifying(changed.set):
            if self._spec.generation == seen:
                await wait_until_set(changed, seconds)

    async def _run_once(self) -> bool:
        """Run until the run ends or has to wait; return whether it has ended."""
        final = await on_volume(self._store.read_final_status)
        if final is not None:
            await self._publisher.repeat(final)
            return True
        has_begun = await on_volume(self._store.exists)
        parked = await on_volume(self._store.read_parked)
        if parked is not None:
            self._is_parked, self._started_at = True, parked.started_at
        # A run that has begun may have Pods, which cost resources: it never queues behind others.
        is_active = has_begun and not self._is_parked
        await self._gate.enter(self._started_at, is_active=is_active)
        if parked is not None:
            await on_volume(self._store.unpark)
        try:
            prepared = await prepare(self._context, self._run)
        except InvalidInputError as error:
            if isinstance(error, MissingInputError):
                seconds_left = self._input_seconds_left()
                if seconds_left > 0:
                    await self._wait_for_input(error, seconds_left)
                    return False
            await self._refuse(error)
            return True
        except RegistryUnavailableError as error:
            stop = self._spec.desired.stop_reason(None, self._context.clock.now())
            if stop is None:
                raise
            await self._unplanned.end(stop[0], f"{stop[1]}; {error.reason}")
            return True
        if prepared.plan_mismatch:
            return await self._end_unreadable(prepared)
        return await self._run_loop(prepared)

    def _input_seconds_left(self) -> float:
        """Return how long the run still waits for a missing input, counted from the first miss.

        0 for a run that is to end.
        """
        clock = self._context.clock
        if self._spec.desired.is_ending(None, clock.now()):
            return 0.0
        if self._give_up_at is None:
            self._give_up_at = clock.monotonic() + self._context.settings.input_wait_seconds
        return self._give_up_at - clock.monotonic()

    async def _wait_for_input(self, error: MissingInputError, seconds_left: float) -> None:
        """Wait until the next poll for a missing input; the last poll is at the end of the time."""
        seen = self._spec.generation
        limit = f"{self._context.settings.input_wait_seconds:g}"
        message = f"{error.missing}; the run waits for it for up to {limit} seconds"
        pause = INPUT_POLL_SECONDS
        if isinstance(error, PackImageMissingError):
            self._image_misses += 1
            pause = backoff(INPUT_POLL_SECONDS, RESTART_LIMIT_SECONDS, self._image_misses)
            message += _ASKED_AGAIN
        await self._announce(Reason.INPUT_MISSING, message)
        self._gate.leave()
        await self._back_off(min(pause, seconds_left), seen)

    async def _run_loop(self, prepared: PreparedRun) -> bool:
        ledger = await RunLedger.open(prepared, self._context.clock, self._context.process)
        try:
            self._started_at = ledger.history.started_at
            self._is_parked = False
            loop = RunLoop(
                self._context,
                prepared,
                ledger,
                self._spec,
                self._publisher,
                self._gate.is_turn_over,
            )
            if ledger.history.epoch == 1:
                await self._publisher.started(prepared.plan)
            if not await loop.run():
                self._is_parked = True
                await on_volume(self._store.park, self._started_at)
                self._context.capacity.unregister(self._run.uid)
                self._gate.leave()
                return False
            await on_volume(self._store.write_final_status, self._publisher.written)
        finally:
            await ledger.close()
        return True

    async def _end_unreadable(self, prepared: PreparedRun) -> bool:
        """End a run of another version if its user or deadline demands it.

        Raises:
            PlanChangedError: It is to continue.
        """
        started_at = seconds_since_epoch(prepared.index.started_at)
        stop = self._spec.desired.stop_reason(started_at, self._context.clock.now())
        if stop is None:
            raise PlanChangedError(
                f"{prepared.plan_mismatch}: install that version again, or set spec.cancel and "
                "start another run"
            )
        try:
            return await self._run_loop(prepared)
        except InvariantViolationError as error:
            # The journal names attempts that this version does not find in the pack.
            logger.warning("run %s ends without a plan: %s", self._run.name, error.reason)
        await self._unplanned.end(stop[0], f"{stop[1]}; {prepared.plan_mismatch}")
        return True

    async def _refuse(self, error: InvalidInputError) -> None:
        """End a run whose input is invalid.

        If it had begun, its objects are deleted and its finished records are kept.
        """
        reason = Reason.PACK_INVALID if is_pack_error(error) else Reason.INVALID_SPEC
        await self._unplanned.end(reason, str(error))


def is_pack_error(error: InvalidInputError) -> bool:
    """Whether the pack, and not the spec, has to change."""
    if isinstance(error, ConfigErrors):
        return all(is_pack_error(item) for item in error.errors)
    return isinstance(error, PackError)


class Supervisor:
    """Holds the run loops.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks = LoopTasks("run")
        self._specs: dict[str, LatestSpec] = {}
        settings = context.settings
        self._slots = RunSlots(settings.max_active_runs, settings.turn_seconds, context.clock)

    @property
    def active(self) -> int:
        """How many runs have a loop now."""
        return self._tasks.active

    @property
    def failed(self) -> int:
        """How many runs have a loop that failed and has not begun again yet."""
        return self._tasks.failed

    @property
    def queued(self) -> int:
        """How many runs wait for a slot."""
        return self._slots.waiting

    @property
    def throttled_runs(self) -> int:
        """How many runs have Pods that a bound of the operator holds back."""
        return self._context.capacity.throttled_runs

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        run = run_object(body)
        spec = self._specs.get(run.uid)
        if is_gone(kind, body):
            self._tasks.stop(run.uid)
            self._specs.pop(run.uid, None)
        elif spec is None:
            spec = self._specs[run.uid] = LatestSpec(run.spec, run.generation)
            self._start(run, spec)
        elif run.generation > spec.generation:
            spec.update(run.spec, run.generation)
            self._start(run, spec)

    async def close(self) -> None:
        """Stop all loops; their Pods keep running, and the next operator resumes the runs."""
        self._specs.clear()
        await self._tasks.close()

    def _start(self, run: RunObject, spec: LatestSpec) -> None:
        self._tasks.start(run.uid, run.name, partial(self._work, run, spec))

    async def _work(self, run: RunObject, spec: LatestSpec) -> None:
        await RunLifecycle(self._context, self._slots, run, spec).run()


def run_object(body: Mapping[str, object]) -> RunObject:
    """Return the parts of a BenchmarkRun that the controller works with."""
    fields, status = object_at(body, "metadata"), object_at(body, "status")
    generation, labels = fields.get("generation"), object_at(fields, "labels")
    return RunObject(
        name=str(fields.get("name")),
        uid=str(fields.get("uid")),
        namespace=str(fields.get("namespace")),
        generation=generation if isinstance(generation, int) else 0,
        spec=dict(object_at(body, "spec")),
        audit=text_at(labels, PURPOSE_LABEL) == AUDIT,
        queue=text_at(labels, QUEUE_LABEL),
        requester=text_at(object_at(fields, "annotations"), REQUESTER_ANNOTATION),
        conditions=read_conditions(status.get("conditions", ())),
        status=status,
    )
