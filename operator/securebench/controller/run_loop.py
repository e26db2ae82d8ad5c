"""The life of one run: observe, decide, journal, act, publish, and one wait.

Beside the loop stands the file of what the run's launches wait for, which the calls of testers who
watch the run read.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from securebench.clock import Clock
from securebench.controller.attempt_keeper import AttemptKeeper
from securebench.controller.context import Context, RunObject
from securebench.controller.informers import BackgroundWatch, PodInformer
from securebench.controller.loop_tasks import Wake
from securebench.controller.network_keeper import NetworkKeeper
from securebench.controller.object_loop import LatestObject
from securebench.controller.object_writers import ObjectWriters
from securebench.controller.publish import Publisher, RunFacts
from securebench.controller.run_ledger import RunLedger
from securebench.controller.sealing import ResultsExport
from securebench.controller.volume.gateway_reports import merge_logs
from securebench.controller.volume.store import RunStore, read_launch_waits, write_launch_waits
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.names import RUN_UID_LABEL
from securebench.protocol.volume import SharedWait
from securebench.run.api.status import Reason
from securebench.run.decide.capacity import node_group, started_images
from securebench.run.decide.controls import Controls, EndReason, Halt
from securebench.run.decide.decision_cache import ChangeSet, DecisionCache, LaunchPods
from securebench.run.decide.reconcile import ObservedState, RunDecision, reconcile
from securebench.run.decide.waits import launch_waits
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import LaunchKey, RunPlan
from securebench.run.state.entries import LaunchBegun

logger = logging.getLogger(__name__)


FULL_RESYNC_SECONDS = 60.0
"""Interval of full resyncs, which decide about every attempt and Pod whether or not it changed."""


class RunLoop:
    """Runs one bound run to its end.

    Args:
        ledger: The run, with its open journal.
        is_turn_over: Whether the run has to let another one have its slot.
    """

    def __init__(
        self,
        context: Context,
        ledger: RunLedger,
        latest: LatestObject[RunObject],
        publisher: Publisher,
        is_turn_over: Callable[[], bool],
    ) -> None:
        self._clock = context.clock
        self._max_unschedulable = context.settings.creation.max_unschedulable
        self._capacity = context.capacity
        self._uid = ledger.plan.identity.uid
        self._store = ledger.store
        self._plan: RunPlan = ledger.plan
        self._ledger = ledger
        self._latest = latest
        self._publisher = publisher
        self._is_turn_over = is_turn_over
        self._results = ResultsExport(context, ledger)
        self._decisions = DecisionCache()
        self._waits = WaitsFile(ledger.store, context.clock)
        self._resynced_at = 0.0
        self._wake = Wake(context.clock)
        self._informer = PodInformer(
            context.cluster,
            f"{RUN_UID_LABEL}={self._uid}",
            context.settings.relist_seconds,
            self._wake.set,
        )
        self._writers = ObjectWriters(context, self._uid, self._informer, self._wake.set)
        self._network = NetworkKeeper(context, ledger, self._writers, self._informer)
        self._attempts = AttemptKeeper(
            context, ledger, self._writers, self._informer, self._network
        )

    async def run(self) -> bool:
        """Run until every attempt has its record and the results are sealed, or the run is parked.

        Returns:
            Whether the run has ended. Otherwise it is suspended, nothing of it is under way, and a
            new loop continues where this one stopped.

        Raises:
            OSError: The volume failed; a new loop may be started.
            ClusterError: A request failed that the loop cannot do without.
        """
        async with self._watching():
            known = self._ledger.history.ended
            if known is not None:
                await self._end(EndReason(Reason(known.reason), known.message))
                return True
            last = await self._last_decision()
            if last.end is not None:
                await self._end(last.end)
            elif last.parked is not None:
                await self._park(last.parked)
            return last.end is not None

    async def _last_decision(self) -> RunDecision:
        """Loop until the run ends or is parked; return the decision that says so."""
        self._capacity.register(self._uid, node_group(self._plan), self._wake.set)
        try:
            return await self._loop()
        finally:
            self._capacity.clear_demand(self._uid)

    async def _loop(self) -> RunDecision:
        await self._attempts.resume()
        while not ((decision := await self.reconcile_once()).end or decision.parked):
            await self._wake.wait([decision.wake_at], self._dues())
        await self._waits.clear()
        if decision.end is not None:
            await self._attempts.sweep()
        await self._network.close(self._wake)
        return decision

    def _dues(self) -> Iterator[float | None]:
        """Yield when parts of the run are due without an event, monotonic seconds or None."""
        for part in (self._publisher, self._results, self._waits):
            yield part.due_at()
        yield self._writers.next_try()

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._latest.notifying(self._wake.set))
            for part in self._watches():
                await stack.enter_async_context(part.watching())
            stack.push_async_callback(self._writers.tasks.close)
            yield

    def _watches(self) -> Iterator[BackgroundWatch]:
        yield self._informer
        yield from self._network.watches()

    async def reconcile_once(self) -> RunDecision:
        """Do one pass: observe, decide, journal, act, publish."""
        observed = self._observe()
        self._report_started_images(observed)
        decision = reconcile(observed, self._controls(observed.now), self._decisions)
        self._capacity.report(self._uid, decision.usage)
        await self._journal(decision)
        await self._act(decision)
        await self._publish(decision)
        await self._waits.update(observed, self._decisions.live)
        return decision

    def _observe(self) -> ObservedState:
        """Collect what background tasks and watches have reported."""
        self._wake.clear()
        for part in self._watches():
            part.check()
        writes, now = self._writers.observe(), self._clock.now()
        changes = self._changes(now)
        self._informer.forget_last_seen(self._is_live)
        if changes is None:
            self._informer.forget_vanished(self._is_over)
        return ObservedState(
            plan=self._plan,
            history=self._ledger.history.attempts,
            network=self._network.observe(
                self._ledger.history.isolation, self._latest.object.desired
            ),
            pods=self._informer.pods,
            pending=self._writers.retries.pending,
            vanished=self._informer.vanished,
            now=now,
            writes=writes,
            plan_mismatch=self._plan.mismatch,
            changes=changes,
        )

    def _changes(self, now: float) -> ChangeSet | None:
        """Return what has changed since the last pass; None where a full resync is due."""
        attempts = self._ledger.history.attempts
        changes = ChangeSet(attempts.pop_changed(), self._informer.pop_changed())
        if self._resynced_at <= now < self._resynced_at + FULL_RESYNC_SECONDS:
            return changes
        self._resynced_at = now
        return None

    def _is_live(self, launch: LaunchKey) -> bool:
        """Whether a launch has begun and its end is not in the journal."""
        attempt = self._ledger.history.attempts.get(launch.attempt_key)
        return attempt is not None and attempt.live == launch

    def _is_over(self, pod: str, launch: LaunchKey) -> bool:
        """Whether no decision needs to know that a launch's Pod is gone."""
        attempt = self._ledger.history.attempts.get(launch.attempt_key)
        is_open = attempt is not None and attempt.finish is None
        return not is_open and not self._writers.tasks.has(pod)

    def _controls(self, now: float) -> Controls:
        controls = self._latest.object.desired.controls(
            self._ledger.history.started_at, now, is_turn_over=self._is_turn_over()
        )
        headroom = self._capacity.headroom(self._uid)
        return replace(controls, max_unschedulable=self._max_unschedulable, headroom=headroom)

    def _report_started_images(self, observed: ObservedState) -> None:
        """Report the images that Pods of this run have started: other runs may pull them freely."""
        names = observed.changes.pods if observed.changes is not None else observed.pods
        views = (observed.pods.get(name) for name in names)
        self._capacity.mark_started(self._uid, started_images(self._plan, views))

    async def _journal(self, decision: RunDecision) -> None:
        """Write ahead what is about to be done."""
        now, found = self._clock.now(), decision.network.found
        lost = await self._attempts.lost_entries(decision.lost)
        await self._ledger.write(
            [
                *([found] if found is not None else []),
                *lost,
                *(LaunchBegun(launch, now) for launch in decision.begin),
                *(LaunchBegun(each, now, pod[0]) for pod in decision.batches for each in pod),
            ]
        )

    async def _act(self, decision: RunDecision) -> None:
        if decision.needs_list:
            self._informer.relist()
        self._network.apply(decision.network, self._latest.object.desired)
        await self._attempts.apply(decision)

    async def _publish(self, decision: RunDecision) -> None:
        await self._publisher.launches_lost(decision.lost)
        wait_reason = decision.wait_reason
        is_told = wait_reason is not None or decision.halt is not Halt.NONE
        if is_told or self._ledger.history.isolation is not None:
            await self._results.export()
            await self._publisher.progress(self._facts(), wait_reason)
        if decision.has_journal_entries:
            self._wake.set()

    async def _park(self, reason: WaitReason) -> None:
        await self._results.export(at_once=True)
        await self._publisher.parked(self._facts(), reason)

    async def _end(self, end: EndReason) -> None:
        if self._plan.has_gateway:
            await bulk_on_volume(merge_logs, self._store, self._plan)
        await self._results.seal(end.reason.value, end.message)
        await self._publisher.ended(self._facts(), end)

    def _facts(self) -> RunFacts:
        """Return what can be published now; the results were exported or sealed before."""
        return RunFacts(
            self._plan, self._ledger.history, self._results.exported, self._network.tokens_used
        )


WAITS_SECONDS = 2.0
"""Least time between two looks, hence between two writes."""

WAITS_RETRY_SECONDS = 30.0
"""Pause after a write that failed."""


class WaitsFile:
    """The file of one run. It is written on a change only; its loss changes no decision.

    Args:
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
        self._next_at = now + WAITS_SECONDS
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
            self._next_at = self._due_at = self._clock.monotonic() + WAITS_RETRY_SECONDS


def _is_quiet(observed: ObservedState, live: LaunchPods) -> bool:
    """Whether no launch can wait for anything."""
    network = observed.network
    return not live.starting and network.is_gateway_ready and not network.provider.longest
