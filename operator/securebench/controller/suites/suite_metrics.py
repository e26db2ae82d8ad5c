"""Prometheus metrics of suites."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import Counter, Gauge

from securebench.suite.api.reasons import SuiteReason
from securebench.suite.api.status import CellState

SUITE_ROUNDS = Counter("securebench_suite_rounds", "Rounds of suites that began.")
SUITE_CELLS = Gauge(
    "securebench_suite_cells", "Cells of the current rounds of all suites.", ("state",)
)
SUITE_GATES = Counter(
    "securebench_suite_gates", "Rounds that were judged by their gates.", ("reason",)
)

_JUDGED = {
    reason.value
    for reason in (SuiteReason.GATES_PASSED, SuiteReason.GATES_FAILED, SuiteReason.GATES_UNDECIDED)
}

# A counter that begins at its first event would hide that event from increase().
for _state in CellState:
    SUITE_CELLS.labels(_state.value)
for _reason in _JUDGED:
    SUITE_GATES.labels(_reason)


def count_verdict(reason: str) -> None:
    """Count what the gates say of a round; nothing happens while they wait for its end."""
    if reason in _JUDGED:
        SUITE_GATES.labels(reason).inc()


class CellsByState:
    """The cells of one suite within the gauge of all."""

    def __init__(self) -> None:
        self._counted = Counts[CellState]()

    def set(self, cells: Counts[CellState]) -> None:
        """Say how many cells the suite has in each state; none when its loop ends."""
        for state in CellState:
            SUITE_CELLS.labels(state.value).inc(cells[state] - self._counted[state])
        self._counted = cells
