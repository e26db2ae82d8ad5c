"""Verdicts counted by task; what a run is estimated from."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class TaskVerdicts(NamedTuple):
    """Attempts of one task that have a verdict.

    Args:
        verified: Attempts with a verdict, at least 0.
        passed: Those that passed.
    """

    verified: int
    passed: int

    @property
    def rate(self) -> float:
        """Share of the verdicts that passed, from 0 to 1; the task has at least one verdict."""
        return self.passed / self.verified


class AttemptVerdict(NamedTuple):
    """The verdict on one attempt.

    Args:
        task: Tells tasks apart.
        passed: Whether the attempt passed.
    """

    task: str | int
    passed: bool


VerdictCounts = Counter[TaskVerdicts]
"""Number of tasks by their verdicts; tasks of the same kind are interchangeable in a resample."""


def verdicts_by_task(verdicts: Iterable[AttemptVerdict]) -> dict[str | int, TaskVerdicts]:
    """Count the verdicts of each task, in the order of their first ones."""
    verified, passed = Counter[str | int](), Counter[str | int]()
    for verdict in verdicts:
        verified[verdict.task] += 1
        passed[verdict.task] += verdict.passed
    return {task: TaskVerdicts(count, passed[task]) for task, count in verified.items()}


def verdict_counts(tasks: Iterable[TaskVerdicts]) -> VerdictCounts:
    """Count tasks by their verdicts; those without any are left out."""
    return Counter(task for task in tasks if task.verified)
