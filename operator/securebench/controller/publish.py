"""Writes the status of one run, and its Events.

Changes of conditions are written at once, their words and counts at an interval. While the results
volume does not answer, the status says so in place of what else the run waits for.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeGuard

from securebench.clock import Clock
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.context import Context, RunObject
from securebench.controller.events import EventRecorder
from securebench.controller.loop_tasks import LatestSpec
from securebench.controller.run_status import (
    PassRateCache,
    RunFacts,
    StatusBuilder,
    StatusInputs,
    is_already_stored,
    succeeded,
    with_generation,
)
from securebench.controller.volume_calls import VolumeCalls
from securebench.errors import ClusterError, RunGoneError, TransientClusterError
from securebench.run.api.status import ConditionStatus, ConditionType, ConditionUpdate, Reason
from securebench.run.decide.controls import EndReason
from securebench.run.decide.notices import changes, losses, started
from securebench.run.observe.waiting import WaitReason, volume_silent
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempts import Lost
from securebench.run.state.entries import IsolationResult
from securebench.run.state.history import Tally, tally
from securebench.stats.intervals import Estimates

logger = logging.getLogger(__name__)


_NOT_SEALED = ConditionUpdate(
    ConditionType.RESULTS_SEALED, ConditionStatus.FALSE, Reason.NOT_SEALED
)


class Publisher:
    """The only writer of a run's status and Events, from its first pass to its end.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun; with the conditions that an earlier process left.
        spec: The latest one, for generation and suspension.
        calls: What the run has under way on the volume. While one of them is late, the status says
            so in place of what else the run waits for.
    """

    def __init__(
        self, context: Context, run: RunObject, spec: LatestSpec, calls: VolumeCalls
    ) -> None:
        self._cluster = context.cluster
        self._name, self._uid = run.name, run.uid
        self._spec = spec
        self._clock = context.clock
        self._schedule = WriteSchedule(context.settings.status_interval_seconds)
        self._builder = StatusBuilder(run.conditions)
        self._pass_rate = PassRateCache()
        self._events = EventRecorder(context.cluster, run, context.clock, context.process)
        self._posted = run.conditions
        self.written: Raw = {}
        self._stored: Raw = {"status": run.status}
        self._writing = asyncio.Lock()
        self._silence = VolumeSilence(calls, context.clock, "run")
        self._said = succeeded(Reason.STARTING, "")
        self._is_silence_told = self._is_over = False
        self._has_ended = False  # and it is written

    def due_at(self) -> float | None:
        """Return when a deferred status has to be written, monotonic seconds, or None."""
        return self._schedule.due_at

    async def announce(self, reason: Reason, message: str) -> None:
        """Publish why a run makes no progress before its loop starts, or between loop retries.

        An end that is written stays, whatever is left to be done.
        """
        if self._has_ended:
            return
        findings = [
            self._going_on(
                ConditionUpdate(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, reason, message)
            ),
            *self._base_conditions(None),
        ]
        await self._write(self._conditions_only(findings), findings)

    async def tell_of_volume(self) -> bool:
        """Publish since when a call to the volume is late, or what else the run waits for.

        Does nothing on the volume; may be called while another method is at work.

        Returns:
            Whether to call it again in a moment: a call is late.
        """
        silence = self._silence.finding()
        if self._is_over or (silence is None and not self._is_silence_told):
            return False
        findings = [_silent(silence) or self._said, *self._base_conditions(None)]
        status = self._conditions_only(findings)
        if not is_already_stored(self._stored, status):
            await self._write(status, findings)
        has_ended = silence is None and is_already_stored(self._stored, status)
        self._is_silence_told = not has_ended
        return self._is_silence_told

    async def started(self, plan: RunPlan) -> None:
        """Post that the run starts."""
        await self._events.post([started(plan)])

    async def launches_lost(self, lost: Iterable[Lost]) -> None:
        """Post which launches were lost, and why."""
        await self._events.post(losses(lost))

    async def progress(self, facts: RunFacts, wait_reason: WaitReason | None) -> None:
        """Publish counts and wait reason; the write may be deferred."""
        findings = [
            self._going_on(_under_way(wait_reason)),
            *self._base_conditions(facts.history.isolation),
            _NOT_SEALED,
        ]
        counts, now = facts.history.attempts.tally(), self._clock.monotonic()
        if self._schedule.is_due(findings, counts, self._spec.generation, now):
            await self._write(await self._status(facts, findings), findings)

    async def parked(self, facts: RunFacts, reason: WaitReason) -> None:
        """Publish that nothing of the run is under way: it is suspended, or gave up its slot."""
        findings = [
            self._going_on(succeeded(reason.reason, reason.message)),
            *self._base_conditions(facts.history.isolation),
            _NOT_SEALED,
        ]
        await self._write(await self._status(facts, findings), findings)

    async def ended(self, facts: RunFacts, end: EndReason) -> None:
        """Publish how the run ended; returns once that is written or the run is deleted."""
        self._is_over = True
        findings = [
            succeeded(*end),
            *self._base_conditions(facts.history.isolation),
            sealed(facts.exported.unsigned),
        ]
        await self._write_required(await self._status(facts, findings))

    async def refused(self, reason: Reason, message: str, seal: ConditionUpdate | None) -> Raw:
        """Publish that the run will not start, or not continue.

        Args:
            reason: Reason of ``Succeeded``.
            message: One plain sentence.
            seal: What ``ResultsSealed`` says; None without results.

        Returns:
            The status, for the volume.
        """
        self._is_over = True
        findings = [succeeded(reason, message), *self._base_conditions(None)]
        findings += [seal] if seal is not None else []
        status = self._builder.status_without_plan(self._inputs(findings), is_over=True)
        await self._write_required(status)
        return status

    async def repeat(self, status: Raw) -> None:
        """Write a final status again if the API server has another, or the spec has changed."""
        self._is_over = True
        final = with_generation(status, self._spec.generation)
        if not is_already_stored(self._stored, final):
            await self._write_required(final)

    async def _status(self, facts: RunFacts, findings: Sequence[ConditionUpdate]) -> Raw:
        estimates = facts.exported.estimates
        if estimates is None:
            estimates = Estimates(await self._pass_rate.rate(facts.history.attempts.values()))
        return self._builder.status(facts, replace(self._inputs(findings), estimates=estimates))

    def _going_on(self, finding: ConditionUpdate) -> ConditionUpdate:
        """Return what ``Succeeded`` says of a run that is not over: a silent volume comes first."""
        self._said, silence = finding, self._silence.finding()
        self._is_silence_told = self._is_silence_told or silence is not None
        return _silent(silence) or finding

    def _conditions_only(self, findings: Sequence[ConditionUpdate]) -> Raw:
        return self._builder.status_without_plan(self._inputs(findings), is_over=False)

    def _inputs(self, findings: Sequence[ConditionUpdate]) -> StatusInputs:
        return StatusInputs(self._spec.generation, findings, self._clock.now())

    def _base_conditions(self, isolation: IsolationResult | None) -> list[ConditionUpdate]:
        return [self._suspended(), *([_isolation(isolation)] if isolation is not None else [])]

    def _suspended(self) -> ConditionUpdate:
        if self._spec.desired.is_suspended:
            return ConditionUpdate(ConditionType.SUSPENDED, ConditionStatus.TRUE, Reason.SUSPENDED)
        return ConditionUpdate(ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.NOT_SUSPENDED)

    async def _write(self, status: Raw, findings: Sequence[ConditionUpdate]) -> None:
        async with self._writing:  # what was built first is written first
            await self._try_to_write(status, findings)

    async def _try_to_write(self, status: Raw, findings: Sequence[ConditionUpdate]) -> None:
        self._schedule.begin(findings, self._spec.generation, self._clock.monotonic())
        if is_already_stored(self._stored, status):
            self.written = status
            return
        try:
            found = await self._cluster.patch_status(ObjectKind.BENCHMARK_RUN, self._name, status)
        except TransientClusterError as error:
            logger.warning("status of %s was not written: %s", self._name, error)
            self._schedule.failed()
            return
        if not self._is_run(found):
            self._is_over = True  # nothing more is told of its volume
            raise RunGoneError("its BenchmarkRun was deleted or replaced")
        self.written = self._stored = status
        await self._post_events()

    async def _write_required(self, status: Raw) -> None:
        async with self._writing:
            # Who waits for the next run of this name would take this end for that of theirs.
            found = await self._cluster.get(ObjectKind.BENCHMARK_RUN, self._name)
            if self._is_run(found):
                version = metadata(found)["resourceVersion"]
                body = {**status, "metadata": {"resourceVersion": version}}
                await self._cluster.patch_status(ObjectKind.BENCHMARK_RUN, self._name, body)
                self._stored, self._has_ended = status, True
                await self._post_events()
                await self._events.flush()
            self.written = status

    def _is_run(self, found: Raw | None) -> TypeGuard[Raw]:
        """Whether an object is this run, and not the next one of its name."""
        return found is not None and metadata(found).get("uid") == self._uid

    async def _post_events(self) -> None:
        """Post Events for the conditions that changed with the last write."""
        before, self._posted = self._posted, self._builder.conditions
        await self._events.post(changes(before, self._posted))


def sealed(unsigned: str) -> ConditionUpdate:
    """Return what ``ResultsSealed`` says of sealed results.

    Args:
        unsigned: Why their statement is not signed although it should be; empty for nothing.
    """
    message = f"the statement on the results is not signed: {unsigned}" if unsigned else ""
    return ConditionUpdate(
        ConditionType.RESULTS_SEALED, ConditionStatus.TRUE, Reason.SEALED, message
    )


def _silent(found: WaitReason | None) -> ConditionUpdate | None:
    return None if found is None else succeeded(found.reason, found.message)


def _under_way(wait_reason: WaitReason | None) -> ConditionUpdate:
    if wait_reason is None:
        return succeeded(Reason.RUNNING, "")
    return succeeded(wait_reason.reason, wait_reason.message)


def _isolation(found: IsolationResult) -> ConditionUpdate:
    if found.verified:
        status, reason = ConditionStatus.TRUE, Reason.VERIFIED
    elif found.declared:
        status, reason = ConditionStatus.UNKNOWN, Reason.DECLARED
    else:
        status, reason = ConditionStatus.FALSE, Reason.ISOLATION_NOT_VERIFIED
    return ConditionUpdate(ConditionType.ISOLATION_VERIFIED, status, reason, found.message)


SIGNIFICANT_SHARE = 0.25
"""Share of a run's attempts whose end makes new counts worth a write at the next interval."""

