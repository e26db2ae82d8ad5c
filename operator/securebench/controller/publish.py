"""Writes the status of one run, and its Events.

Changes of conditions are written at once, their words and counts at an interval. Below the
publisher stand the fields of the status; no decision reads them. The share of passed attempts of a
run under way is counted and estimated off the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.clock import rfc3339
from securebench.cluster.port import Raw, metadata
from securebench.controller.context import Context, RunObject
from securebench.controller.object_loop import LatestObject, StatusWriter, is_stored
from securebench.controller.sealing import Exported
from securebench.controller.volume.results import records_path
from securebench.errors import ObjectGoneError, TransientClusterError
from securebench.json_values import object_at, objects_at
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import (
    MAX_FAILED_TASKS,
    MAX_LOSSES,
    MAX_REASONS,
    MAX_TASK_ID,
    BenchmarkRunStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    LaunchCount,
    MeanReward,
    PassRate,
    Reason,
    ReasonCount,
    Resolved,
    Results,
    Score,
    StatusPassAtK,
    StatusUsage,
    TaskCounts,
    derived_findings,
    end_state,
    get_condition,
)
from securebench.run.decide.controls import EndReason
from securebench.run.decide.notices import changes, losses, started
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import RunPlan
from securebench.run.records.labels import usage_fields
from securebench.run.records.summary import reward_fields
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import IsolationResult
from securebench.run.state.history import (
    RunHistory,
    Tally,
    attempt_rewards,
    budget_tokens_used,
    score_of,
    tally,
    task_verdicts,
    total_usage,
)
from securebench.stats.intervals import (
    Estimates,
    Interval,
    mean_reward,
    pass_rate,
    total_reward,
)
from securebench.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.run.state.attempts import AttemptHistory
    from securebench.stats.intervals import VerdictCounts


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


_COUNTS = {
    Outcome.SCORED: "scored",
    Outcome.AGENT: "agent",
    Outcome.RESOURCE: "resource",
    Outcome.VERIFIER: "verifier",
    Outcome.INFRASTRUCTURE: "infrastructure",
    Outcome.PROVIDER: "provider",
    Outcome.CANCELLED: "cancelled",
    Outcome.NOT_VERIFIED: "unverified",
}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is published of a run with a plan.

    Attributes:
        history: All attempts, and how the run ended.
        exported: What candidates.jsonl has.
        tokens_used: What the gateway has counted against the run's budget.
    """

    plan: RunPlan
    history: RunHistory
    exported: Exported
    tokens_used: int = 0


def run_fields(facts: RunFacts, estimates: Estimates) -> dict[str, object]:
    """Return the status of a run with a plan, but for conditions and the observed generation.

    Args:
        facts: What is published.
        estimates: What the run's verdicts say; pass@k once the run is over, before it would rest on
            few attempts.
    """
    plan, history, exported = facts.plan, facts.history, facts.exported
    counts = history.attempts.tally()
    ended = history.ended
    status = BenchmarkRunStatus(
        start_time=rfc3339(history.started_at) if history.started_at is not None else None,
        completion_time=rfc3339(ended.at) if ended is not None else None,
        resolved=_resolved(plan),
        tasks=_counts(counts),
        score=_score(history, estimates),
        usage=_usage(facts),
        results=Results(
            path=records_path(plan.identity.uid),
            records=exported.records,
            sha256=exported.sha256 if exported.is_sealed else None,
            published_sha256=exported.published_sha256 or None,
        ),
        failed_tasks=_failed(plan, history),
        failure_reasons=_reasons(history),
        lost_launches=_losses(history),
        noisy_launches=history.noisy_launches or None,
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"conditions"})


def with_generation(status: Mapping[str, object], generation: int) -> Mapping[str, object]:
    """Return a final status with a later generation: no change of spec alters how a run ended.

    Args:
        status: As it was written when the run ended.
        generation: Generation of the observed spec.
    """
    conditions = [
        {**item, "observedGeneration": generation} for item in objects_at(status, "conditions")
    ]
    return {**status, "observedGeneration": generation, "conditions": conditions}


def succeeded(reason: Reason, message: str) -> ConditionUpdate:
    """Return what ``Succeeded`` says for a reason: an end state's status, else Unknown."""
    state = end_state(reason.value)
    status = state.succeeded if state is not None else ConditionStatus.UNKNOWN
    return ConditionUpdate(ConditionType.SUCCEEDED, status, reason, message)


