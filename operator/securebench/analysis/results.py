"""Results of a run as a report needs them: one entry per record, without the long texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from securebench.client.watch.failures import failure
from securebench.core.errors import InvalidInputError
from securebench.core.json_values import object_at, object_in, text_at
from securebench.protocol.volume import CANDIDATES
from securebench.run.records.reading import Record, parse_record, record_key
from securebench.stats.verdicts import TaskKinds, TaskVerdicts, task_kinds

PASSED = "passed"
FAILED = "failed"
NO_VERDICT = "no verdict"


class Tokens(NamedTuple):
    """Use of the model provider by an attempt, all its launches together."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens; cached ones are part of the input."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Entry:
    """One attempt.

    Attributes:
        passed: The verdict, or None without one.
        reason: Why it did not pass; empty if it did.
        details: More about that, on one line.
        seconds: From the first launch to the record.
        tokens: None without a provider.
    """

    task_id: str
    attempt: int
    family: str
    outcome: str
    passed: bool | None
    score: float | None
    reason: str
    details: str
    launches: int
    seconds: float
    tokens: Tokens | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.passed is None:
            return NO_VERDICT
        return PASSED if self.passed else FAILED


@dataclass(frozen=True, slots=True)
class Basis:
    """What the scores of a run rest on: each value with the number of records that have it.

    Attributes:
        digests: Of pack, harness, verifier and images, by name.
        labels: Conditions of isolation and grading, by name (records.md).
    """

    digests: Mapping[str, Counter[str]]
    labels: Mapping[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class ResultSet:
    """The records of a run.

    Attributes:
        name: How the user called it.
        path: Its ``candidates.jsonl``.
        damaged: Lines that are no records.
    """

    name: str
    path: Path
    run_id: str
    benchmark_id: str
    entries: tuple[Entry, ...]
    basis: Basis
    damaged: int

    def by_task(self) -> dict[str, TaskVerdicts]:
        """Return the verdicts of each task, in the order of the records."""
        return verdicts_by_task(self.entries)

    def kinds(self) -> TaskKinds:
        """Return the tasks counted by their verdicts."""
        return task_kinds(self.by_task().values())


def verdicts_by_task(entries: Iterator[Entry] | tuple[Entry, ...]) -> dict[str, TaskVerdicts]:
    """Count the verdicts of each task; a task without any counts 0 of 0."""
    found: dict[str, TaskVerdicts] = {}
    for entry in entries:
        known = found.get(entry.task_id, TaskVerdicts(0, 0))
        found[entry.task_id] = TaskVerdicts(
            known.verified + (entry.passed is not None), known.passed + (entry.passed is True)
        )
    return found


def read_results(folder: Path, name: str) -> ResultSet:
    """Read a result folder.

    Raises:
        InvalidInputError: It has no record.
    """
    path = folder / CANDIDATES
    entries, damaged = [], 0
    digests: dict[str, Counter[str]] = defaultdict(Counter)
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    first: Record = {}
    for record in _lines(path):
        if record is None:
            damaged += 1
            continue
        first = first or record
        entries.append(_entry(record))
        _count(digests, _digests(record))
        _count(labels, object_at(record, "labels"))
    if not entries:
        raise InvalidInputError(f"{path} has no record")
    return ResultSet(
        name=name,
        path=path,
        run_id=text_at(first, "run_id"),
        benchmark_id=text_at(first, "benchmark_id"),
        entries=tuple(entries),
        basis=Basis(digests, labels),
        damaged=damaged,
    )


def _lines(path: Path) -> Iterator[Record | None]:
    try:
        with path.open("rb") as source:
            yield from map(parse_record, source)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(
            f"{path} does not exist: securebench results RUN fetches the records of a run"
        ) from None


def _entry(record: Record) -> Entry:
    key, why = record_key(record), failure(record)
    passed, score = record.get("passed"), record.get("score")
    return Entry(
        task_id=key.task_id,
        attempt=key.attempt,
        family=text_at(record, "task_type"),
        outcome=text_at(record, "outcome"),
        passed=passed if isinstance(passed, bool) else None,
        score=_number(score),
        reason=why.reason if why else "",
        details=why.said if why else "",
        launches=int(_number(record.get("launches")) or 0),
        seconds=_number(object_at(record, "timing").get("duration_seconds")) or 0.0,
        tokens=_tokens(record),
    )


def _tokens(record: Record) -> Tokens | None:
    usage = object_at(record, "producer_metadata").get("usage")
    if not isinstance(usage, Mapping):
        return None
    names = ("requests", "input_tokens", "cached_tokens", "output_tokens")
    return Tokens(*(int(_number(usage.get(name)) or 0) for name in names))


def _digests(record: Record) -> dict[str, object]:
    images = object_in(object_at(record, "digests").get("images"))
    return {
        "pack": record.get("pack_digest"),
        "harness": record.get("harness_digest"),
        "verifier": record.get("verifier_version"),
        **{f"{role} image": image for role, image in images.items()},
    }


def _count(found: dict[str, Counter[str]], values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if value is not None:
            found[name][_word(value)] += 1


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]
