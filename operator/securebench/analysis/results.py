"""Results of a run as reports need them: one entry per record, and the figures of the whole run.

Entries leave out the long texts of records. The figures are the score with its interval, pass@k,
breakdowns, slow and flaky tasks. Texts of agents are untrusted: invisible and control characters
are spelled out before anything shows them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from securebench.client.result_folder import handed_content, handed_lines, read_records
from securebench.client.run_summary import summary_prices
from securebench.client.tester_config import Prices
from securebench.errors import InvalidInputError
from securebench.json_values import as_number, object_at, object_in, text_at
from securebench.protocol.grading import REWARDS, Grading
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.labels import IsolationLabel, Network
from securebench.run.records.reading import (
    DecisiveDigests,
    Record,
    RecordFlaws,
    decisive_digests,
    failure,
    parse_record,
    record_key,
    record_use,
)
from securebench.run.records.record_line import SIDES
from securebench.stats.cost import Cost, Tokens, Use, cost
from securebench.stats.intervals import (
    AttemptReward,
    Interval,
    PassAtK,
    TaskVerdicts,
    VerdictCounts,
    mean_reward,
    pass_at_each_k,
    pass_rate,
    verdict_counts,
)
from securebench.text import LINES, without_unsafe


def visible(text: str) -> str:
    """Return the text with unsafe characters as ``<U+202E>``; line ends and tabs stay."""
    return without_unsafe(text, _spelled_out, kept=LINES)


def excerpt(text: str, characters: int) -> str:
    """Return at most so many characters, visible, with a note on what was left out."""
    rest = len(text) - characters
    if rest <= 0:
        return visible(text)
    return f"{visible(text[:characters])}\n… {rest:,} more characters in the record"


def _spelled_out(character: str) -> str:
    return f"<U+{ord(character):04X}>"


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
        tries: Runs of this agent and model on this pack that were started up to this one by the
            user who requested it; 1 also where the summary does not say it.
        tries_by_others: The same by other users.
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
    tries_by_others: int = 0

    @property
    def cost(self) -> Cost | None:
        """What all attempts cost; None without a price table."""
        if not self.prices:
            return None
        return cost((each.use for each in self.entries if each.use is not None), self.prices)

    def by_task(self) -> dict[str, TaskVerdicts]:
        """Return the verdicts of each task, in the order of the records."""
        return verdicts_of_all_tasks(self.entries)

    @property
    def mean_reward(self) -> Interval | None:
        """Mean score of the verdicts; None unless a record has a reward."""
        if not REWARDS & self.provenance.labels.get("grading", Counter()).keys():
            return None
        scores = ((each.task_id, each.score) for each in self.entries)
        return mean_reward(
            AttemptReward(task, score) for task, score in scores if score is not None
        )

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
        tries_by_others=int(as_number(summary.get("tries_by_others")) or 0),
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


_Word = TypeVar("_Word", bound=StrEnum)

LISTED = 10
"""Maximum number of slow and of flaky tasks that are listed."""

GROUPS = 30
"""So many groups of a breakdown are shown, those with the most tasks."""


class Group(NamedTuple):
    """A part of the tasks with its score."""

    name: str
    tasks: int
    score: Interval | None


class Breakdown(NamedTuple):
    """The score by a property of tasks.

    Args:
        by: The property.
        groups: By name; at most ``GROUPS``.
        left_out: Groups beyond that.
    """

    by: str
    groups: tuple[Group, ...]
    left_out: int


class Spread(NamedTuple):
    """A distribution in five numbers."""

    least: float
    median: float
    p90: float
    p99: float
    most: float


class FlakyTask(NamedTuple):
    """A task whose attempts do not agree."""

    task_id: str
    verdicts: TaskVerdicts


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that the head of a report shows.

    Attributes:
        tasks: Number of tasks.
        verified: Attempts with a verdict.
        passed: Those that passed.
        score: Share of verdicts that passed; None without a verdict.
        mean_reward: Mean score of the verdicts; None unless a record has a reward.
        pass_at_k: pass@1 to pass@n, n attempts per task; empty for one attempt.
        breakdowns: The score by family, difficulty and tag, where there are several.
        outcomes: Attempts by outcome, the most frequent first.
        reasons: Attempts that did not pass by reason, the most frequent first.
        seconds: Durations of the attempts that were launched; None without any.
        tokens: Sums; None without a provider.
        cost: Cost of all attempts; None without a price table.
        slowest: The slowest attempts.
        flakiest: Tasks of which some attempts passed and some failed, the most divided first.
    """

    tasks: int
    verified: int
    passed: int
    score: Interval | None
    mean_reward: Interval | None
    pass_at_k: tuple[PassAtK, ...]
    breakdowns: tuple[Breakdown, ...]
    outcomes: Mapping[str, int]
    reasons: Mapping[str, int]
    seconds: Spread | None
    tokens: Tokens | None
    cost: Cost | None
    slowest: tuple[Entry, ...]
    flakiest: tuple[FlakyTask, ...]


