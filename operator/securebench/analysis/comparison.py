"""Two runs of one benchmark task by task, and the noise of one run.

Noise is what the cluster did to the attempts: waiting, losses, memory, differing nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import NamedTuple

from securebench.analysis.results import Entry, Fields, ResultSet
from securebench.json_values import object_at, text_at
from securebench.run.api.field_types import Outcome
from securebench.run.observe.launches import launch_notes, launch_stages, launches_of
from securebench.run.records.reading import AttemptVerdicts, incomparable, look_evidence
from securebench.run.records.reading import compare_in_looks as looks_at
from securebench.stats.intervals import Interval, TaskVerdicts, pass_rate
from securebench.stats.paired import LEVEL, Difference, Pair, holm, paired_difference
from securebench.stats.sequential import Course

_IMAGES = {
    "harness": "agents worked in different images",
    "verifier": "checks ran in different images",
}
"""Roles of a task's Pods; overlays with agents' CLIs are no part of these images."""


_NO_VERDICT = TaskVerdicts(0, 0)


class Flip(NamedTuple):
    """A task whose pass rate differs between the runs.

    Args:
        why: Reasons of the attempts that did not pass, of both runs.
    """

    task_id: str
    baseline: TaskVerdicts
    candidate: TaskVerdicts
    why: str

    @property
    def has_gained(self) -> bool:
        """Whether the candidate did better."""
        return self.candidate.rate > self.baseline.rate


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate run compared with a baseline.

    Attributes:
        baseline_score: Over all its tasks; None without a verdict.
        candidate_score: The same of the candidate.
        difference: Over the tasks with a verdict in both; None without any.
        flips: Tasks whose pass rate changed: lost ones first, in the order of the baseline.
        only_baseline: Tasks with a verdict in the baseline only.
        only_candidate: Tasks with a verdict in the candidate only.
        changed_rows: Tasks that are left out because their row differs.
        warnings: Why the two may not be comparable.
        compared: With how many candidates the baseline is compared at once.
        p_value: P value of the difference, corrected for that number (Holm); None without a common
            task.
    """

    baseline: ResultSet
    candidate: ResultSet
    baseline_score: Interval | None
    candidate_score: Interval | None
    difference: Difference | None
    flips: tuple[Flip, ...]
    only_baseline: int
    only_candidate: int
    changed_rows: int
    warnings: tuple[str, ...]
    compared: int
    p_value: float | None


def compare_all(baseline: ResultSet, candidates: Sequence[ResultSet]) -> list[Comparison]:
    """Compare a run with several others, with p-values that are corrected for their number."""
    found = [compare(baseline, candidate) for candidate in candidates]
    tested = [each.p_value for each in found if each.p_value is not None]
    corrected = iter(holm(tested))
    return [
        each
        if each.p_value is None
        else replace(each, p_value=next(corrected), compared=len(tested))
        for each in found
    ]


def compare(baseline: ResultSet, candidate: ResultSet) -> Comparison:
    """Compare two runs task by task."""
    old, new = _verified(baseline), _verified(candidate)
    common = [task for task in old if task in new]
    rows = _differing(baseline, candidate, common, lambda entry: entry.row)
    pairs = {task: Pair(old[task], new[task]) for task in common if task not in rows}
    flips = tuple(_flips(baseline, candidate, pairs))
    difference = paired_difference(tuple(pairs.values()))
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        baseline_score=pass_rate(baseline.verdict_counts()),
        candidate_score=pass_rate(candidate.verdict_counts()),
        difference=difference,
        flips=tuple(sorted(flips, key=lambda flip: flip.has_gained)),
        only_baseline=len(old) - len(common),
        only_candidate=len(new) - len(common),
        changed_rows=len(rows),
        warnings=tuple(_warnings(baseline, candidate, pairs)),
        compared=1,
        p_value=None if difference is None else difference.p_value,
    )


def compare_in_looks(baseline: ResultSet, candidate: ResultSet, looks: int) -> Course:
    """Compare two runs after each part of the baseline's tasks, also while the candidate goes on.

    Args:
        baseline: Has ended.
        candidate: Perhaps under way.
        looks: How many looks are planned.

    Source: ``run.records.reading``.
    """
    old, new = _attempts(baseline), _attempts(candidate)
    return looks_at(old, new, _differing(baseline, candidate, old, lambda entry: entry.row), looks)


def _attempts(results: ResultSet) -> AttemptVerdicts:
    found: dict[str, dict[int, bool | None]] = {}
    for entry in results.entries:
        if entry.outcome != Outcome.CANCELLED:
            found.setdefault(entry.task_id, {})[entry.attempt] = entry.passed
    return found


