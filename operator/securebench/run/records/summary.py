"""Summarise the records of a run.

Source: contract 15.5, 21.1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from securebench.json_values import as_number, object_at, text_at
from securebench.protocol.grading import REWARDS
from securebench.run.records.labels import usage_fields
from securebench.stats.intervals import (
    AttemptReward,
    AttemptVerdict,
    Interval,
    PassAtK,
    mean_reward,
    pass_at_each_k,
    pass_rate,
    total_reward,
    verdict_counts,
    verdicts_by_task,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.run.plan.model import EarlierRun
    from securebench.run.state.attempts import Usage
    from securebench.run.state.entries import ResourceNoise

VERIFIED = frozenset({"passed", "failed"})
NO_OUTCOME = "null"
"""Key for records whose outcome is null: their family has no verifier."""


_DIGITS = 6
"""Decimals of shares in ``summary.json``, and significant digits of rewards."""


class RecordFacts(NamedTuple):
    """The fields of a record that the summary needs; ``task`` tells tasks apart."""

    task: str
    verification_status: str
    passed: bool | None
    score: float | None
    outcome: str | None
    grading: str = ""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Aggregate counts over the records of a run.

    Attributes:
        total: Number of records.
        verified: Records with a verdict.
        passed: Records that passed.
        verification_status: ``complete``, ``partial`` or ``pending``.
        outcomes: Number of records by outcome.
        pass_rate: Share of verdicts that passed; None without a verdict.
        pass_at_k: pass@1 to pass@n; empty with one attempt per task.
        mean_reward: Mean score of the verdicts; None unless a record has a reward.
        usage: Model provider usage of this run's launches, including lost ones but not those of a
            resumed run; None without a provider.
        lost_launches: Number of this run's launches that the cluster or the provider lost, by
            reason.
        noisy_launches: Number of this run's launches that met a limit, by how.
        grading: Number of records by what their verdict rested on, where they say it.
    """

    run_id: str
    total: int
    verified: int
    passed: int
    score_sum: float
    verification_status: str
    outcomes: Mapping[str, int]
    pass_rate: Interval | None = None
    pass_at_k: tuple[PassAtK, ...] = ()
    mean_reward: Interval | None = None
    usage: Usage | None = None
    lost_launches: Mapping[str, int] = field(default_factory=dict)
    noisy_launches: Mapping[str, int] = field(default_factory=dict)
    grading: Mapping[str, int] = field(default_factory=dict)

    def to_json(self, output_dir: str, output_path: str) -> dict[str, object]:
        """Return the content of ``summary.json``; both paths are absolute."""
        return {
            "run_id": self.run_id,
            "output_dir": output_dir,
            "output_path": output_path,
            "total": self.total,
            "verified": self.verified,
            "passed": self.passed,
            "score_sum": self.score_sum,
            "verification_status": self.verification_status,
            "outcomes": dict(self.outcomes),
            **({"grading": dict(self.grading)} if self.grading else {}),
            **({} if self.pass_rate is None else {"pass_rate": interval_fields(self.pass_rate)}),
            **(
                {"pass_at_k": list(map(_pass_at_k_fields, self.pass_at_k))}
                if self.pass_at_k
                else {}
            ),
            **(
                {} if self.mean_reward is None else {"mean_reward": reward_fields(self.mean_reward)}
            ),
            **({} if self.usage is None else {"usage": usage_fields(self.usage)}),
            **({"lost_launches": dict(self.lost_launches)} if self.lost_launches else {}),
            **({"noisy_launches": dict(self.noisy_launches)} if self.noisy_launches else {}),
        }


def record_facts(record: Mapping[str, object]) -> RecordFacts:
    """Extract the fields that the summary needs from a record."""
    passed, score, outcome = record.get("passed"), record.get("score"), record.get("outcome")
    return RecordFacts(
        task=str(record.get("task_id")),
        verification_status=str(record.get("verification_status")),
        passed=passed if isinstance(passed, bool) else None,
        score=as_number(score),
        outcome=outcome if isinstance(outcome, str) else None,
        grading=text_at(object_at(record, "labels"), "grading"),
    )


def run_summary(
    run_id: str,
    records: Iterable[RecordFacts],
    usage: Usage | None = None,
    losses: Mapping[str, int] | None = None,
    noise: Mapping[ResourceNoise, int] | None = None,
) -> RunSummary:
    """Aggregate the records of a run.

    Args:
        run_id: Run ID of the summary.
        records: One for each attempt.
        usage: Usage of the model provider; None for a run without one.
        losses: Number of launches that were lost, by reason.
        noise: Number of launches that met a limit, by how.
    """
    facts = list(records)
    attempts = (
        AttemptVerdict(item.task, item.passed is True)
        for item in facts
        if item.verification_status in VERIFIED
    )
    verdicts = verdict_counts(verdicts_by_task(attempts).values())
    verified = sum(item.verification_status in VERIFIED for item in facts)
    outcomes = Counter(item.outcome or NO_OUTCOME for item in facts)
    grading = Counter(item.grading for item in facts if item.grading)
    scores = [(item.task, item.score) for item in facts if item.score is not None]
    rewards = [AttemptReward(*each) for each in scores] if REWARDS & grading.keys() else []
    return RunSummary(
        run_id=run_id,
        total=len(facts),
        verified=verified,
        passed=sum(item.passed is True for item in facts),
        score_sum=total_reward(score for _, score in scores),
        verification_status=_status(len(facts), verified),
        outcomes=dict(sorted(outcomes.items())),
        grading=dict(sorted(grading.items())),
        pass_rate=pass_rate(verdicts),
        pass_at_k=pass_at_each_k(verdicts),
        mean_reward=mean_reward(rewards),
        usage=usage,
        lost_launches=dict(sorted((losses or {}).items())),
        noisy_launches={kind.value: count for kind, count in sorted((noise or {}).items())},
    )


def regrade_summary(earlier: EarlierRun, graded_again: int, kept: int) -> dict[str, object]:
    """Return what the summary of a regrade says of the run that was graded again.

    Args:
        earlier: That run.
        graded_again: Attempts whose sealed candidate was verified again.
        kept: Attempts without one, whose outcome stands.
    """
    known = {"run": earlier.name, "run_id": earlier.run_id, "run_uid": earlier.uid}
    return {**known, "graded_again": graded_again, "kept": kept}


def interval_fields(interval: Interval) -> dict[str, float]:
    """Return an estimate with its interval as the summary spells it."""
    return {name: round(share, _DIGITS) for name, share in interval._asdict().items()}


def reward_fields(reward: Interval) -> dict[str, float]:
    """Return a mean reward of any size as the summary spells it."""
    return {name: float(f"{end:.{_DIGITS}g}") for name, end in reward._asdict().items()}


def _pass_at_k_fields(found: PassAtK) -> dict[str, float]:
    return {"k": found.k, "tasks": found.tasks, **interval_fields(found.estimate)}


def _status(total: int, verified: int) -> str:
    if verified == total:
        return "complete"
    return "partial" if verified else "pending"
