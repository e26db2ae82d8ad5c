"""Results of a run as a report needs them: one entry per record, without the long texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from securebench.client.handed_files import handed_content, handed_lines
from securebench.client.session.run_cost import summary_prices
from securebench.client.submit.prices import Prices
from securebench.client.volume.record_mirror import read_records
from securebench.core.errors import InvalidInputError
from securebench.core.json_values import as_number, object_at, object_in, text_at
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.comparable import DecisiveDigests, decisive_digests
from securebench.run.records.failures import failure
from securebench.run.records.reading import Record, RecordFlaws, parse_record, record_key
from securebench.run.records.record_line import SIDES
from securebench.run.records.record_use import record_use
from securebench.stats.cost import Cost, Tokens, Use, cost
from securebench.stats.verdicts import TaskVerdicts, VerdictCounts, verdict_counts

PASSED = "passed"
FAILED = "failed"
NO_VERDICT = "no verdict"

LAUNCHES = "launches.jsonl"
"""Attempts with their launches, as ``securebench results RUN --why -o json`` prints them."""

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """One attempt.

    Attributes:
        passed: The verdict, or None without one.
        reason: Why it did not pass; empty if it did.
        details: More about that, on one line.
        launches: Pods that were begun for it.
        seconds: From the first launch to the record; 0 without a launch.
        difficulty: Difficulty of the task; empty if unknown.
        tags: Tags of the task.
        row: Digest of the task's row; empty if unknown.
        images: Resolved images of its Pods by role.
        memory_kills: Processes of it that were killed at the memory limit.
        use: Models and tokens of all its launches; None without a provider.
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
    difficulty: str
    tags: tuple[str, ...]
    row: str
    images: Mapping[str, str]
    memory_kills: int
    use: Use | None

    @property
    def tokens(self) -> Tokens | None:
        """Tokens of all its launches; None without a provider."""
        return None if self.use is None else self.use.tokens

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.passed is None:
            return NO_VERDICT
        return PASSED if self.passed else FAILED


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the scores of a run rest on: each value with the number of records that have it.

    Attributes:
        digests: Digests of pack, harness, verifier and images, by name.
        decisive: Digests that a fair comparison shares.
        labels: Conditions of isolation and grading, by name (records.md).
        agents: Type, model and version of the harness, as configured, by these names.
    """

    digests: Mapping[str, Counter[str]]
    decisive: frozenset[DecisiveDigests]
    labels: Mapping[str, Counter[str]]
    agents: Mapping[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class ResultSet:
    """The records of a run.

    Attributes:
        name: How the user called it.
        path: Its ``candidates.jsonl``.
        flaws: What is wrong with the lines of its records.
        has_ended: Whether its folder has a summary, which is written at the end of a run.
        prices: Prices of models, for the cost.
        launches: Attempts with their launches, as far as the folder has them.
        lost_launches: How many launches the cluster or the provider lost, by reason.
        noisy_launches: How many launches met a limit of a container, by how.
        uid: UID of the BenchmarkRun; empty for a folder, which does not say it.
        tries: Runs of this agent and model on this pack that were started up to this one; 1 also
            where the summary does not say it.
    """

    name: str
    path: Path
    run_id: str
    benchmark_id: str
    entries: tuple[Entry, ...]
    provenance: Provenance
    flaws: RecordFlaws
    has_ended: bool
    prices: Prices
    launches: tuple[Fields, ...]
    lost_launches: Mapping[str, int]
    noisy_launches: Mapping[str, int]
    uid: str = ""
    tries: int = 1

    @property
    def cost(self) -> Cost | None:
        """What all attempts cost; None without a price table."""
        if not self.prices:
            return None
        return cost((each.use for each in self.entries if each.use is not None), self.prices)

    def by_task(self) -> dict[str, TaskVerdicts]:
        """Return the verdicts of each task, in the order of the records."""
        return verdicts_of_all_tasks(self.entries)

    def verdict_counts(self) -> VerdictCounts:
        """Return the tasks counted by their verdicts."""
        return verdict_counts(self.by_task().values())


def verdicts_of_all_tasks(entries: Iterator[Entry] | tuple[Entry, ...]) -> dict[str, TaskVerdicts]:
    """Count the verdicts of each task; a task without any counts 0 of 0."""
    found: dict[str, TaskVerdicts] = {}
    for entry in entries:
        known = found.get(entry.task_id, TaskVerdicts(0, 0))
        found[entry.task_id] = TaskVerdicts(
            known.verified + (entry.passed is not None), known.passed + (entry.passed is True)
        )
    return found


def read_results(folder: Path, name: str, prices: Prices | None = None) -> ResultSet:
    """Read a result folder.

    Args:
        folder: As ``run`` and ``results`` write it.
        name: How the user called it.
        prices: Prices of models; they take precedence over those in the folder's summary.

    Raises:
        InvalidInputError: It has no record.
    """
    path = folder / CANDIDATES
    entries, flaws = [], RecordFlaws()
    digests: dict[str, Counter[str]] = defaultdict(Counter)
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    agents: dict[str, Counter[str]] = defaultdict(Counter)
    decisive: set[DecisiveDigests] = set()
    first: Record = {}
    for record in _records(path, flaws):
        first = first or record
        entries.append(_entry(record))
        decisive.add(decisive_digests(record))
        _count(digests, _digests(record))
        _count(labels, object_at(record, "labels"))
        _count(agents, _agent(object_at(record, "producer_metadata")))
    if not entries:
        raise InvalidInputError(f"{name} has no record yet")
    summary = _summary(folder / SUMMARY)
    return ResultSet(
        name=name,
        path=path,
        run_id=text_at(first, "run_id"),
        benchmark_id=text_at(first, "benchmark_id"),
        entries=tuple(entries),
        provenance=Provenance(digests, frozenset(decisive), labels, agents),
        flaws=flaws,
        has_ended=(folder / SUMMARY).exists(),
        prices={**summary_prices(summary), **(prices or {})},
        launches=_launches(folder / LAUNCHES),
        lost_launches=_counts(summary, "lost_launches"),
        noisy_launches=_counts(summary, "noisy_launches"),
        tries=int(as_number(summary.get("tries")) or 1),
    )


def _counts(summary: Fields, key: str) -> dict[str, int]:
    return {name: int(as_number(count) or 0) for name, count in object_at(summary, key).items()}


def _summary(path: Path) -> Fields:
    try:
        return decode_object(handed_content(path))
    except (FileNotFoundError, ValueError):
        return {}


def _launches(path: Path) -> tuple[Fields, ...]:
    try:
        return tuple(found for line in handed_lines(path) if (found := parse_record(line)))
    except FileNotFoundError:
        return ()


def _records(path: Path, flaws: RecordFlaws) -> Iterator[Record]:
    try:
        yield from read_records(path, flaws)
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
        score=as_number(score),
        reason=why.reason if why else "",
        details=why.said if why else "",
        launches=int(as_number(record.get("launches")) or 0),
        seconds=as_number(object_at(record, "timing").get("duration_seconds")) or 0.0,
        difficulty=text_at(record, "difficulty"),
        tags=_texts(record.get("tags")),
        row=text_at(object_at(record, "digests"), "row"),
        images=_images(record),
        memory_kills=sum(_memory_kills(who, record) for who in SIDES),
        use=record_use(record),
    )


def _digests(record: Record) -> dict[str, object]:
    return {
        **{name: digest or None for name, digest in decisive_digests(record)._asdict().items()},
        "harness": record.get("harness_digest"),
        **{f"{role} image": image for role, image in _images(record).items()},
    }


def _agent(producer: Fields) -> dict[str, object]:
    harness = text_at(producer, "harness")
    return {
        "harness": harness or None,
        "model": producer.get(f"{harness}_model"),
        "version": producer.get("cli_version_resolved"),
    }


def _images(record: Record) -> dict[str, str]:
    images = object_in(object_at(record, "digests").get("images"))
    return {role: image for role, image in images.items() if isinstance(image, str)}


def _memory_kills(who: str, record: Record) -> int:
    return int(as_number(object_at(record, f"{who}_metadata").get("memory_kills")) or 0)


def _texts(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else ()
    return tuple(item for item in items if isinstance(item, str))


def _count(found: dict[str, Counter[str]], values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if value is not None:
            found[name][_label(value)] += 1


def _label(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