MAX_DEFERRED_INTERVALS = 5
"""Intervals after which smaller changes of the counts are written."""


class WriteSchedule:
    """Remembers what was written of a run and when. All times are monotonic seconds.

    Args:
        interval_seconds: Least time between two writes, unless a condition changes.

    Attributes:
        due_at: When a deferred write is due, or None.
    """

    def __init__(self, interval_seconds: float) -> None:
        self.due_at: float | None = None
        self._interval = interval_seconds
        self._written_at = -math.inf
        self._findings: Sequence[ConditionUpdate] = ()
        self._generation = 0
        self._counts = tally(())
        self._changed_since: float | None = None
        self._needs_retry = False

    def is_due(
        self, findings: Sequence[ConditionUpdate], counts: Tally, generation: int, now: float
    ) -> bool:
        """Return whether to write now; otherwise ``due_at`` says until when it can wait.

        Args:
            findings: Conditions.
            counts: Attempts by state.
            generation: Of the spec that they are about.
            now: This moment.
        """
        due_at = self._next_write_at(findings, counts, generation, now)
        is_due = due_at is not None and now >= due_at
        self.due_at = None if is_due else due_at
        if is_due:
            self._counts, self._changed_since = counts, None
        return is_due

    def begin(self, findings: Sequence[ConditionUpdate], generation: int, now: float) -> None:
        """Note that a write begins."""
        self._written_at, self._findings, self._generation = now, findings, generation
        self._needs_retry, self.due_at = False, None

    def failed(self) -> None:
        """Note that the write did not succeed: it is due again after the interval."""
        self._needs_retry = True
        self.due_at = self._written_at + self._interval

    def _next_write_at(
        self, findings: Sequence[ConditionUpdate], counts: Tally, generation: int, now: float
    ) -> float | None:
        """Return when to write; None without a change."""
        if [_condition_state(each) for each in findings] != [
            _condition_state(each) for each in self._findings
        ]:
            return now
        turn = self._written_at + self._interval
        ended = counts.done - self._counts.done
        has_changed = bool(ended) or counts.active != self._counts.active
        if not has_changed or self._changed_since is None:
            self._changed_since = now if has_changed else None
        is_stale = self._generation != generation
        if now < turn or self._needs_retry or is_stale or findings != self._findings:
            return turn
        if self._changed_since is None:
            return None
        if ended >= counts.total * SIGNIFICANT_SHARE:
            return turn
        return self._changed_since + self._interval * MAX_DEFERRED_INTERVALS


