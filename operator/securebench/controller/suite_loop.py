"""The loop of one suite: observe, decide, write the state, act, publish, and one wait."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from securebench.clock import seconds_since_epoch
from securebench.cluster.port import AlreadyExists, ObjectKind
from securebench.controller.context import Context, SuiteObject, suite_object
from securebench.controller.loop_tasks import Wake
from securebench.controller.metrics import SUITE_ROUNDS, CellsByState, count_verdict
from securebench.controller.object_loop import (
    LatestObject,
    ObjectLoop,
    ObjectSupervisor,
    StatusWriter,
    is_gone,
)
from securebench.controller.policy_from_settings import limits, overlays
from securebench.controller.suite_results import GateEvaluator, PackReader, RunObserver
from securebench.controller.suite_store import SuiteStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import InvalidInputError, ObjectGoneError
from securebench.json_values import object_at, text_at
from securebench.names import CANCEL_REASON_ANNOTATION, SUITE_LABEL
from securebench.run.api.field_types import CancelMode
from securebench.run.api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    Reason,
    get_condition,
)
from securebench.run.decide.notices import Notice
from securebench.run.observe.waiting import WaitReason, lasting_words
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import BenchmarkSuiteSpec, SuiteReason
from securebench.suite.decide import (
    DesiredSuite,
    NeededObservation,
    ObservedSuite,
    SuiteDecision,
    decide,
)
from securebench.suite.planning import PlannedRun, SuiteIdentity, cells, run_manifest
from securebench.suite.progress import counts, suite_run
from securebench.suite.report import SuiteFindings, held_up, suite_conditions, suite_status
from securebench.suite.rounds import SuiteState, initial_state

logger = logging.getLogger(__name__)


class SuiteLoop(ObjectLoop[SuiteObject]):
    """Makes the runs of one suite."""

    outage_ending = "; tried again"

    def __init__(self, context: Context, suite: SuiteObject) -> None:
        latest = LatestObject(suite)
        self._publisher = SuitePublisher(context, latest, changes)
        super().__init__(context, latest, self._publisher)
        self._cluster = context.cluster
        self._suite = suite
        self._inputs = ScoreSettings(limits(context.settings), overlays(context.settings))
        self._store = SuiteStore(context.settings.data_root, suite.uid, context.lead)
        self._packs = PackReader(context)
        self._runs = RunObserver(context, suite.name)
        self._gates = GateEvaluator(context, suite.name)
        self._wake = Wake(context.clock)
        self._cells = CellsByState()
        self._read_packs_at: float | None = None
        self._looked_at: float | None = None

    def wake(self) -> None:
        """Start another pass: a run of the suite has changed."""
        self._wake.set()

    def leave(self) -> None:
        """Count none of its cells any more."""
        self._cells.set(Counter())

    async def forget(self) -> None:
        """Remove what the suite remembers; from then on its loop writes nothing."""
        try:
            await bulk_on_volume(self._store.remove)
        except OSError as error:
            logger.warning(
                "suite %s: its folder on the volume stays until the operator starts again: %s",
                self.name,
                error,
            )

    async def work(self) -> bool:
        """Do one pass and wait for the next one; a suite always has a next one."""
        self._wake.clear()
        with self.latest.notifying(self._wake.set):
            await self._observe_suite()
            due = None
            try:
                due = (await self._reconcile(self._suite)).wake_at
            except InvalidInputError as error:
                await self.report(Reason.INVALID_SPEC, str(error))
            await self._wake.wait([due])
        return False

    async def announce(self, reason: Reason, message: str) -> None:
        """Publish why the suite cannot be reconciled; its cells stay as they were."""
        updates = held_up(SuiteReason(reason), message)
        await self._publisher.write(updates, {}, self._suite.generation)

    def defect_message(self, error: Exception) -> str:
        """Return the error, which holds no secret: a suite reads none."""
        return f"{type(error).__name__}: {error}"

    async def _observe_suite(self) -> None:
        """Read the suite anew.

        kopf does not report an object that is deleted, or replaced by another one of its name,
        while its watch has expired.

        Raises:
            ObjectGoneError: The suite is gone, or about to be.
        """
        raw = await self._publisher.find()
        if is_gone(None, raw):
            raise ObjectGoneError("its BenchmarkSuite is being deleted")
        self.latest.update(suite_object(raw))
        if self.latest.version != self._suite.version:
            self._read_packs_at = self._looked_at = None
        self._suite = self.latest.object

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


_REPORTED_TYPES = (ConditionType.READY, ConditionType.GATES_PASSED)
_ACTION = "Reconcile"


class SuitePublisher(StatusWriter[SuiteObject]):
    """The status of a suite."""

    async def publish(self, suite: SuiteObject, findings: SuiteFindings) -> None:
        """Write what a pass has found.

        Raises:
            ObjectGoneError: The suite is gone.
            ClusterError: The API server did not take it.
        """
        fields = dict.fromkeys(("cells", "lastScheduleTime", "nextScheduleTime"))
        before = self._shown
        await self.write(
            suite_conditions(findings),
            {**fields, **suite_status(findings).to_json()},
            suite.generation,
        )
        count_verdict(_new_verdict(before, self._shown))

    def _with(self, updates: Iterable[ConditionUpdate], generation: int) -> tuple[Condition, ...]:
        """Return what the suite says with these conditions; what is not said again is gone."""
        found = tuple(updates)
        types = {each.type.value for each in found}
        said = super()._with(found, generation)
        return tuple(each for each in said if each.type in types)

    def _silent(self, silence: WaitReason) -> Sequence[ConditionUpdate]:
        return tuple(held_up(SuiteReason(silence.reason), silence.message))


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


class SuiteSupervisor(ObjectSupervisor[SuiteObject]):
    """Holds the loops of the suites."""

    def __init__(self, context: Context) -> None:
        super().__init__(suite_object, partial(SuiteLoop, context))
        self._removals: set[asyncio.Task[None]] = set()
        self._runs: dict[str, tuple[str, bool]] = {}

    def observe_run(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun; its suite looks again when it appears, ends or goes.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
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
        for loop in self._loops():
            if isinstance(loop, SuiteLoop) and loop.name == name:
                loop.wake()

    async def close(self) -> None:
        """Stop all loops; the runs that they made go on."""
        await super().close()
        await asyncio.gather(*self._removals, return_exceptions=True)

    def _deleted(self, found: SuiteObject, loop: ObjectLoop[SuiteObject] | None) -> None:
        """Remove what a deleted suite remembered; what its runs left stays."""
        removal = (loop or self._loop(found)).forget()
        task = asyncio.create_task(removal, name=f"removal of {found.name}")
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)
