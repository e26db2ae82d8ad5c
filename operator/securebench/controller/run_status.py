"""The fields of a BenchmarkRun's status; no decision reads them.

The share of passed attempts of a run under way is counted and estimated off the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.clock import rfc3339
from securebench.controller.sealing import Exported
from securebench.controller.volume.results import records_path
from securebench.json_values import objects_at
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import (
    MAX_FAILED_TASKS,
    MAX_LOSSES,
    MAX_REASONS,
    MAX_TASK_ID,
    BenchmarkRunStatus,
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
)
from securebench.run.plan.model import RunPlan
from securebench.run.records.labels import usage_fields
from securebench.run.records.summary import reward_fields
from securebench.run.state.attempts import Finish
from securebench.run.state.history import (
    RunHistory,
    Tally,
    attempt_rewards,
    budget_tokens_used,
    score_of,
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
        plan: Of the run.
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
