"""What a fault did to a run: its records beside those of the undisturbed run, and its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from securebench.run.records.record import TIMING_FIELDS
from securebench.run.state.history import Entry, Finished, LaunchBegun, LaunchLost, RunEnded

Record = Mapping[str, Any]

STARTED_TWICE = "run_ordinal"
"""Counts how often the same run was started, so it differs by intent."""

LAUNCHES = "launches"
"""Of the attempt; a lost launch is repeated."""


@dataclass(frozen=True)
class Verdict:
    """What came of one disturbed run.

    Attributes:
        problems: What must not be, in words; empty for a run that bore the fault.
        lost: How many launches were lost, by reason.
        is_equal: Whether the records are those of the undisturbed run.
    """

    problems: tuple[str, ...]
    lost: Counter[str]
    is_equal: bool


def comparable(record: Record, *more: str) -> dict[str, Any]:
    """Return a record without what differs between two runs with equal results."""
    result: dict[str, Any] = deepcopy(dict(record))
    for path in (*TIMING_FIELDS, STARTED_TWICE, *more):
        *parents, last = path.split(".")
        part = result
        for name in parents:
            part = part.get(name) or {}
        part.pop(last, None)
    return result


def differences(records: Sequence[Record], want: Sequence[Record]) -> list[str]:
    """Return in words where records are not those of the undisturbed run."""
    if [_key(record) for record in records] != [_key(record) for record in want]:
        return [f"records of {[_key(record) for record in records]}"]
    found = []
    for seen, expected in zip(records, want, strict=True):
        one, other = comparable(seen, LAUNCHES), comparable(expected, LAUNCHES)
        names = sorted(name for name in one.keys() | other if one.get(name) != other.get(name))
        found += [
            f"{_key(seen)}: {name} is {one.get(name)!r}, not {other.get(name)!r}" for name in names
        ]
    return found


def judge(
    entries: Sequence[Entry],
    records: Sequence[Record],
    want: Sequence[Record],
    allowed: Collection[str],
) -> Verdict:
    """Compare a run with the undisturbed one.

    Args:
        entries: Its journal.
        records: Its candidates.jsonl.
        want: That of the undisturbed run.
        allowed: Reasons for which launches may be lost.
    """
    losses = [entry.lost for entry in entries if isinstance(entry, LaunchLost)]
    finished = Counter(entry.finish.key for entry in entries if isinstance(entry, Finished))
    begun = Counter(entry.launch for entry in entries if isinstance(entry, LaunchBegun))
    unequal = differences(records, want)
    problems = [*unequal]
    problems += [f"{key} finished {count} times" for key, count in finished.items() if count > 1]
    problems += [f"{launch} begun {count} times" for launch, count in begun.items() if count > 1]
    problems += [
        f"lost as {lost.reason}: {lost.message}" for lost in losses if lost.reason not in allowed
    ]
    problems += [] if len(finished) == len(want) else [f"{len(finished)} attempts finished"]
    problems += [] if isinstance(entries[-1], RunEnded) else ["the journal has no end"]
    if not unequal:
        problems += _launch_problems(records, want, len(losses))
    return Verdict(tuple(problems), Counter(lost.reason for lost in losses), not unequal)


def _launch_problems(records: Sequence[Record], want: Sequence[Record], lost: int) -> list[str]:
    """Every launch more than in the undisturbed run has its loss in the journal."""
    more = sum(record[LAUNCHES] for record in records) - sum(record[LAUNCHES] for record in want)
    return [] if more == lost else [f"{more} launches more, {lost} of them lost"]


def _key(record: Record) -> tuple[object, object]:
    return record["task_id"], record["attempt"]
