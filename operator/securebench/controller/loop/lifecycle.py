"""Life cycle of one run in this process: queued, prepared, looped, retried, ended."""

from __future__ import annotations

import asyncio
import logging

from securebench.clock import backoff, seconds_since_epoch
from securebench.controller.binding.prepare import prepare
from securebench.controller.context import Context, PreparedRun, RunObject
from securebench.controller.loop.run_loop import RunLoop
from securebench.controller.loop.slots import RunSlots, SlotAdmission
from securebench.controller.loop.unplanned_end import UnplannedEnd
from securebench.controller.loop_tasks import LatestSpec, RetryQueue, log_as_run, wait_until_set
from securebench.controller.metrics import RUN_RETRIES
from securebench.controller.reporting.outages import OUTAGES, outage_reason
from securebench.controller.reporting.publish import Publisher
from securebench.controller.reporting.volume_silence import tell_while_late
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import (
    OPERATOR_CALLS,
    VolumeCalls,
    call_volume_as,
    on_volume,
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
from securebench.run.api.conditions import Reason

logger = logging.getLogger(__name__)

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
