"""The loop of one suite: observe, decide, write the state, act, publish, and one wait.

``SuitePublisher`` writes the status, and Events when a condition changes. ``SuiteSupervisor``
starts, wakes and stops one loop for each BenchmarkSuite, as kopf delivers events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from securebench.clock import seconds_since_epoch
from securebench.cluster.port import AlreadyExists, ObjectKind
from securebench.controller.context import Context, SuiteObject, suite_object
from securebench.controller.events import OUTAGES, EventRecorder, outage_reason
from securebench.controller.loop_tasks import LoopTasks, RetryQueue, Wake, is_gone
from securebench.controller.metrics import SUITE_ROUNDS, CellsByState, count_verdict
from securebench.controller.policy_from_settings import limits, overlays
from securebench.controller.publish import VolumeSilence, tell_while_late
from securebench.controller.run_status import is_already_stored
from securebench.controller.suite_results import GateEvaluator, PackReader, RunObserver
from securebench.controller.suite_store import RETRY_LIMIT_SECONDS, RETRY_SECONDS, SuiteStore
from securebench.controller.volume_calls import (
    OPERATOR_CALLS,
    VolumeCalls,
    bulk_on_volume,
    call_volume_as,
    on_volume,
)
from securebench.errors import ClusterError, InvalidInputError
from securebench.json_values import object_at, text_at
from securebench.names import CANCEL_REASON_ANNOTATION, SUITE_LABEL
from securebench.run.api.field_types import CancelMode
from securebench.run.api.status import Condition, ConditionStatus, ConditionType, get_condition
from securebench.run.decide.notices import Notice
from securebench.run.observe.waiting import VOLUME_SILENT, WaitReason, lasting_words
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import BenchmarkSuiteSpec, BenchmarkSuiteStatus, SuiteReason
from securebench.suite.decide import (
    DesiredSuite,
    NeededObservation,
    ObservedSuite,
    SuiteDecision,
    decide,
)
from securebench.suite.planning import PlannedRun, SuiteIdentity, cells, run_manifest
from securebench.suite.progress import counts, suite_run
from securebench.suite.report import (
    SuiteFindings,
    refused_status,
    restored,
    suite_status,
    with_outage,
)
from securebench.suite.rounds import SuiteState, initial_state

logger = logging.getLogger(__name__)


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


_REPORTED_TYPES = (ConditionType.READY, ConditionType.GATES_PASSED)
_ACTION = "Reconcile"


class SuitePublisher:
    """The only writer of a suite's status and Events.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: The suite, with the conditions that an earlier process left.
        calls: What the suite has under way on the volume. While one of them is late, the status
            says so.
    """

    def __init__(self, context: Context, suite: SuiteObject, calls: VolumeCalls) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._events = EventRecorder(context.cluster, suite, context.clock, context.process)
        self._conditions = suite.conditions
        self._silence = VolumeSilence(calls, context.clock, "suite")
        self._before_silence: tuple[Condition, ...] | None = None
        self._writing = asyncio.Lock()

    async def tell_of_volume(self, suite: SuiteObject) -> bool:
        """Publish since when a call to the volume is late, or again what was said before.

        Does nothing on the volume; may be called while another method is at work.

        Returns:
            Whether to call it again in a moment: a call is late.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            silence = self._silence.finding()
            if silence is not None:
                await self._tell_of_silence(suite, silence)
            elif self._before_silence is not None:
                now = self._clock.now()
                before = restored(self._before_silence, self._conditions, now)
                await self._write_conditions(suite, before)
                self._before_silence = None
        return silence is not None

    async def publish(self, suite: SuiteObject, findings: SuiteFindings) -> None:
        """Write what a pass has found.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            now = self._clock.now()
            status = suite_status(findings, self._conditions, suite.generation, now)
            cleared = dict.fromkeys(("cells", "lastScheduleTime", "nextScheduleTime"))
            await self._write(suite, status, {**cleared, **status.to_json()})

    async def refuse(self, suite: SuiteObject, reason: SuiteReason, message: str) -> None:
        """Publish why the suite cannot be reconciled; its cells stay as they were.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            now = self._clock.now()
            status = refused_status(reason, message, self._conditions, suite.generation, now)
            said = status.to_json()
            await self._write(
                suite, status, {key: said[key] for key in ("observedGeneration", "conditions")}
            )

    async def _tell_of_silence(self, suite: SuiteObject, silence: WaitReason) -> None:
        before, now = self._conditions, self._clock.now()
        reason = SuiteReason(silence.reason)
        told = with_outage(reason, silence.message, before, suite.generation, now)
        if told == before:
            return
        if self._before_silence is None:
            # An earlier process may have left words about a silence that is over.
            kept = (each for each in before if not each.message.startswith(VOLUME_SILENT))
            # Before the write: the server may take it although its answer is lost.
            self._before_silence = tuple(kept)
        await self._write_conditions(suite, told)
        await self._events.post(changes(before, told))

    async def _write_conditions(
        self, suite: SuiteObject, conditions: tuple[Condition, ...]
    ) -> None:
        """Write nothing but conditions, in the middle of a pass."""
        said = {"conditions": [each.to_json() for each in conditions]}
        await self._cluster.patch_status(ObjectKind.BENCHMARK_SUITE, suite.name, {"status": said})
        self._conditions = conditions

    async def _write(
        self, suite: SuiteObject, status: BenchmarkSuiteStatus, patch: dict[str, object]
    ) -> None:
        shown = {key: value for key, value in patch.items() if value is not None}
        gone = {key for key, value in patch.items() if value is None}
        # What was told of the volume is not in the status as the pass has seen it.
        is_other = self._before_silence is not None or not is_already_stored(suite.status, shown)
        if is_other or gone & set(suite.status):
            await self._cluster.patch_status(
                ObjectKind.BENCHMARK_SUITE, suite.name, {"status": patch}
            )
        before, self._conditions = self._conditions, status.conditions
        self._before_silence = None
        count_verdict(_new_verdict(before, status.conditions))
        await self._events.post(changes(before, status.conditions))


