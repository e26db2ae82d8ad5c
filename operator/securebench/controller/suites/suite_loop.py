"""The loop of one suite: observe, decide, write the state, act, publish, and one wait."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace

from securebench.clock import seconds_since_epoch
from securebench.cluster.port import AlreadyExists, ObjectKind
from securebench.controller.context import Context, SuiteObject, suite_object
from securebench.controller.events import OUTAGES, outage_reason
from securebench.controller.loop_tasks import RetryQueue, Wake, is_gone
from securebench.controller.metrics import SUITE_ROUNDS, CellsByState
from securebench.controller.policy_from_settings import limits, overlays
from securebench.controller.publish import tell_while_late
from securebench.controller.suites.gate_evaluator import GateEvaluator
from securebench.controller.suites.pack_reader import PackReader
from securebench.controller.suites.run_observer import RunObserver
from securebench.controller.suites.suite_publisher import SuitePublisher
from securebench.controller.volume.suite_store import SuiteStore
from securebench.controller.volume_calls import (
    OPERATOR_CALLS,
    VolumeCalls,
    bulk_on_volume,
    call_volume_as,
    on_volume,
)
from securebench.errors import ClusterError, InvalidInputError
from securebench.names import CANCEL_REASON_ANNOTATION
from securebench.run.api.field_types import CancelMode
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api.models import BenchmarkSuiteSpec
from securebench.suite.api.reasons import SuiteReason
from securebench.suite.decide import (
    DesiredSuite,
    NeededObservation,
    ObservedSuite,
    SuiteDecision,
    decide,
)
from securebench.suite.expansion import cells
from securebench.suite.planning import PlannedRun, SuiteIdentity, run_manifest
from securebench.suite.progress import counts
from securebench.suite.rounds import SuiteState, initial_state

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
RETRY_LIMIT_SECONDS = 60.0


class SuiteLoop:
    """Makes the runs of one suite.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: The BenchmarkSuite.
    """

    def __init__(self, context: Context, suite: SuiteObject) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._suite = suite
        self._inputs = ScoreSettings(limits(context.settings), overlays(context.settings))
        self._store = SuiteStore(context.settings.data_root, suite.uid, context.lead)
        self._packs = PackReader(context)
        self._runs = RunObserver(context, suite.name)
        self._gates = GateEvaluator(context, suite.name)
        self._calls = VolumeCalls(OPERATOR_CALLS)
        self._publisher = SuitePublisher(context, suite, self._calls)
        self._wake = Wake(context.clock)
        self._cells = CellsByState()
        self._read_packs_at: float | None = None
        self._looked_at: float | None = None

    @property
    def name(self) -> str:
        """Name of the suite."""
        return self._suite.name

    def observe_event(self, suite: SuiteObject) -> None:
        """Start another pass if an event shows another spec or annotation, be it old or new."""
        if _request_version(suite) != _request_version(self._suite):
            self._wake.set()

    def wake(self) -> None:
        """Start another pass: a run of the suite has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Work on the suite until it is gone or the task is cancelled."""
        call_volume_as(self._calls)
        telling = asyncio.create_task(
            tell_while_late(self._calls, self._is_volume_late, f"suite {self.name}")
        )
        try:
            await self._run()
        finally:
            telling.cancel()
            self._cells.set(Counter())

    async def forget(self) -> None:
        """Remove what the suite remembers; from then on its loop writes nothing.

        Raises:
            OSError: The volume did not do what was asked.
        """
        await bulk_on_volume(self._store.remove)

    async def _run(self) -> None:
        retries = RetryQueue[str](self._clock.monotonic, RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        while True:
            self._wake.clear()
            due, uid = None, self._suite.uid
            try:
                if not await self._observe_suite():
                    return
                due = (await self._reconcile(self._suite)).wake_at
                retries.forget(uid)
            except InvalidInputError as error:
                retries.forget(uid)
                await self._refuse(SuiteReason.INVALID_SPEC, str(error))
            except OUTAGES as error:
                reason, message, _ = outage_reason(error)
                logger.warning("suite %s is held up: %s", self.name, message)
                retries.retry(uid)
                await self._refuse(SuiteReason(reason), f"{message}; tried again")
            await self._wake.wait([due], [retries.next_after(self._clock.monotonic())])

    async def _is_volume_late(self) -> bool:
        """Tell of a call to the volume that is late; return whether to look again in a moment."""
        return await self._publisher.tell_of_volume(self._suite)

    async def report_failure(self, error: Exception) -> None:
        """Publish that a defect of the operator ended the loop, which starts again."""
        await self._refuse(SuiteReason.INTERNAL, f"{type(error).__name__}: {error}")

    async def _refuse(self, reason: SuiteReason, message: str) -> None:
        try:
            await self._publisher.refuse(self._suite, reason, message)
        except ClusterError as error:
            logger.warning("status of suite %s was not written: %s", self.name, error)

    async def _observe_suite(self) -> bool:
        """Read the suite anew; return whether it is there.

        Events may be late, or lost while a watch is broken: that the suite was edited, deleted, or
        replaced by another one of its name.
        """
        raw = await self._cluster.get(ObjectKind.BENCHMARK_SUITE, self.name)
        suite = suite_object(raw) if raw is not None and not is_gone(None, raw) else None
        if suite is None or suite.uid != self._suite.uid:
            return False
        if _request_version(suite) != _request_version(self._suite):
            self._read_packs_at = self._looked_at = None
        self._suite = suite
        return True

    async def _reconcile(self, suite: SuiteObject) -> SuiteDecision:
        """Do one pass: observe, decide, write the state, act, publish."""
        spec = BenchmarkSuiteSpec.parse(suite.spec)
        desired = DesiredSuite(suite.identity, spec, cells(spec), suite.rerun, self._inputs)
        decision = await self._decision(desired, await self._bound(spec, await self._state(suite)))
        self._cells.set(counts(decision.findings.cells))
        await self._act(desired.identity, decision)
        if decision.create:
            # What was created is observed before it is published.
            self._wake.set()
        else:
            await self._publisher.publish(suite, decision.findings)
        return decision

    async def _state(self, suite: SuiteObject) -> SuiteState:
        """Return what the suite remembers; a new one remembers from now on that nothing has run."""
        known = await on_volume(self._store.read)
        if known is not None:
            return known
        created_at = seconds_since_epoch(suite.created_at)
        state = initial_state(created_at, self._clock.now(), suite.rerun)
        await on_volume(self._store.write, state)
        return state

    async def _bound(self, spec: BenchmarkSuiteSpec, state: SuiteState) -> SuiteState:
        """Return the state with the baselines bound; it is on the volume then."""
        bound = replace(state, baselines=await self._gates.bound(spec, state.baselines))
        await self._write(bound, state)
        return bound

    async def _decision(self, desired: DesiredSuite, state: SuiteState) -> SuiteDecision:
        """Observe and decide until nothing is missing; what is decided is on the volume then."""
        observed = ObservedSuite(
            await self._runs.observe(state.allowances),
            packs_age=self._seconds_since(self._read_packs_at),
            regressions_age=self._seconds_since(self._looked_at),
        )
        while True:
            decision = decide(observed, state, desired, self._clock.now())
            await self._write(decision.state, state)
            if decision.needed is None:
                return decision
            observed = await self._completed(observed, decision, desired)
            state = decision.state

    def _seconds_since(self, at: float | None) -> float | None:
        return self._clock.monotonic() - at if at is not None else None

    async def _write(self, state: SuiteState, known: SuiteState) -> None:
        if state != known:
            await on_volume(self._store.write, state)
        if state.plan.run_names != known.plan.run_names:
            SUITE_ROUNDS.inc()

    async def _completed(
        self, observed: ObservedSuite, decision: SuiteDecision, desired: DesiredSuite
    ) -> ObservedSuite:
        """Return the observation with what a decision misses."""
        spec, now = desired.spec, self._clock.monotonic()
        if decision.needed is NeededObservation.PACKS:
            packs = await self._packs.read(spec.matrix.packs)
            self._read_packs_at = now
            return observed._replace(packs=packs)
        if decision.needed is NeededObservation.REGRESSIONS:
            regressions = await self._gates.regressions(
                spec, desired.cells, decision.findings.cells, decision.state.baselines
            )
            self._looked_at = now
            return observed._replace(regressions=regressions)
        verdict = await self._gates.verdict(
            spec, desired.cells, decision.findings.cells, decision.state.baselines
        )
        return observed._replace(verdict=verdict)

    async def _act(self, suite: SuiteIdentity, decision: SuiteDecision) -> None:
        """Cancel, create and delete runs."""
        for run, why in decision.cancel:
            logger.info("run %s is cancelled: %s", run.name, why)
            await self._cluster.patch(
                ObjectKind.BENCHMARK_RUN,
                run.name,
                {
                    "metadata": {"uid": run.uid, "annotations": {CANCEL_REASON_ANNOTATION: why}},
                    "spec": {"cancel": CancelMode.IMMEDIATE.value},
                },
            )
        for planned in decision.create:
            await self._create(suite, planned)
        for run in decision.delete:
            await self._cluster.delete(
                ObjectKind.BENCHMARK_RUN, run.name, uid=run.uid, grace_seconds=None
            )

    async def _create(self, suite: SuiteIdentity, planned: PlannedRun) -> None:
        try:
            await self._cluster.create(ObjectKind.BENCHMARK_RUN, run_manifest(suite, planned))
        except AlreadyExists:
            self._runs.note_name_conflict(planned.name)


def _request_version(suite: SuiteObject) -> tuple[int, str]:
    """Return (generation, rerun annotation)."""
    return suite.generation, suite.rerun
