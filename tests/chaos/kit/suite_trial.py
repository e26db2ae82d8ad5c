"""One disturbed suite in memory, from its injections to its verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

import chaos.faults  # noqa: F401 - registers the injectors
from chaos.kit.catalogue import Kind
from chaos.kit.registry import INJECTORS, Injector
from chaos.kit.scene import Injection, Moment, records
from chaos.kit.suite_scene import (
    APPLIED,
    COMPARED,
    CREATED,
    ENDED,
    JUDGED,
    REMEMBERED,
    RUN,
    SHORTENED,
    STARTED,
    STATED,
    SUITE,
    TICK,
    SuiteScene,
    suite_scene,
)
from chaos.kit.trial import folder, unfelt
from chaos.kit.verdict import Course, Verdict, judge
from securebench.cluster.port import ObjectKind
from securebench.controller.suite_store import SuiteStore
from securebench.controller.volume.journal import read_journal
from securebench.controller.volume.registers import RunIndex

COUNTS: Mapping[Moment, int] = {
    APPLIED: 1,
    TICK: 1,
    REMEMBERED: 3,
    JUDGED: 2,
    COMPARED: 6,
    SHORTENED: 2,
    CREATED: 5,
    STARTED: 5,
    ENDED: 5,
    STATED: 5,
}
"""How often each stage is reached for certain, with something still to come."""


class SuiteCourse(NamedTuple):
    """What a suite and its runs left.

    Attributes:
        said: What the suite said at the end of each round, without times.
        runs: What each run left, by name.
        starts: How often runs of a name were begun.
        left: Names of the BenchmarkRuns that are there.
        good: Names of the runs that the next round is compared with, by cell.
        effects: Points before and after effects of the suite's loop that were passed.
    """

    said: Sequence[Mapping[str, Any]]
    runs: Mapping[str, Course]
    starts: Mapping[str, int]
    left: Sequence[str]
    good: Mapping[str, str]
    effects: int = 0


def course_of(played: SuiteScene) -> SuiteCourse:
    """Read everything that a suite and its runs left."""
    entries = RunIndex(played.root).entries()
    state = SuiteStore(played.root, played.suite()["metadata"]["uid"]).read()
    assert state is not None
    return SuiteCourse(
        played.said,
        {entry.run: _run_course(played, entry.uid) for entry in entries},
        Counter(entry.run for entry in entries),
        sorted(played.cluster.objects(RUN)),
        {cell: good.run for cell, good in state.latest_good.items()},
        played.effects,
    )


def _run_course(played: SuiteScene, uid: str) -> Course:
    journal = read_journal(played.root / "runs" / uid, uid)
    return Course(journal.entries, records(played.root, uid))


@cache
def undisturbed_suite(*, is_scheduled: bool) -> SuiteCourse:
    """Return what the suite that nothing disturbs leaves."""
    with folder() as root, suite_scene(root, 0, is_scheduled=is_scheduled) as quiet:
        assert quiet.play()
        assert [*_troubles(quiet)] == []
        found = course_of(quiet)
    first, second = (said["GatesPassed"] for said in found.said)
    assert (first[1], second[1]) == ("GatesPassed", "GatesFailed")
    assert "notWorse: smoke/b is worse" in second[2]
    return found


def disturbed_suite(faults: Sequence[Kind], seed: int) -> Verdict:
    """Play a suite with these faults, each at a stage of its own.

    Args:
        faults: The kinds.
        seed: Of the stages, of whether the suite has a schedule, and of what the injectors choose.
    """
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    injectors = [INJECTORS[kind.name] for kind in faults]
    needs_schedule = any(TICK in injector.moments for injector in injectors)
    is_scheduled = needs_schedule or random.random() < 1 / 2
    quiet = undisturbed_suite(is_scheduled=is_scheduled)
    with folder() as root, suite_scene(root, seed, is_scheduled=is_scheduled) as played:
        played.injections += [_injection(injector, random) for injector in injectors]
        return judged_suite(played, quiet)


def judged_suite(played: SuiteScene, quiet: SuiteCourse) -> Verdict:
    """Play a suite and compare it with the undisturbed one."""
    if not played.play():
        problems = ("the suite does not end", *_troubles(played))
        return Verdict(problems, Counter(), is_equal=False)
    found = course_of(played)
    problems = [*_troubles(played), *_differences(found, quiet)]
    verdicts = [
        judge(course, quiet.runs[name], ())
        for name, course in found.runs.items()
        if name in quiet.runs
    ]
    problems += [problem for verdict in verdicts for problem in verdict.problems]
    lost = sum((verdict.lost for verdict in verdicts), Counter[str]())
    return Verdict(tuple(problems), lost, all(verdict.is_equal for verdict in verdicts))


def _injection(injector: Injector, random: Random) -> Injection:
    moment = random.choice(injector.moments)
    return Injection(moment, random.randint(1, COUNTS[moment]), injector.act)


def _differences(found: SuiteCourse, quiet: SuiteCourse) -> Iterator[str]:
    """Yield where a suite is not the undisturbed one."""
    for name, count in found.starts.items():
        if count > 1:
            yield f"{name} was begun {count} times"
    if found.starts.keys() != quiet.starts.keys():
        yield f"runs that were begun: {sorted(found.starts)}, not {sorted(quiet.starts)}"
    pairs = zip(map(_without_order, found.said), map(_without_order, quiet.said), strict=True)
    for number, (said, wanted) in enumerate(pairs, start=1):
        for key in sorted(said.keys() | wanted):
            if said.get(key) != wanted.get(key):
                yield f"round {number}: {key} is {said.get(key)}, not {wanted.get(key)}"
    if found.left != quiet.left:
        yield f"runs that are left: {found.left}, not {quiet.left}"
    if found.good != quiet.good:
        yield f"results that count: {found.good}, not {quiet.good}"


def _without_order(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out which of two cells of one agent, model and pack was started first.

    Runs are started side by side: an operator that dies may start the second one first.
    """
    results = [{key: cell[key] for key in cell if key != "agentTries"} for cell in said["results"]]
    conditions = {
        key: tuple(re.sub(r" \| runs of this agent and model.*", "", text) for text in value)
        for key, value in said.items()
        if key != "results"
    }
    return {**conditions, "results": results}


def _troubles(played: SuiteScene) -> Iterator[str]:
    """Yield what is wrong besides what a suite and its runs left."""
    yield from unfelt(played)
    yield from played.errors.lines
    left = [view.name for view in played.views() if view.deleting_since is None]
    if left:
        yield f"Pods are left: {left}"
    if played.suites.failed or played.supervisor.failed:
        yield "a loop has failed"
    if SUITE not in played.cluster.objects(ObjectKind.BENCHMARK_SUITE):
        yield "the suite is gone"
