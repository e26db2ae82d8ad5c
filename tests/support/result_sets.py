"""Results of runs in memory, for tests that compare many of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from securebench.analysis.results import Entry, Provenance, ResultSet
from securebench.run.api.field_types import Outcome
from securebench.run.records.reading import RecordFlaws


def attempt(
    task_id: str, *, passed: bool | None = None, outcome: Outcome = Outcome.SCORED
) -> Entry:
    """Return the first attempt of a task; without ``passed`` it has no verdict."""
    return Entry(
        task_id=task_id,
        attempt=1,
        family="short_answer",
        outcome=outcome,
        passed=passed,
        score=None,
        reason="",
        details="",
        launches=1,
        seconds=1.0,
        difficulty="",
        tags=(),
        row="",
        images={},
        memory_kills=0,
        use=None,
    )


def result_set(name: str, entries: Sequence[Entry]) -> ResultSet:
    """Return the results of a run that has ended."""
    return ResultSet(
        name=name,
        path=Path(name),
        run_id=name,
        benchmark_id="simulated",
        entries=tuple(entries),
        provenance=Provenance({}, frozenset(), {}, {}),
        flaws=RecordFlaws(),
        has_ended=True,
        prices={},
        launches=(),
        lost_launches={},
        noisy_launches={},
    )
