"""Writes the status of one run, and its Events.

Changes of conditions are written at once, their words and counts at an interval.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from securebench.clock import rfc3339
from securebench.cluster.port import Raw, metadata
from securebench.controller.context import Context, RunObject
from securebench.controller.object_loop import LatestObject, StatusWriter, is_stored
from securebench.controller.run_status import (
    EstimatesCache,
    RunFacts,
    run_fields,
    succeeded,
    with_derived,
    with_generation,
)
from securebench.errors import ObjectGoneError, TransientClusterError
from securebench.json_values import object_at
from securebench.run.api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    Reason,
    get_condition,
)
from securebench.run.decide.controls import EndReason
from securebench.run.decide.notices import changes, losses, started
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempts import Lost
from securebench.run.state.entries import IsolationResult
from securebench.run.state.history import Tally, tally

logger = logging.getLogger(__name__)


_NOT_SEALED = ConditionUpdate(
    ConditionType.RESULTS_SEALED, ConditionStatus.FALSE, Reason.NOT_SEALED
)


class Publisher(StatusWriter[RunObject]):
    """The status of a run from its first pass to its end.

    Args:
        latest: The BenchmarkRun; with the conditions that an earlier process left.

    Attributes:
        written: The final status, once the run has ended.
    """

    def __init__(self, context: Context, latest: LatestObject[RunObject]) -> None:
        super().__init__(context, latest, changes)
        self.written: Raw = {}
        self._schedule = WriteSchedule(context.settings.status_interval_seconds)
        self._estimates = EstimatesCache()
        end = get_condition(self._shown, ConditionType.SUCCEEDED)
        # An end that is written stays; an earlier process may have written it.
        self._has_ended = self._is_over = (
            end is not None and end.status is not ConditionStatus.UNKNOWN
        )

    def due_at(self) -> float | None:
        """Return when a deferred status has to be written, monotonic seconds, or None."""
        return self._schedule.due_at

    async def announce(self, reason: Reason, message: str) -> None:
        """Publish why a run makes no progress before its loop starts, or between loop retries."""
        if not self._has_ended:
            waits = ConditionUpdate(
                ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, reason, message
            )
            await self._try_to_write(with_derived(waits, *self._base_conditions(None)), {})

    async def started(self, plan: RunPlan) -> None:
        """Post that the run starts."""
        await self._events.post([started(plan)])

    async def launches_lost(self, lost: Iterable[Lost]) -> None:
        """Post which launches were lost, and why."""
        await self._events.post(losses(lost))

    async def progress(self, facts: RunFacts, wait_reason: WaitReason | None) -> None:
        """Publish counts and wait reason; the write may be deferred."""
        updates = self._open_run(facts, _under_way(wait_reason))
        counts, now = facts.history.attempts.tally(), self._clock.monotonic()
        if self._schedule.is_due(updates, counts, self._latest.version.generation, now):
            await self._try_to_write(updates, await self._fields(facts))

    async def parked(self, facts: RunFacts, reason: WaitReason) -> None:
        """Publish that nothing of the run is under way: it is suspended, or gave up its slot."""
        updates = self._open_run(facts, succeeded(reason.reason, reason.message))
        await self._try_to_write(updates, await self._fields(facts))

    async def ended(self, facts: RunFacts, end: EndReason) -> None:
        """Publish how the run ended; returns once that is written or the run is deleted."""
        self._is_over = True
        updates = with_derived(
            succeeded(*end),
            *self._base_conditions(facts.history.isolation),
            sealed(facts.exported.unsigned),
        )
        await self._write_end(updates, await self._fields(facts))

    async def refused(self, reason: Reason, message: str, seal: ConditionUpdate | None) -> Raw:
        """Publish that the run will not start, or not continue.

        Args:
            seal: What ``ResultsSealed`` says; None without results.

        Returns:
            The status, for the volume.
        """
        self._is_over = True
        seals = [seal] if seal is not None else []
        updates = with_derived(succeeded(reason, message), *self._base_conditions(None), *seals)
        await self._write_end(updates, {"completionTime": rfc3339(self._clock.now())})
        return self.written

    async def repeat(self, written: Raw) -> None:
        """Write a final status again if the API server has another, or the spec has changed."""
        self._is_over = True
        status = with_generation(object_at(written, "status"), self._latest.version.generation)
        if self._stored is None or not is_stored(self._stored, status):
            async with self._writing:
                with contextlib.suppress(ObjectGoneError):
                    found = await self._find()
                    await self._send(status, metadata(found)["resourceVersion"])
                    self._has_ended = True

    async def _fields(self, facts: RunFacts) -> Raw:
        estimates = facts.exported.estimates
        if estimates is None:
            estimates = await self._estimates.estimates(facts.history.attempts.values())
        return run_fields(facts, estimates)

    def _open_run(self, facts: RunFacts, finding: ConditionUpdate) -> tuple[ConditionUpdate, ...]:
        base = self._base_conditions(facts.history.isolation)
        return with_derived(finding, *base, _NOT_SEALED)

    def _base_conditions(self, isolation: IsolationResult | None) -> list[ConditionUpdate]:
        return [self._suspended(), *([_isolation(isolation)] if isolation is not None else [])]

    def _suspended(self) -> ConditionUpdate:
        if self._latest.object.desired.is_suspended:
            return ConditionUpdate(ConditionType.SUSPENDED, ConditionStatus.TRUE, Reason.SUSPENDED)
        return ConditionUpdate(ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.NOT_SUSPENDED)

    def _silent(self, silence: WaitReason) -> Sequence[ConditionUpdate]:
        return with_derived(succeeded(silence.reason, silence.message))

    def _restated(self) -> tuple[tuple[Condition, ...], Raw]:
        """Return the same of the latest spec; a run that has said nothing yet starts."""
        generation = self._latest.version.generation
        updates: Sequence[ConditionUpdate] = [self._suspended()]
        if get_condition(self._said, ConditionType.SUCCEEDED) is None:
            updates = with_derived(succeeded(Reason.STARTING, ""), *updates)
        return self._with(updates, generation), {"observedGeneration": generation}

    async def _try_to_write(self, updates: Sequence[ConditionUpdate], fields: Raw) -> None:
        """Write now; a write that has no answer is due again after the interval."""
        generation = self._latest.version.generation
        self._schedule.begin(updates, generation, self._clock.monotonic())
        try:
            await self.write(updates, fields, generation)
        except TransientClusterError as error:
            logger.warning("status of %s was not written: %s", self._latest.object.name, error)
            self._schedule.failed()

    async def _write_end(self, updates: Sequence[ConditionUpdate], fields: Raw) -> None:
        generation = self._latest.version.generation
        async with self._writing:
            said = self._with(updates, generation)
            status: Raw = {**fields, "observedGeneration": generation}
            with contextlib.suppress(ObjectGoneError):
                # Who waits for the next run of this name would take this end for that of theirs.
                found = await self._find()
                await self._write(said, status, metadata(found)["resourceVersion"])
                self._has_ended = True
                await self._events.flush()
            conditions = [each.to_json() for each in self._shown_as(said, None)]
            self.written = {"status": {**status, "conditions": conditions}}


def sealed(unsigned: str) -> ConditionUpdate:
    """Return what ``ResultsSealed`` says of sealed results.

    Args:
        unsigned: Why their statement is not signed although it should be; empty for nothing.
    """
    message = f"the statement on the results is not signed: {unsigned}" if unsigned else ""
    return ConditionUpdate(
        ConditionType.RESULTS_SEALED, ConditionStatus.TRUE, Reason.SEALED, message
    )


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
