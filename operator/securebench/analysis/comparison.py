"""Two runs of one benchmark, task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from securebench.analysis.results import Entry, ResultSet
from securebench.stats.intervals import Interval, pass_rate
from securebench.stats.paired import LEVEL, Difference, Pair, paired_difference
from securebench.stats.verdicts import TaskVerdicts

_DECISIVE = {
    "pack": "they worked on different packs",
    "verifier": "they were graded by different versions of the verifier",
    "policy": "their limits, isolation or verification rules differ",
}
"""Digests that a fair comparison shares. The harness is what is compared."""

_IMAGES = {
    "harness": "agents worked in different images",
    "verifier": "checks ran in different images",
}
"""Roles of a task's Pods; overlays with agents' CLIs are no part of these images."""


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
        changed_rows: Tasks that are left out because their row differs.
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
    changed_rows: int
    warnings: tuple[str, ...]


def compare(first: ResultSet, second: ResultSet) -> Comparison:
    """Compare two runs."""
    one, two = _verified(first), _verified(second)
    common = [task for task in one if task in two]
    rows = _differing(first, second, common, lambda entry: entry.row)
    pairs = {task: Pair(one[task], two[task]) for task in common if task not in rows}
    flips = tuple(_flips(first, second, pairs))
    return Comparison(
        first=first,
        second=second,
        before=pass_rate(first.kinds()),
        after=pass_rate(second.kinds()),
        difference=paired_difference(tuple(pairs.values())),
        flips=tuple(sorted(flips, key=lambda flip: flip.has_gained)),
        only_before=len(one) - len(common),
        only_after=len(two) - len(common),
        changed_rows=len(rows),
        warnings=tuple(_warnings(first, second, pairs)),
    )


def verdict_sentence(comparison: Comparison) -> str:
    """Say in one sentence what the comparison shows."""
    found = comparison.difference
    if found is None:
        return "The runs have no task with a verdict in common."
    bounds = f"95 % interval {found.low * 100:+.1f} to {found.high * 100:+.1f}"
    evidence = f"({bounds}, p = {found.p_value:.3g}, {found.tasks} tasks)"
    if found.p_value <= LEVEL:
        direction = "better" if found.value > 0 else "worse"
        size = f"{abs(found.value) * 100:.1f} points"
        return f"{comparison.second.name} is {direction} by {size} {evidence}."
    said = f"A difference of {found.value * 100:+.1f} points {evidence} may be chance"
    if not found.value:
        said = f"No difference was seen {evidence}"
    if found.detectable is None:
        return f"{said}; so few tasks can show none."
    return (
        f"{said}; with {found.tasks} tasks a true difference of"
        f" {found.detectable * 100:.1f} points would be found 4 times in 5."
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


def _warnings(first: ResultSet, second: ResultSet, compared: Collection[str]) -> Iterator[str]:
    for run in (first, second):
        if not run.has_ended:
            yield f"{run.name} has not ended: it has {len(run.entries)} records so far."
    if first.benchmark_id != second.benchmark_id:
        yield f"The runs are of different benchmarks: {first.benchmark_id}, {second.benchmark_id}."
    yield from _other_digests(first, second, compared)
    one, two = first.basis, second.basis
    for name in sorted({*one.labels, *two.labels}):
        before, after = one.labels.get(name, Counter()), two.labels.get(name, Counter())
        if set(before) != set(after):
            yield f"Their conditions differ: {name} was {_listed(before)}, then {_listed(after)}."


def _other_digests(first: ResultSet, second: ResultSet, compared: Collection[str]) -> Iterator[str]:
    one, two = first.basis, second.basis
    for name, problem in _DECISIVE.items():
        before, after = set(one.digests.get(name, ())), set(two.digests.get(name, ()))
        if before and after and before != after:
            yield f"The scores may differ for another reason than the agent: {problem}."
    for role, problem in _IMAGES.items():
        count = len(_differing(first, second, compared, partial(_image, role)))
        if count:
            yield (
                "The scores may differ for another reason than the agent:"
                f" of {count} tasks the {problem}."
            )


def _image(role: str, entry: Entry) -> str:
    return entry.images.get(role, "")


def _differing(
    first: ResultSet,
    second: ResultSet,
    tasks: Iterable[str],
    value: Callable[[Entry], str],
) -> frozenset[str]:
    """Return the tasks of which a value is known in both runs and not the same."""
    one, two = _values(first, value), _values(second, value)
    return frozenset(
        task for task in tasks if task in one and task in two and one[task] != two[task]
    )


def _values(results: ResultSet, value: Callable[[Entry], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in results.entries:
        if value(entry):
            found.setdefault(entry.task_id, set()).add(value(entry))
    return found


def _listed(values: Counter[str]) -> str:
    return " or ".join(sorted(values)) or "not recorded"
