"""What a fault did to a run: its records beside those of the undisturbed run, and its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from securebench.run.state.attempts import Lost
from securebench.run.state.entries import Entry, Finished, LaunchBegun, LaunchLost, RunEnded
from support.comparable import comparable

Record = Mapping[str, Any]

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


def differences(records: Sequence[Record], want: Sequence[Record], *allowed: str) -> list[str]:
    """Return in words where records are not those of the undisturbed run.

    Args:
        records: Of the disturbed one.
        want: Of the undisturbed one.
        allowed: Fields that may differ, besides times and launches.
    """
    if [_key(record) for record in records] != [_key(record) for record in want]:
        return [f"records of {[_key(record) for record in records]}"]
    found = []
    for seen, expected in zip(records, want, strict=True):
        one, other = (comparable(each, LAUNCHES, *allowed) for each in (seen, expected))
        names = sorted(name for name in one.keys() | other if one.get(name) != other.get(name))
        found += [
            f"{_key(seen)}: {name} is {one.get(name)!r}, not {other.get(name)!r}" for name in names
        ]
    return found


class Course(NamedTuple):
    """What a run left.

    Attributes:
        entries: Its journal.
        records: Its candidates.jsonl.
    """

    entries: Sequence[Entry]
    records: Sequence[Record]

    @property
    def losses(self) -> list[Lost]:
        """Launches without a conclusive result."""
        return [entry.lost for entry in self.entries if isinstance(entry, LaunchLost)]

    @property
    def conclusive(self) -> int:
        """How many launches of its records had a result."""
        return sum(record[LAUNCHES] for record in self.records) - len(self.losses)


def judge(run: Course, quiet: Course, allowed: Collection[str]) -> Verdict:
    """Compare a run with the undisturbed one.

    A batch that loses its company costs no fault of its own: which candidates share a verifier
    depends on what is late (decision 0061).

    Args:
        run: The disturbed one.
        quiet: The undisturbed one.
        allowed: Reasons for which launches may be lost.
    """
    entries, records, want, losses = *run, quiet.records, run.losses
    finished = Counter(entry.finish.key for entry in entries if isinstance(entry, Finished))
    begun = Counter(entry.launch for entry in entries if isinstance(entry, LaunchBegun))
    unequal = differences(records, want)
    problems = [*unequal]
    problems += [f"{key} finished {count} times" for key, count in finished.items() if count > 1]
    problems += [f"{launch} begun {count} times" for launch, count in begun.items() if count > 1]
    problems += [
        f"lost as {lost.reason}: {lost.message}"
        for lost in losses
        if lost.reason not in allowed and not lost.is_shared
    ]
    problems += [] if len(finished) == len(want) else [f"{len(finished)} attempts finished"]
    ends = sum(isinstance(entry, RunEnded) for entry in entries)
    problems += [] if ends == 1 else [f"the journal has {ends} ends"]
    if not unequal and run.conclusive != quiet.conclusive:
        problems.append(f"{run.conclusive} launches with a result, not {quiet.conclusive}")
    return Verdict(
        tuple(problems), Counter(lost.reason for lost in losses if not lost.is_shared), not unequal
    )


def _key(record: Record) -> tuple[object, object]:
    return record["task_id"], record["attempt"]