def changes(before: Sequence[Condition], after: Sequence[Condition]) -> Iterator[Notice]:
    """Yield a notice for each condition that has another reason than before, each reason once."""
    told = set[str]()
    for kind in _REPORTED_TYPES:
        old, new = get_condition(before, kind), get_condition(after, kind)
        if new is None or (
            old is not None and (old.status, old.reason) == (new.status, new.reason)
        ):
            continue
        if new.reason in told:
            continue
        told.add(new.reason)
        is_warning = new.status is not ConditionStatus.TRUE and new.reason not in _ROUTINE_REASONS
        note = lasting_words(new.message) or new.reason
        yield Notice(_ACTION, new.reason, note, is_warning, kind.value)


def _new_verdict(before: Sequence[Condition], after: Sequence[Condition]) -> str:
    """Return the reason that the gates give, if it is another one than before; else nothing."""
    old, new = (get_condition(each, ConditionType.GATES_PASSED) for each in (before, after))
    is_news = new is not None and (old is None or old.reason != new.reason)
    return new.reason if new is not None and is_news else ""


_ROUTINE_REASONS = {SuiteReason.RUNNING.value, SuiteReason.SUSPENDED.value}
"""Reasons that need no action; their Events are Normal."""


class SuiteSupervisor:
    """Holds the loops of the suites.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks = LoopTasks("suite")
        self._loops: defaultdict[str, dict[str, SuiteLoop]] = defaultdict(dict)
        self._removals: set[asyncio.Task[None]] = set()
        self._runs: dict[str, tuple[str, bool]] = {}

    @property
    def active(self) -> int:
        """How many suites have a loop now."""
        return self._tasks.active

    @property
    def failed(self) -> int:
        """How many suites have a loop that failed and has not begun again yet."""
        return self._tasks.failed

    def observe_suite(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkSuite: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        suite = suite_object(body)
        known = self._loops[suite.name].get(suite.uid)
        if is_gone(kind, body):
            self._tasks.stop(suite.uid)
            if kind == "DELETED":
                self._forget(suite)
        elif known is not None:
            known.observe_event(suite)
        else:
            loop = self._loops[suite.name][suite.uid] = SuiteLoop(self._context, suite)
            self._tasks.start(suite.uid, suite.name, partial(_work, loop))

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun; its suite looks again when it appears, ends or goes.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        name = text_at(object_at(object_at(body, "metadata"), "labels"), SUITE_LABEL)
        if not name:
            return
        run = suite_run(body)
        if kind == "DELETED":
            self._runs.pop(run.uid, None)
        elif self._runs.get(run.uid) == (name, run.has_ended):
            return
        else:
            self._runs[run.uid] = name, run.has_ended
        for loop in self._loops.get(name, {}).values():
            loop.wake()

    async def close(self) -> None:
        """Stop all loops; the runs that they made go on."""
        self._loops.clear()
        await self._tasks.close()
        await asyncio.gather(*self._removals, return_exceptions=True)

    def _forget(self, suite: SuiteObject) -> None:
        """Remove what a deleted suite remembered; what its runs left stays."""
        loops = self._loops.pop(suite.name)
        loop = loops.pop(suite.uid, None) or SuiteLoop(self._context, suite)
        if loops:
            self._loops[suite.name] = loops
        task = asyncio.create_task(_remove_state(loop), name=f"removal of {suite.name}")
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)


async def _work(loop: SuiteLoop) -> None:
    """Run a loop until its suite is gone; a defect of ours says so before it starts again."""
    try:
        await loop.run()
    except Exception as error:
        await loop.report_failure(error)
        raise
    await _remove_state(loop)


async def _remove_state(loop: SuiteLoop) -> None:
    try:
        await loop.forget()
    except OSError as error:
        logger.warning(
            "suite %s: its folder on the volume stays until the operator starts again: %s",
            loop.name,
            error,
        )