def overview(results: ResultSet) -> Overview:
    """Compute the figures of a run."""
    entries, counts, by_task = results.entries, results.verdict_counts(), results.by_task()
    launched = [entry for entry in entries if entry.launches]
    return Overview(
        tasks=len(by_task),
        verified=sum(entry.passed is not None for entry in entries),
        passed=sum(entry.passed is True for entry in entries),
        score=pass_rate(counts),
        mean_reward=results.mean_reward,
        pass_at_k=pass_at_each_k(counts),
        breakdowns=tuple(_breakdowns(entries)),
        outcomes=dict(Counter(entry.outcome or "none" for entry in entries).most_common()),
        reasons=dict(Counter(entry.reason for entry in entries if entry.reason).most_common()),
        seconds=spread([entry.seconds for entry in launched]) if launched else None,
        tokens=total_tokens(entries),
        cost=results.cost,
        slowest=tuple(sorted(launched, key=lambda entry: -entry.seconds)[:LISTED]),
        flakiest=_flakiest(by_task),
    )


def spread(values: Sequence[float]) -> Spread:
    """Summarise at least one value."""
    if len(values) == 1:
        return Spread(*[values[0]] * 5)
    cuts = quantiles(values, n=100, method="inclusive")
    return Spread(min(values), median(values), cuts[89], cuts[98], max(values))


def total_tokens(entries: Iterable[Entry]) -> Tokens | None:
    """Add up the tokens of attempts; None if no attempt used a provider."""
    used = [entry.tokens for entry in entries if entry.tokens is not None]
    return Tokens(*map(sum, zip(*used, strict=True))) if used else None


def provenance_sentence(provenance: Provenance) -> str:
    """Say in one sentence what a score rests on.

    Source: the labels of a record (records.md).
    """
    conditions = (
        f"Isolation was {_either(provenance, 'isolation', _ISOLATION)}; agents had"
        f" {_either(provenance, 'network', _NETWORK)}"
    )
    if not provenance.labels.get("grading"):
        return f"{conditions}."
    return (
        f"{conditions}; verdicts rest on {_either(provenance, 'grading', _GRADING, counted=True)}."
    )


_ISOLATION = {
    IsolationLabel.VERIFIED: "proven by a canary before the first task",
    IsolationLabel.DECLARED: "declared by the administrator, not measured",
}
_NETWORK = {
    Network.NONE: "no network",
    Network.EGRESS: "the run's gateway as their only way to the network",
}
_GRADING = {
    Grading.VALUES: "tests that compared plain values",
    Grading.OBJECTS: "tests that went through objects of the candidate",
    Grading.IN_PROCESS: "tests in one interpreter with the candidate, which may have changed them",
    Grading.TESTS: "counted tests, beside which the candidate's code may have run",
    Grading.EXIT_CODE: "the exit code of a command alone",
    Grading.REWARD_FILE: "a reward that a script wrote beside the candidate's files, which may have"
    " written it",
    Grading.REWARD_FILE_ROOT: "a reward that a script wrote where the candidate had changed the"
    " file system, and may have written it",
    Grading.REWARD_FILE_ARTIFACTS: "a reward that a script wrote beside the candidate's artifacts"
    " alone, which may have written it if it ran them",
}
"""Without a label no code ran: a scorer compared texts, or there was nothing to judge."""


def _either(
    provenance: Provenance, label: str, words: Mapping[_Word, str], *, counted: bool = False
) -> str:
    values = provenance.labels.get(label) or Counter({"unknown": 1})
    said = {str(value): text for value, text in words.items()}
    if len(values) == 1 and not counted:
        return said.get(next(iter(values)), "unknown")
    total = values.total()
    return " or ".join(
        f"{said.get(value, value)} ({count} of {total})" for value, count in values.most_common()
    )


def _breakdowns(entries: Sequence[Entry]) -> Iterator[Breakdown]:
    properties: dict[str, Callable[[Entry], Iterable[str]]] = {
        "family": lambda entry: (entry.family,),
        "difficulty": lambda entry: (entry.difficulty,) if entry.difficulty else (),
        "tag": lambda entry: entry.tags,
    }
    for by, names in properties.items():
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            for name in dict.fromkeys(names(entry)):
                found[name].append(entry)
        if len(found) > 1:
            groups = sorted((group_of(*each) for each in found.items()), key=_fewest_tasks_last)
            shown = sorted(groups[:GROUPS], key=lambda group: group.name)
            yield Breakdown(by, tuple(shown), len(groups) - len(shown))


def _fewest_tasks_last(group: Group) -> tuple[int, str]:
    return -group.tasks, group.name


def group_of(name: str, entries: Sequence[Entry]) -> Group:
    """Return the score of some attempts, under a name."""
    tasks = verdicts_of_all_tasks(tuple(entries))
    return Group(name, len(tasks), pass_rate(verdict_counts(tasks.values())))


def _flakiest(by_task: Mapping[str, TaskVerdicts]) -> tuple[FlakyTask, ...]:
    divided = [
        FlakyTask(task_id, verdicts)
        for task_id, verdicts in by_task.items()
        if 0 < verdicts.passed < verdicts.verified
    ]
    return tuple(sorted(divided, key=lambda task: abs(task.verdicts.rate - 0.5))[:LISTED])
