"""Figures of one run: score with interval, pass@k, breakdowns, slow and flaky tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from securebench.analysis.results import Entry, Provenance, ResultSet, verdicts_of_all_tasks
from securebench.run.records.labels import Grading, IsolationLabel, Network
from securebench.stats.cost import Cost, Tokens
from securebench.stats.intervals import Interval, PassAtK, pass_at_each_k, pass_rate
from securebench.stats.verdicts import TaskVerdicts, verdict_counts

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