def with_derived(*findings: ConditionUpdate) -> tuple[ConditionUpdate, ...]:
    """Return conditions of a run, ``Succeeded`` among them, with those that follow from it."""
    found = next(each for each in findings if each.type is ConditionType.SUCCEEDED)
    return (*findings, *derived_findings(found))


def _resolved(plan: RunPlan) -> Resolved:
    return Resolved(
        run_id=plan.identity.run_id,
        pack=plan.pack_id[:256],
        pack_digest=plan.pack_digest,
        harness_digest=plan.harness.digest,
        policy_digest=plan.policy_digest,
        verifier_version=plan.verifier_version,
        operator_version=VERSION,
        pack_audit=plan.pack_audit.value,
    )


def _counts(counts: Tally) -> TaskCounts:
    by_outcome = {name: counts.outcomes.get(outcome, 0) for outcome, name in _COUNTS.items()}
    return TaskCounts(total=counts.total, done=counts.done, active=counts.active, **by_outcome)


def _score(history: RunHistory, estimates: Estimates) -> Score:
    counts, rate, reward = history.attempts.tally(), estimates.pass_rate, estimates.mean_reward
    ends = (attempt.finish for attempt in history.attempts.values())
    scores = (score_of(end) for end in ends if end is not None)
    return Score(
        passed=counts.passed,
        verified=counts.verified,
        score_sum=str(total_reward(score for score in scores if score is not None)),
        pass_rate=None if rate is None else PassRate(**_decimals(rate)),
        pass_at_k=tuple(
            StatusPassAtK(k=each.k, tasks=each.tasks, **_decimals(each.estimate))
            for each in estimates.pass_at_k
        )
        or None,
        mean_reward=None if reward is None else MeanReward(**_texts(reward)),
    )


def _texts(reward: Interval) -> dict[str, str]:
    return {name: f"{end:g}" for name, end in reward_fields(reward).items()}


def _decimals(interval: Interval) -> dict[str, str]:
    """Return an estimate as texts; its ends have six decimals, so that readers may round them."""
    value, low, high = interval
    return {"value": f"{value:.4f}", "low": f"{low:.6f}", "high": f"{high:.6f}"}


def _usage(facts: RunFacts) -> StatusUsage | None:
    if not facts.plan.asks_provider:
        return None
    budget, usage = facts.plan.token_budget, total_usage(facts.history.attempts.values())
    used = None if budget is None else budget_tokens_used(facts.tokens_used, usage)
    return StatusUsage(**usage_fields(usage), budget_tokens=budget, budget_used_tokens=used)


def _reasons(history: RunHistory) -> tuple[ReasonCount, ...]:
    finishes = (attempt.finish for attempt in history.attempts.values())
    counts = Counter(end.reason for end in finishes if end is not None and end.reason)
    ordered = _commonest(counts)[:MAX_REASONS]
    return tuple(ReasonCount(reason=reason, count=count) for reason, count in ordered)


def _losses(history: RunHistory) -> tuple[LaunchCount, ...]:
    ordered = _commonest(history.losses)[:MAX_LOSSES]
    return tuple(LaunchCount(reason=reason, count=count) for reason, count in ordered)


def _commonest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _failed(plan: RunPlan, history: RunHistory) -> tuple[str, ...]:
    failed = dict.fromkeys(
        plan.tasks[key.task].task.id[:MAX_TASK_ID]
        for key, attempt in history.attempts.items()
        if attempt.finish is not None and _is_failure(attempt.finish)
    )
    return tuple(failed)[:MAX_FAILED_TASKS]


def _is_failure(finish: Finish) -> bool:
    return finish.passed is not True and finish.outcome is not Outcome.NOT_VERIFIED


class EstimatesCache:
    """Estimates of one run under way; its share of passes once for the same verdicts."""

    def __init__(self) -> None:
        self._verdicts: VerdictCounts = Counter()
        self._rate: Interval | None = None

    async def estimates(self, attempts: Collection[AttemptHistory]) -> Estimates:
        """Return pass rate and mean reward of the attempts with a verdict."""
        return await asyncio.to_thread(self._estimated, tuple(attempts))

    def _estimated(self, attempts: Collection[AttemptHistory]) -> Estimates:
        verdicts = task_verdicts(attempts)
        if verdicts != self._verdicts:
            self._verdicts, self._rate = verdicts, pass_rate(verdicts)
        return Estimates(self._rate, mean_reward=mean_reward(attempt_rewards(attempts)))