def attempt_flips(baseline: ResultSet, candidate: ResultSet) -> tuple[Flip, ...]:
    """Return the tasks of which an attempt has another verdict, or one in a single run only.

    Attempts are compared by their numbers, and rows may differ: for a run that graded another one
    again. Tasks that did worse come first, each group in the order of the baseline.
    """
    old, new = _verdicts(baseline), _verdicts(candidate)
    tasks = dict.fromkeys([*baseline.by_task(), *candidate.by_task()])
    before, after = baseline.by_task(), candidate.by_task()
    reasons = _reasons(baseline), _reasons(candidate)
    flips = (
        Flip(
            task,
            before.get(task, _NO_VERDICT),
            after.get(task, _NO_VERDICT),
            "; ".join(filter(None, (each.get(task) for each in reasons))),
        )
        for task in tasks
        if old.get(task, {}) != new.get(task, {})
    )
    return tuple(sorted(flips, key=lambda flip: flip.candidate.passed >= flip.baseline.passed))


def _verdicts(results: ResultSet) -> dict[str, dict[int, bool]]:
    found: dict[str, dict[int, bool]] = {}
    for entry in results.entries:
        if entry.passed is not None:
            found.setdefault(entry.task_id, {})[entry.attempt] = entry.passed
    return found


def conclusion(comparison: Comparison) -> str:
    """Say in one sentence what the comparison shows."""
    found, p_value = comparison.difference, comparison.p_value
    if found is None or p_value is None:
        return "The runs have no task with a verdict in common."
    bounds = f"95 % interval {found.low * 100:+.1f} to {found.high * 100:+.1f}"
    corrected = f" for {comparison.compared} comparisons" if comparison.compared > 1 else ""
    evidence = f"({bounds}, p = {p_value:.3g}{corrected}, {found.tasks} tasks)"
    if p_value <= LEVEL:
        direction = "better" if found.value > 0 else "worse"
        size = f"{abs(found.value) * 100:.1f} points"
        return f"{comparison.candidate.name} is {direction} by {size} {evidence}."
    said = f"A difference of {found.value * 100:+.1f} points {evidence} may be chance"
    if not found.value:
        said = f"No difference was seen {evidence}"
    if found.detectable is None:
        return f"{said}; so few tasks can show none."
    return (
        f"{said}; with {found.tasks} tasks a true difference of"
        f" {found.detectable * 100:.1f} points would be found 4 times in 5."
    )


def sequential_conclusion(candidate: ResultSet, found: Course) -> str:
    """Say in one sentence whether the looks at a comparison decide it.

    Args:
        candidate: The run that is compared.
        found: Its looks so far.
    """
    end = ""
    if candidate.has_ended:
        end = f", and {candidate.name} has ended: only a run that resumes it gets there"
    if not found.taken:
        return (
            f"No look yet: the first of {found.planned} needs {found.next_tasks} of {found.tasks}"
            f" tasks, {found.done} are done{end}."
        )
    look = found.taken[-1]
    evidence, place = look_evidence(look, found.tasks), f"look {look.number} of {found.planned}"
    if look.is_decisive:
        direction = "better" if look.value > 0 else "worse"
        return f"Decided at {place}: {candidate.name} is {direction} {evidence}."
    if found.next_tasks is None:
        return f"No difference was shown by {place}, the last {evidence}."
    return f"Not decided at {place} {evidence}: the next needs {found.next_tasks} tasks{end}."


def _verified(results: ResultSet) -> dict[str, TaskVerdicts]:
    return {task: verdicts for task, verdicts in results.by_task().items() if verdicts.verified}


def _flips(baseline: ResultSet, candidate: ResultSet, pairs: Mapping[str, Pair]) -> Iterator[Flip]:
    before, after = _reasons(baseline), _reasons(candidate)
    for task, pair in pairs.items():
        if pair.change:
            why = "; ".join(filter(None, (before.get(task), after.get(task))))
            yield Flip(task, pair.baseline, pair.candidate, why)


def _reasons(results: ResultSet) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in results.entries:
        if entry.passed is False:
            said = f"{entry.reason}: {entry.details}" if entry.details else entry.reason
            found.setdefault(entry.task_id, f"{results.name}: {said}")
    return found


_CONDITIONS: Mapping[str, str] = {
    "audit": "audit (a run of the harness oracle or nop)",
    "pack_audit": "pack_audit (whether the pack passed securebench audit)",
}
"""Labels of records whose names do not say enough."""


def _warnings(
    baseline: ResultSet, candidate: ResultSet, compared: Collection[str]
) -> Iterator[str]:
    for run in (baseline, candidate):
        if not run.has_ended:
            yield f"{run.name} has not ended: it has {len(run.entries)} records so far."
    if baseline.benchmark_id != candidate.benchmark_id:
        yield (
            "The runs are of different benchmarks:"
            f" {baseline.benchmark_id}, {candidate.benchmark_id}."
        )
    yield from _other_digests(baseline, candidate, compared)
    old, new = baseline.provenance, candidate.provenance
    for name in sorted({*old.labels, *new.labels}):
        before, after = old.labels.get(name, Counter()), new.labels.get(name, Counter())
        if set(before) != set(after):
            what = _CONDITIONS.get(name, name)
            yield f"Their conditions differ: {what} was {_listed(before)}, then {_listed(after)}."


