"""The loop of one suite: observe, decide, write down, act, publish."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from securebench.cluster.port import AlreadyExists, ObjectKind
from securebench.controller.admission.policy_from_settings import limits, overlays
from securebench.controller.reporting.outages import OUTAGES, outage_reason
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.retry_queue import RetryQueue
from securebench.controller.runtime.wake import Wake
from securebench.controller.suites.gate_evaluator import GateEvaluator
from securebench.controller.suites.pack_reader import PackReader
from securebench.controller.suites.run_observer import RunObserver
from securebench.controller.suites.suite_metrics import SUITE_ROUNDS, CellsByState
from securebench.controller.suites.suite_object import SuiteObject
from securebench.controller.suites.suite_publisher import SuitePublisher
from securebench.controller.volume.suite_store import SuiteStore
from securebench.core.clock import seconds_since_epoch
from securebench.core.errors import ClusterError, InvalidInputError
from securebench.run.api.conditions import ConditionStatus, Reason
from securebench.run.api.field_types import CancelMode
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api.models import BenchmarkSuiteSpec, ConcurrencyPolicy
from securebench.suite.expansion import Cell, cells
from securebench.suite.gates import GateReport
from securebench.suite.planning import (
    PlannedRun,
    Trigger,
    plan_runs,
    run_manifest,
)
from securebench.suite.progress import (
    CellProgress,
    Observed,
    SeenRun,
    counts,
    progress,
    to_create,
    to_delete,
)
from securebench.suite.report import Findings
from securebench.suite.rounds import RoundStart, SuiteState, opening
from securebench.suite.schedule import Times, schedule_times

logger = logging.getLogger(__name__)

PACKS_SECONDS = 60.0
"""Between two looks at the packs of a suite without a schedule, whose change runs cells again."""

RETRY_SECONDS = 1.0
RETRY_LIMIT_SECONDS = 60.0


class _Suite(NamedTuple):
    """A suite whose spec is valid.

    Args:
        object: As the API server has it.
        spec: Spec of it.
        cells: Cells of the spec.
    """

    object: SuiteObject
    spec: BenchmarkSuiteSpec
    cells: Sequence[Cell]


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
        self._publisher = SuitePublisher(context, suite)
        self._wake = Wake(context.clock)
        self._cells = CellsByState()
        self._read_packs_at: float | None = None

    @property
    def name(self) -> str:
        """Name of the suite."""
        return self._suite.name

    def update(self, suite: SuiteObject) -> None:
        """Take a newer state of the suite."""
        is_news = (suite.generation, suite.rerun) != (self._suite.generation, self._suite.rerun)
        self._suite = suite
        if is_news:
            self._read_packs_at = None
            self._wake.set()

    def wake(self) -> None:
        """Look again: a run of the suite has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Work on the suite until the task is cancelled."""
        try:
            await self._run()
        finally:
            self._cells.set(Counter())

    async def forget(self) -> None:
        """Remove what the suite remembers; from then on its loop writes nothing.

        Raises:
            OSError: The volume did not do what was asked.
        """
        await asyncio.to_thread(self._store.remove)

    async def _run(self) -> None:
        retries = RetryQueue[str](self._clock.monotonic, RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        while True:
            self._wake.clear()
            suite, due = self._suite, None
            try:
                times = await self._pass(suite)
                retries.forget(suite.uid)
                due = times.following if times is not None else None
            except InvalidInputError as error:
                retries.forget(suite.uid)
                await self._refuse(suite, Reason.INVALID_SPEC, str(error))
            except OUTAGES as error:
                reason, message, _ = outage_reason(error)
                logger.warning("suite %s is held up: %s", suite.name, message)
                retries.retry(suite.uid)
                await self._refuse(suite, reason, f"{message}; tried again")
            await self._wake.wait([due], [retries.next_after(self._clock.monotonic())])

    async def report_failure(self, error: Exception) -> None:
        """Publish that a defect of the operator ended the loop, which starts again."""
        await self._refuse(self._suite, Reason.INTERNAL, f"{type(error).__name__}: {error}")

    async def _refuse(self, suite: SuiteObject, reason: Reason, message: str) -> None:
        try:
            await self._publisher.refuse(suite, reason, message)
        except ClusterError as error:
            logger.warning("status of suite %s was not written: %s", suite.name, error)

    async def _pass(self, suite: SuiteObject) -> Times | None:
        """Look at everything once; return the times of the schedule, or None without one."""
        spec = BenchmarkSuiteSpec.parse(suite.spec)
        known = _Suite(suite, spec, cells(spec))
        state = await asyncio.to_thread(self._store.read) or await self._initial_state(suite)
        now = self._clock.now()
        times = schedule_times(spec, state.handled, now) if spec.schedule is not None else None
        observed = await self._runs.observe()
        found = self._progress(spec, state, observed)
        opened = opening(spec, state, times, found, suite.rerun)
        if opened is not None:
            state = await self._begin(known, state, opened)
            found = self._progress(spec, state, observed)
        if await self._act(known, state, observed, found):
            observed = await self._runs.observe()
            found = self._progress(spec, state, observed)
        report = await self._gates.report(spec, known.cells, found)
        if report is not None and report.reason is not Reason.RUNNING:
            state = await self._remember(spec, state, found, report)
        self._cells.set(counts(found))
        await self._publisher.publish(suite, Findings(spec, state, times, found, report))
        return times

    async def _initial_state(self, suite: SuiteObject) -> SuiteState:
        """Write down that nothing of the suite has run; what its annotation says is no news."""
        created = min(seconds_since_epoch(suite.created_at), self._clock.now())
        state = SuiteState(handled=created, trigger=Trigger(suite.rerun))
        await asyncio.to_thread(self._store.write, state)
        return state

    def _progress(
        self, spec: BenchmarkSuiteSpec, state: SuiteState, observed: Observed
    ) -> tuple[CellProgress, ...]:
        accepts_losses = spec.gates is not None and spec.gates.max_lost_share is not None
        return progress(state.plan, observed, self._inputs, accepts_losses=accepts_losses)

    async def _begin(self, known: _Suite, state: SuiteState, opened: RoundStart) -> SuiteState:
        """Write down what runs from now on, if that is news."""
        now, is_scheduled = self._clock.monotonic(), known.spec.schedule is not None
        read_at = self._read_packs_at
        if not is_scheduled and read_at is not None and now < read_at + PACKS_SECONDS:
            return state
        packs = await self._packs.read(known.spec.matrix.packs)
        plan = plan_runs(
            known.object.identity,
            known.spec,
            known.cells,
            packs,
            self._inputs,
            opened.trigger,
        )
        self._read_packs_at = now
        begun = replace(state, handled=opened.handled, trigger=opened.trigger, plan=plan)
        if plan != state.plan:
            begun = replace(begun, good=state.latest_good, passed={})
        if begun != state:
            await asyncio.to_thread(self._store.write, begun)
        if plan != state.plan:
            SUITE_ROUNDS.inc()
        return begun

    async def _act(
        self,
        known: _Suite,
        state: SuiteState,
        observed: Observed,
        found: Sequence[CellProgress],
    ) -> bool:
        """Create, cancel and delete runs; return whether there is something new to observe."""
        going = [run for run in observed.runs.values() if not run.has_ended]
        await self._cancel_replaced(known.spec, state, going)
        created = False
        if not known.spec.suspend:
            limit = known.spec.max_concurrent_runs
            for planned in to_create(state.plan, found, len(going), limit):
                await self._create(known.object, planned)
                created = True
        await self._delete_old(known.spec, state, observed)
        return created

    async def _cancel_replaced(
        self, spec: BenchmarkSuiteSpec, state: SuiteState, going: Iterable[SeenRun]
    ) -> None:
        """End the runs of earlier rounds, where a time of the schedule replaces them."""
        if spec.schedule is None or spec.concurrency_policy is not ConcurrencyPolicy.REPLACE:
            return
        current = {run.name for run in state.plan.runs}
        for run in going:
            if run.name not in current and run.spec.get("cancel") != CancelMode.IMMEDIATE:
                patch = {"spec": {"cancel": CancelMode.IMMEDIATE.value}}
                await self._cluster.patch(ObjectKind.BENCHMARK_RUN, run.name, patch)

    async def _create(self, suite: SuiteObject, planned: PlannedRun) -> None:
        manifest = run_manifest(suite.identity, planned)
        try:
            await self._cluster.create(ObjectKind.BENCHMARK_RUN, manifest)
        except AlreadyExists:
            self._runs.note_name_conflict(planned.name)

    async def _delete_old(
        self, spec: BenchmarkSuiteSpec, state: SuiteState, observed: Observed
    ) -> None:
        """Delete the runs that are beyond the history limits."""
        kept = spec.successful_runs_history_limit, spec.failed_runs_history_limit
        for run in to_delete(state.plan, observed.runs.values(), *kept):
            await self._cluster.delete(
                ObjectKind.BENCHMARK_RUN, run.name, uid=run.uid, grace_seconds=None
            )

    async def _remember(
        self,
        spec: BenchmarkSuiteSpec,
        state: SuiteState,
        found: Sequence[CellProgress],
        report: GateReport,
    ) -> SuiteState:
        """Write down the results that pass the gates, and forget them when they do not any more.

        Those that passed without a comparison are the baseline from now on.
        """
        is_good = report.status is ConditionStatus.TRUE
        passed = await self._gates.good_results(found) if is_good else {}
        known = replace(state, passed=passed)
        if is_good and spec.gates is not None and spec.gates.not_worse is None:
            known = replace(known, good=known.latest_good)
        if known != state:
            await asyncio.to_thread(self._store.write, known)
        return known
