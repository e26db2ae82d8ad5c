"""The records of a run, as far as gates ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from securebench.json_values import object_at, text_at
from securebench.run.api.field_types import Outcome
from securebench.run.records.reading import (
    AttemptVerdicts,
    DecisiveDigests,
    Record,
    RecordFlaws,
    decisive_digests,
    first_of_each,
    record_key,
    record_use,
)
from securebench.stats.cost import Use
from securebench.stats.intervals import TaskVerdicts

_LOST = frozenset({Outcome.INFRASTRUCTURE.value, Outcome.PROVIDER.value})


@dataclass(frozen=True, slots=True)
class CellResults:
    """The records of one run, as far as gates ask for them.

    Attributes:
        name: How the run is called in messages.
        attempts: Records.
        lost: Attempts that the cluster or the provider lost.
        tasks: Verdicts by task; 0 of 0 for a task without any.
        rows: Digest of each task's row, where known.
        uses: Models and tokens.
        digests: What a comparison must share.
        verdicts: Verdicts of the attempts that are over.
    """

    name: str
    attempts: int
    lost: int
    tasks: Mapping[str, TaskVerdicts]
    rows: Mapping[str, str]
    uses: tuple[Use, ...]
    digests: frozenset[DecisiveDigests]
    verdicts: AttemptVerdicts


class JudgedCell(NamedTuple):
    """What the gates judge.

    Args:
        cell: Its name.
        results: Results of its run; a text says why there are none.
        baseline: What it is compared with; a text says why there is none, None: nothing is named.
        tries: Runs that were ever started with its digests.
        agent_tries: Runs of its agent and model on its pack, whatever else differed.
        is_first: Whether it is compared with the last good result of its own suite, which has none
            yet.
        is_stopped: Whether its run was cancelled; looks at a comparison count what it has done.
    """

    cell: str
    results: CellResults | str
    baseline: CellResults | str | None
    tries: int = 1
    is_first: bool = False
    is_stopped: bool = False
    agent_tries: int = 1


def read_results(name: str, records: Iterable[Record | None]) -> CellResults | str:
    """Return what gates ask of a run's records, or why they cannot be read.

    Args:
        name: How the run is called in messages.
        records: None for a damaged line.
    """
    tasks: dict[str, TaskVerdicts] = {}
    verdicts: dict[str, dict[int, bool | None]] = {}
    rows: dict[str, str] = {}
    decisive: set[DecisiveDigests] = set()
    uses: list[Use] = []
    attempts = lost = 0
    flaws = RecordFlaws()
    for record in first_of_each(records, flaws):
        task, number = record_key(record)
        known, passed = tasks.get(task, TaskVerdicts(0, 0)), record.get("passed")
        has_verdict = isinstance(passed, bool)
        tasks[task] = TaskVerdicts(known.verified + has_verdict, known.passed + (passed is True))
        if record.get("outcome") != Outcome.CANCELLED:
            verdicts.setdefault(task, {})[number] = passed is True if has_verdict else None
        rows[task] = text_at(object_at(record, "digests"), "row")
        attempts, lost = attempts + 1, lost + (record.get("outcome") in _LOST)
        decisive.add(decisive_digests(record))
        uses += [use] if (use := record_use(record)) is not None else []
    if flaws:
        return "; ".join(flaws.sentences(name))
    if not attempts:
        return f"{name} has no record"
    return CellResults(
        name, attempts, lost, tasks, rows, tuple(uses), frozenset(decisive), verdicts
    )