def _other_digests(
    baseline: ResultSet, candidate: ResultSet, compared: Collection[str]
) -> Iterator[str]:
    for problem in incomparable(baseline.provenance.decisive, candidate.provenance.decisive):
        yield f"The scores may differ for another reason than the agent: {problem}."
    for role, problem in _IMAGES.items():
        count = len(_differing(baseline, candidate, compared, partial(_image, role)))
        if count:
            yield (
                "The scores may differ for another reason than the agent:"
                f" of {count} tasks the {problem}."
            )


def _image(role: str, entry: Entry) -> str:
    return entry.images.get(role, "")


def _differing(
    baseline: ResultSet,
    candidate: ResultSet,
    tasks: Iterable[str],
    value: Callable[[Entry], str],
) -> frozenset[str]:
    """Return the tasks of which a value is known in both runs and not the same."""
    old, new = _values(baseline, value), _values(candidate, value)
    return frozenset(
        task for task in tasks if task in old and task in new and old[task] != new[task]
    )


def _values(results: ResultSet, value: Callable[[Entry], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in results.entries:
        if value(entry):
            found.setdefault(entry.task_id, set()).add(value(entry))
    return found


def _listed(values: Counter[str]) -> str:
    return " or ".join(sorted(values)) or "not recorded"


_UNKNOWN_NODE = "unknown"


class StageTime(NamedTuple):
    """How long a stage of launches took.

    Args:
        launches: That have times for it.
        median: In seconds.
        most: In seconds.
    """

    name: str
    launches: int
    median: float
    most: float


class NodeTime(NamedTuple):
    """Launches on one node; ``median`` is of the seconds that their main container ran."""

    name: str
    launches: int
    median: float | None


class Noise(NamedTuple):
    """Resource noise of a run.

    Args:
        repeated: Attempts that needed more launches than others of their family.
        killed: Attempts with a process that was killed at its memory limit.
        notes: What the summary and the launches say of losses and limits, a sentence each.
        stages: In the order of a launch; empty without launches.
        nodes: By name; empty without launches.
    """

    repeated: int
    killed: int
    notes: tuple[str, ...]
    stages: tuple[StageTime, ...]
    nodes: tuple[NodeTime, ...]


def noise(results: ResultSet) -> Noise:
    """Collect the noise of a run from its records and, where there are, its launches."""
    least: dict[str, int] = {}
    begun = [entry for entry in results.entries if entry.launches]
    for entry in begun:
        if entry.passed is not None:
            least[entry.family] = min(entry.launches, least.get(entry.family, entry.launches))
    launches = [launch for attempt in results.launches for launch in launches_of(attempt)]
    return Noise(
        repeated=sum(entry.launches > least.get(entry.family, entry.launches) for entry in begun),
        killed=sum(entry.memory_kills > 0 for entry in results.entries),
        notes=(*_summary_notes(results), *launch_notes(results.launches)),
        stages=tuple(_stages(launches)),
        nodes=tuple(_nodes(launches)),
    )


def _summary_notes(results: ResultSet) -> Iterator[str]:
    noisy = ", ".join(f"{how} {count}" for how, count in results.noisy_launches.items())
    if noisy:
        yield f"of all launches, also those that passed, met a limit: {noisy}"


def _stages(launches: Sequence[Fields]) -> Iterator[StageTime]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for launch in launches:
        for stage in launch_stages(launch, object_at(launch, "evidence")):
            if stage.begin is not None and stage.end is not None:
                # Kubernetes rounds its times down to seconds.
                seconds[stage.name].append(max(0.0, stage.end - stage.begin))
    for name, found in seconds.items():
        yield StageTime(name, len(found), median(found), max(found))


def _nodes(launches: Sequence[Fields]) -> Iterator[NodeTime]:
    seconds: dict[str, list[float | None]] = defaultdict(list)
    for launch in launches:
        evidence = object_at(launch, "evidence")
        node = text_at(evidence, "node") or text_at(object_at(launch, "facts"), "node")
        ran = next(
            (
                stage.end - stage.begin
                for stage in launch_stages(launch, evidence)
                if stage.name == "ran" and stage.begin is not None and stage.end is not None
            ),
            None,
        )
        seconds[node or _UNKNOWN_NODE].append(ran)
    for name in sorted(seconds):
        known = [each for each in seconds[name] if each is not None]
        yield NodeTime(name, len(seconds[name]), median(known) if known else None)