def _condition_state(finding: ConditionUpdate) -> ConditionUpdate:
    """Return a finding without its message, whose change alone may be deferred."""
    return replace(finding, message="")


SILENCE_LOOK_SECONDS = 1.0
"""Between two looks whether a call to the volume still lasts that the status tells of."""


class VolumeSilence:
    """Since when a call of one object is late, in words that stay the same meanwhile.

    Args:
        calls: Those of the object.
        clock: The wall clock.
        who: ``run`` or ``suite``.
    """

    def __init__(self, calls: VolumeCalls, clock: Clock, who: str) -> None:
        self._calls = calls
        self._clock = clock
        self._who = who
        self._since: float | None = None
        self._began_at = 0.0

    def finding(self) -> WaitReason | None:
        """Return what the object waits for; None while no call is late."""
        now = self._clock.monotonic()
        since = self._calls.silent_since(now)
        if since is not None and since != self._since:
            self._began_at = self._clock.now() - (now - since)
        self._since = since
        return None if since is None else volume_silent(self._began_at, self._who)


async def tell_while_late(
    calls: VolumeCalls, tell: Callable[[], Awaitable[bool]], who: str
) -> NoReturn:
    """Tell of calls that hang, also while all else of the object waits for them; until cancelled.

    Args:
        calls: Those of the object.
        tell: Publishes since when one is late, or that none is any more; returns whether to call
            it again in a moment. It is called again too if it fails, whatever the reason.
        who: Kind and name of the object, for logs.
    """
    while True:
        if await _is_to_look_again(tell, who):
            await asyncio.sleep(SILENCE_LOOK_SECONDS)
        else:
            await calls.wait_until_late()


async def _is_to_look_again(tell: Callable[[], Awaitable[bool]], who: str) -> bool:
    try:
        return await tell()
    except ClusterError as error:
        logger.warning("status of %s was not written: %s", who, error)
    except Exception:
        logger.exception("status of %s was not written", who)
    return True
