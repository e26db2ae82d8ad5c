"""Two runs of one benchmark, task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from securebench.analysis.results import ResultSet
from securebench.stats.intervals import Interval, pass_rate
from securebench.stats.paired import LEVEL, Difference, Pair, paired_difference
from securebench.stats.verdicts import TaskVerdicts

_DECISIVE = {
    "pack": "they worked on different packs",
    "verifier": "they were graded by different versions of the verifier",
    "verifier image": "their checks ran in different images",
}
"""Digests that a fair comparison shares. The harness is what is compared; its image follows it."""


class Flip(NamedTuple):
    """A task whose pass rate differs between the runs.

    Args:
        why: Reasons of the attempts that did not pass, of both runs.
    """

    task_id: str
    before: TaskVerdicts
    after: TaskVerdicts
    why: str

    @property
    def has_gained(self) -> bool:
        """Whether the second run did better."""
        return self.after.rate > self.before.rate


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run compared with the first.

    Attributes:
        before: Score of the first run, over all its tasks.
        after: Score of the second.
        difference: Over the tasks with a verdict in both; None without any.
        flips: Tasks whose pass rate changed: lost ones first, in the order of the first run.
        only_before: Tasks with a verdict in the first run only.
        only_after: Tasks with a verdict in the second run only.
        warnings: Why the two may not be comparable.
    """

    first: ResultSet
    second: ResultSet
    before: Interval | None
    after: Interval | None
    difference: Difference | None
    flips: tuple[Flip, ...]
    only_before: int
    only_after: int
    warnings: tuple[str, ...]


def compare(first: ResultSet, second: ResultSet) -> Comparison:
    """Compare two runs."""
    one, two = _verified(first), _verified(second)
    pairs = {task: Pair(one[task], two[task]) for task in one if task in two}
    flips = tuple(_flips(first, second, pairs))
    return Comparison(
        first=first,
        second=second,
        before=pass_rate(first.kinds()),
        after=pass_rate(second.kinds()),
        difference=paired_difference(tuple(pairs.values())),
        flips=tuple(sorted(flips, key=lambda flip: flip.has_gained)),
        only_before=len(one) - len(pairs),
        only_after=len(two) - len(pairs),
        warnings=tuple(_warnings(first, second)),
    )


def verdict_sentence(comparison: Comparison) -> str:
    """Say in one sentence what the comparison shows."""
    found = comparison.difference
    if found is None:
        return "The runs have no task with a verdict in common."
    size = f"{abs(found.value) * 100:.1f} points"
    bounds = f"95 % interval {found.low * 100:+.1f} to {found.high * 100:+.1f}"
    evidence = f"({bounds}, p = {found.p_value:.3g}, {found.tasks} tasks)"
    if found.p_value <= LEVEL:
        direction = "better" if found.value > 0 else "worse"
        return f"{comparison.second.name} is {direction} by {size} {evidence}."
    return (
        f"No difference is shown {evidence}; so many tasks show one of"
        f" {found.detectable * 100:.1f} points or more."
    )


def _verified(results: ResultSet) -> dict[str, TaskVerdicts]:
    return {task: verdicts for task, verdicts in results.by_task().items() if verdicts.verified}


def _flips(first: ResultSet, second: ResultSet, pairs: Mapping[str, Pair]) -> Iterator[Flip]:
    before, after = _reasons(first), _reasons(second)
    for task, pair in pairs.items():
        if pair.change:
            why = "; ".join(filter(None, (before.get(task), after.get(task))))
            yield Flip(task, pair.before, pair.after, why)


def _reasons(results: ResultSet) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in results.entries:
        if entry.passed is False:
            said = f"{entry.reason}: {entry.details}" if entry.details else entry.reason
            found.setdefault(entry.task_id, f"{results.name}: {said}")
    return found


def _warnings(first: ResultSet, second: ResultSet) -> Iterator[str]:
    if first.benchmark_id != second.benchmark_id:
        yield f"The runs are of different benchmarks: {first.benchmark_id}, {second.benchmark_id}."
    one, two = first.basis, second.basis
    for name, problem in _DECISIVE.items():
        if set(one.digests.get(name, ())) != set(two.digests.get(name, ())):
            yield f"The scores may differ for another reason than the agent: {problem}."
    for name in sorted({*one.labels, *two.labels}):
        before, after = one.labels.get(name, Counter()), two.labels.get(name, Counter())
        if set(before) != set(after):
            yield f"Their conditions differ: {name} was {_listed(before)}, then {_listed(after)}."


def _listed(values: Counter[str]) -> str:
    return " or ".join(sorted(values)) or "not recorded"
