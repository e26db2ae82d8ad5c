"""Faults of the local node under an installed chart: one run for each kind, two faults in it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from chaos.kit.catalogue import Kind, kinds
from chaos.kit.node_run import END, SETTLED, TASKS, NodeRun, pack, start
from chaos.kit.table import ROWS
from chaos.kit.verdict import Course, Verdict, judge
from chaos.node_faults import DAEMON_FAULTS, NODE_FAULTS, Fault
from e2e.egress import egress_release
from support.node import is_local
from support.release import Release
from support.waiting import until

FAULTS = NODE_FAULTS | DAEMON_FAULTS
INJECTIONS = 2
APART = 2
"""Attempts that end between two faults of a run."""


def test_every_kind_of_the_node_has_a_fault() -> None:
    assert [kind.name for kind in kinds("node")] == list(NODE_FAULTS)
    assert [kind.name for kind in kinds("daemons")] == list(DAEMON_FAULTS)


@pytest.fixture(scope="module")
def own() -> Iterator[Release]:
    """A release whose gateways look at the fake internet, with the pack of all runs."""
    if not is_local():
        pytest.skip("these faults are brought about on the local node")
    with egress_release("sb-chaos-node") as installed:
        installed.create(pack()[0])
        yield installed


@pytest.fixture(scope="module")
def quiet(own: Release) -> Course:
    """Return what the run that nothing disturbs leaves."""
    run = start(own)
    course = run.course()
    assert run.reason == END
    assert {record["passed"] for record in course.records} == {True, False}
    return course


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*kinds("node"), *kinds("daemons")], ids=lambda kind: kind.name)
def test_the_records_do_not_show_the_fault(kind: Kind, own: Release, quiet: Course) -> None:
    run = start(own)
    injected = inject(run, FAULTS[kind.name], Random(kind.name))  # noqa: S311 - repeatable, not secret
    found = judge(run.course(), quiet, kind.lost)
    verdict = Verdict((*troubles(run), *found.problems), found.lost, found.is_equal)
    ROWS.add(kind.name, verdict, injections=injected)
    assert verdict.problems == ()


def inject(run: NodeRun, fault: Fault, random: Random) -> int:
    """Bring a fault about again and again; return how often."""
    for number in range(INJECTIONS):
        settled = SETTLED + number * APART
        until(lambda: run.done() >= settled, f"{run.name} does not go on")  # noqa: B023 - at once
        assert run.done() < TASKS, f"{run.name} was over before the fault"
        fault(run, random)
    return INJECTIONS


def troubles(run: NodeRun) -> Iterator[str]:
    """Yield what is wrong with a run that has ended, besides its journal and its records."""
    if run.reason != END:
        yield f"ended as {run.reason}"
    if left := run.left():
        yield f"Pods are left: {left}"
