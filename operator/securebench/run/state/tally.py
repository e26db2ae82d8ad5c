"""Counts over a run's attempts, for status and summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from securebench.run.api.outcomes import Outcome
from securebench.run.state.attempts import AttemptHistory, Finish, Usage
from securebench.stats.verdicts import (
    AttemptVerdict,
    VerdictCounts,
    verdict_counts,
    verdicts_by_task,
)

VERIFIED = frozenset({Outcome.SCORED, Outcome.AGENT, Outcome.RESOURCE})
"""Outcomes whose records have a verdict (contract 15.1)."""

KEPT_ON_RESUME = VERIFIED | {Outcome.NOT_VERIFIED}


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of attempts.

    Attributes:
        total: All attempts of the plan.
        active: Attempts with a live launch.
        outcomes: Finished attempts by outcome.
        passed: Attempts that passed.
    """

    total: int
    active: int
    outcomes: Mapping[Outcome, int]
    passed: int

    @property
    def done(self) -> int:
        """Finished attempts."""
        return sum(self.outcomes.values())

    @property
    def verified(self) -> int:
        """Attempts with a verdict."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in VERIFIED)

    @property
    def has_all_verdicts(self) -> bool:
        """Whether every attempt has a verdict, or a family without verifier."""
        kept = sum(count for outcome, count in self.outcomes.items() if outcome in KEPT_ON_RESUME)
        return kept == self.total


@dataclass(slots=True)
class Counts:
    """Attempts counted one by one; an attempt that changes is removed and added again."""

    total: int = 0
    active: int = 0
    done: int = 0
    passed: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def add(self, history: AttemptHistory) -> None:
        """Count an attempt."""
        self._count(history, 1)

    def remove(self, history: AttemptHistory) -> None:
        """Count an attempt no more; it is given as it was added."""
        self._count(history, -1)

    def _count(self, history: AttemptHistory, step: int) -> None:
        self.total += step
        self.active += step * (history.live is not None)
        if history.finish is not None:
            self.done += step
            self.passed += step * (history.finish.passed is True)
            self.outcomes[history.finish.outcome] += step

    def tally(self) -> Tally:
        """Return the counts as they are now."""
        outcomes = {outcome: count for outcome, count in self.outcomes.items() if count}
        return Tally(self.total, self.active, outcomes, self.passed)


def tally(histories: Iterable[AttemptHistory]) -> Tally:
    """Count attempts by state and outcome."""
    counts = Counts()
    for history in histories:
        counts.add(history)
    return counts.tally()


def verdict_of(finish: Finish) -> bool | None:
    """Return the verdict on an attempt, or None if its outcome has none (contract 15.1)."""
    return finish.passed is True if finish.outcome in VERIFIED else None


def task_verdicts(histories: Iterable[AttemptHistory]) -> VerdictCounts:
    """Count the tasks by their verdicts so far."""
    ends = (history.finish for history in histories)
    judged = ((end.key.task, verdict_of(end)) for end in ends if end is not None)
    verdicts = (AttemptVerdict(task, passed) for task, passed in judged if passed is not None)
    return verdict_counts(verdicts_by_task(verdicts).values())


def budget_tokens_used(counted: int, usage: Usage) -> int:
    """Return the tokens of a run's budget that are used, as message and status say it.

    Args:
        counted: By the gateway, launches in progress included; what it said last may be old.
        usage: Of the launches that have ended.
    """
    return max(counted, usage.input_tokens + usage.output_tokens)


def total_usage(histories: Iterable[AttemptHistory]) -> Usage:
    """Return the model provider usage of all launches."""
    return sum((history.usage for history in histories), Usage())
