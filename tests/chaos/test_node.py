"""Faults of the local node under an installed chart: one run for each kind, two faults in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from chaos.kit.catalogue import Kind, kinds
from chaos.kit.disk import Disk, disk
from chaos.kit.node_run import END, SETTLED, TASKS, NodeRun, pack, start
from chaos.kit.table import ROWS
from chaos.kit.verdict import Course, Verdict, differences, judge
from chaos.node_faults import DAEMON_FAULTS, NODE_FAULTS, Fault
from e2e.egress import egress_release
from securebench.controller.volume.folders import run_folder
from securebench.controller.volume.journal import read_journal
from securebench.run.state.entries import Entry, Finished, Kept
from support.node import is_local
from support.release import Release, call
from support.waiting import KUBECTL_TIMEOUT, until

FAULTS = NODE_FAULTS | DAEMON_FAULTS
INJECTIONS = 2
APART = 2
"""Attempts that end between two faults of a run."""


def test_every_kind_of_the_node_has_a_fault() -> None:
    assert [kind.name for kind in kinds("node")] == list(NODE_FAULTS)
    assert [kind.name for kind in kinds("daemons")] == list(DAEMON_FAULTS)


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    if not is_local():
        pytest.skip("these faults are brought about on the local node")
    with disk(tmp_path_factory.mktemp("disk")) as made:
        yield made


@pytest.fixture(scope="module")
def own(volume: Disk) -> Iterator[Release]:
    """A release whose gateways look at the fake internet, with the pack of all runs."""
    with egress_release("sb-chaos-node", volume.values) as installed:
        installed.create(pack()[0])
        yield installed


@pytest.fixture(scope="module")
def quiet(own: Release, volume: Disk) -> Course:
    """Return what the run that nothing disturbs leaves."""
    run = start(own, volume)
    course = run.course()
    assert run.reason == END
    assert {record["passed"] for record in course.records} == {True, False}
    return course


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*kinds("node"), *kinds("daemons")], ids=lambda kind: kind.name)
def test_the_records_do_not_show_the_fault(
    kind: Kind, own: Release, volume: Disk, quiet: Course
) -> None:
    run = start(own, volume)
    injected = inject(run, FAULTS[kind.name], Random(kind.name))  # noqa: S311 - repeatable, not secret
    found = judge(run.course(), quiet, kind.lost)
    verdict = Verdict((*troubles(run), *found.problems), found.lost, found.is_equal)
    ROWS.add(kind.name, verdict, injections=injected)
    assert verdict.problems == ()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_namespace_is_deleted_and_a_run_in_another_goes_on(quiet: Course, tmp_path: Path) -> None:
    (kind,) = kinds("namespace")
    with disk(tmp_path) as volume:
        with egress_release("sb-chaos-gone", volume.values) as first:
            first.create(pack()[0])
            deleted = start(first, volume)
            deleted.running("verifier")
            until(lambda: deleted.done() >= SETTLED, f"{deleted.name} does not go on")
            deleted.running("harness")
            uid = first.uid(deleted.name)
            call("kubectl", "delete", "namespace", first.namespace, KUBECTL_TIMEOUT)
        volume.offer_again()
        done = [entry for entry in stored_entries(volume, uid) if isinstance(entry, Finished)]
        assert SETTLED <= len(done) < TASKS
        with egress_release("sb-chaos-next", volume.values) as second:
            second.create(pack()[0])
            resumed = start(second, volume, resumeFrom={"run": deleted.name})
            course = resumed.course()
    kept = [entry for entry in course.entries if isinstance(entry, Kept)]
    unequal = differences(course.records, quiet.records, "resume_generation")
    problems = [*troubles(resumed), *unequal]
    problems += [] if len(kept) == len(done) else [f"{len(kept)} of {len(done)} taken over"]
    ROWS.add(kind.name, Verdict(tuple(problems), Counter(), is_equal=not problems))
    assert problems == []


def stored_entries(volume: Disk, uid: str) -> Sequence[Entry]:
    """Return the journal of a run as it lies on the volume."""
    return read_journal(volume.folder / run_folder(uid), uid).entries


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
