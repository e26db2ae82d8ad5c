"""When the status of a run is written: conditions at once, their words and counts as news."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from securebench.run.api.conditions import ConditionUpdate
from securebench.run.state.tally import Tally, tally

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
        if [_state(each) for each in findings] != [_state(each) for each in self._findings]:
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


def _state(finding: ConditionUpdate) -> ConditionUpdate:
    """Return a finding without its message, whose change alone may be deferred."""
    return replace(finding, message="")
