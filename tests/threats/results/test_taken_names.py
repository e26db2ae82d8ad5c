"""F4: a name that somebody else takes again decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from securebench.analysis.results import read_results
from securebench.attestation import verification
from securebench.attestation.verification import Trust, verify_run
from securebench.client.results import FolderFiles
from securebench.cluster.port import ObjectKind
from securebench.controller import earlier_run
from securebench.controller.suite_results import BaselineReader, RunObserver
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.suite.api import Baseline
from support.operator_world import opened
from support.regrade_world import RegradeWorld
from support.sealed_runs import handed_on
from support.suite_world import HARNESSES, PACKS, SuiteWorld

pytestmark = pytest.mark.short

ONE = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}}
GOOD, BAD = [True] * 12, [False] * 12
GOLDEN = {"gates": {"notWorse": {}}, "baseline": {"run": "golden"}}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SuiteWorld]:
    """Return an operator with suites, and a good run with the name ``golden``."""
    with opened(SuiteWorld, tmp_path) as made:
        made.apply_suite("first", **ONE)
        made.end_all(passed=GOOD)
        made.put_run("golden", GOOD)
        yield made
        made.runner.run(made.suites.close())


def judged(world: SuiteWorld, name: str = "nightly") -> str:
    """Let a suite run an agent without any answer; return what its gates say."""
    world.apply_suite(name, **ONE, **GOLDEN)
    world.end_all(passed=BAD)
    return world.said("GatesPassed", name)[1]


def the_latest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a name was bound to, and take the latest run that has it."""
    bound = BaselineReader.bound

    def latest(self: BaselineReader, named: Baseline) -> list[IndexEntry]:
        entries = RunIndex(self._root).entries()
        return [entry for entry in entries if entry.run == named.run][-1:]

    async def unbound(self: BaselineReader, spec: Any, _known: Any) -> Any:
        return await bound(self, spec, {})

    monkeypatch.setattr(BaselineReader, "_runs_named", latest)
    monkeypatch.setattr(BaselineReader, "bound", unbound)


def test_a_450_attack(world: SuiteWorld) -> None:
    assert judged(world) == "GatesFailed"
    world.put_run("golden", BAD)
    world.settle(120)
    assert world.said("GatesPassed")[1] == "GatesUndecided"
    assert judged(world, "anew") == "GatesUndecided"


def test_a_450_twin(world: SuiteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    the_latest_counts(monkeypatch)
    assert judged(world) == "GatesFailed"
    world.put_run("golden", BAD)
    assert judged(world, "anew") == "GatesPassed"


def thrown_again(world: SuiteWorld) -> str:
    """Delete the run of a cell and run it again under its name, until it passes."""
    world.apply_suite(**ONE, gates={"minPassRate": "0.9"})
    (name,) = world.going().values()
    raw: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
    world.end(name, passed=BAD)
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    body = {"metadata": {**raw["metadata"], "uid": "another"}, "spec": raw["spec"]}
    world.runner.run(world.cluster.create(ObjectKind.BENCHMARK_RUN, body))
    world.end(name, passed=GOOD)
    return world.said("GatesPassed")[1]


def test_a_450_attack_on_a_cell(world: SuiteWorld) -> None:
    assert thrown_again(world) == "GatesUndecided"


def test_a_450_twin_of_a_cell(world: SuiteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    past = RunObserver._past

    def latest(self: RunObserver) -> Any:
        self._index.entries = lambda: RunIndex(world.root).entries()[::-1]  # type: ignore[method-assign]
        return past(self)

    monkeypatch.setattr(RunObserver, "_past", latest)
    assert thrown_again(world) == "GatesPassed"


def test_a_450_honest(world: SuiteWorld) -> None:
    """The baseline's object may go, and another operator may take over."""
    assert judged(world) == "GatesFailed"
    world.restart_suites()
    world.apply_suite(**ONE, **GOLDEN)
    world.annotate("better")
    world.end_all(passed=GOOD)
    assert world.said("GatesPassed")[1] == "GatesPassed"


@pytest.fixture
def graded(tmp_path: Path) -> Iterator[RegradeWorld]:
    """Return an operator with a run that got one of two right."""
    with opened(RegradeWorld, tmp_path) as made:
        made.rows([1, 1])
        made.finished()
        yield made


def better_under_the_name(world: RegradeWorld) -> str:
    """Delete somebody's run, run a better agent under its name, and return the better run's uid."""
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, "nightly")
    world.answers = "BB"
    return world.finished("nightly")


def test_a_451_attack(graded: RegradeWorld) -> None:
    better_under_the_name(graded)
    graded.regraded()
    found = graded.condition(name="again")
    assert found["reason"] == "InvalidSpec"
    assert "'nightly' may be any of 2 runs" in found["message"]


def test_a_451_twin(graded: RegradeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    better_under_the_name(graded)
    only = earlier_run._only
    monkeypatch.setattr(
        earlier_run, "_only", lambda entries, *named: only(list(entries)[-1:], *named)
    )
    assert graded.grades(graded.regraded()) == [True, True]


def test_a_451_honest(graded: RegradeWorld) -> None:
    """Under the name alone, and with the uid after somebody took the name."""
    (first,) = (entry.uid for entry in RunIndex(graded.root).entries())
    assert graded.grades(graded.regraded()) == [True, False]
    better_under_the_name(graded)
    new = graded.finished("later", regrade={"run": "nightly", "uid": first})
    assert graded.grades(new) == [True, False]


def tried(world: RegradeWorld, *names: str) -> str:
    """Run an agent under several names and with a comment of its own; return the last uid."""
    uid, spec = "", {}
    for name in names:
        command = {"type": "command", "config": {"command": f"./agent # {name}"}}
        uid = world.finished(name, runId=name, harness=command, **spec)
        world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    return uid


def said(world: RegradeWorld, uid: str, folder: Path) -> tuple[int, int, list[str]]:
    """Return the number of tries in the summary and for a report, and the notes of a check."""
    handed = handed_on(world.root, uid, folder)
    notes = verify_run(FolderFiles(handed), Trust(is_signature_needed=False)).notes
    results = read_results(handed, "handed")
    return world.summary(uid).get("tries", 1), results.tries, list(notes)


def test_a_452_attack(graded: RegradeWorld, tmp_path: Path) -> None:
    last = tried(graded, "one", "two", "three")
    in_summary, in_report, notes = said(graded, last, tmp_path / "handed")
    # The run of the fixture is one of the same agent, too.
    assert (in_summary, in_report) == (4, 4)
    assert any("4 runs of agent command with any model on this pack" in note for note in notes)


def test_a_452_twin(graded: RegradeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        IndexEntry, "is_try_like", lambda self, other: self.harness_digest == other.harness_digest
    )
    monkeypatch.setattr(verification, "same_agent_runs", lambda _lines, _own: [])
    last = tried(graded, "one", "two", "three")
    assert said(graded, last, tmp_path / "handed") == (1, 1, [])


def test_a_452_honest(graded: RegradeWorld, tmp_path: Path) -> None:
    (first,) = (entry.uid for entry in RunIndex(graded.root).entries())
    graded.regraded()
    assert said(graded, first, tmp_path / "handed") == (1, 1, [])
