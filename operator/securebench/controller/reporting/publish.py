"""Writes the status of one run, rate-limited except for changes of conditions, and its Events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeGuard

from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.context import Context, RunObject
from securebench.controller.loop_tasks import LatestSpec
from securebench.controller.reporting.events import EventRecorder
from securebench.controller.reporting.pass_rate_cache import PassRateCache
from securebench.controller.reporting.run_status import (
    RunFacts,
    StatusBuilder,
    StatusInputs,
    is_already_stored,
    succeeded,
    with_generation,
)
from securebench.controller.reporting.volume_silence import VolumeSilence
from securebench.controller.reporting.write_schedule import WriteSchedule
from securebench.controller.volume_calls import VolumeCalls
from securebench.errors import RunGoneError, TransientClusterError
from securebench.run.api.conditions import ConditionStatus, ConditionType, ConditionUpdate, Reason
from securebench.run.decide.controls import EndReason
from securebench.run.decide.notices import changes, losses, started
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempts import Lost
from securebench.run.state.entries import IsolationResult
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
