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


TaskKinds = Counter[TaskVerdicts]
"""Number of tasks by their verdicts; tasks of the same kind are interchangeable in a resample."""


def task_kinds(tasks: Iterable[TaskVerdicts]) -> TaskKinds:
    """Count tasks by their verdicts; those without any are left out."""
    return Counter(task for task in tasks if task.verified)
