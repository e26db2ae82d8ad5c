"""F4: whose runs stand behind a score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from securebench.analysis.results import read_results
from securebench.attestation.verification import Trust, verify_run
from securebench.client.results import FolderFiles
from securebench.cluster.port import ObjectKind
from securebench.names import REQUESTER_ANNOTATION
from support.operator_world import opened
from support.regrade_world import RegradeWorld
from support.requesters import Requests, named, naming, requests
from support.sealed_runs import handed_on

KINDS = ("BenchmarkRun", "BenchmarkSuite")


# somebody else's runs in the evidence, or behind it


class Counted:
    """What is counted of runs that several users request, one after the other."""

    def __init__(self, root: Path, *, is_trusted: bool = True) -> None:
        self._root = root
        self._is_trusted = is_trusted

    def last(self, *users: str) -> tuple[int, int, list[str]]:
        """Return the tries behind the last run, those of others, and the notes of a check."""
        with opened(RegradeWorld, self._root, trusts_requesters=self._is_trusted) as world:
            world.rows([1, 1])
            uid = ""
            for number, user in enumerate(users):
                world.user = user
                uid = world.finished(f"run-{number}", runId=f"run-{number}")
                world.cluster.remove(ObjectKind.BENCHMARK_RUN, f"run-{number}")
            folder = handed_on(world.root, uid, self._root / "handed")
            binding = json.loads((folder / "run.json").read_bytes())["index"]
            assert binding["requester"] == (users[-1] if self._is_trusted else "")
        found = read_results(folder, "handed")
        notes = verify_run(FolderFiles(folder), Trust(is_signature_needed=False)).notes
        return found.tries, found.tries_by_others, list(notes)


@pytest.mark.short
def test_a_458_attack(tmp_path: Path) -> None:
    """Ben runs Ada's agent again and again: her score is that of one try as before."""
    tries, by_others, notes = Counted(tmp_path).last("ben", "ben", "ben", "ada")
    assert (tries, by_others) == (1, 3)
    (note,) = notes
    assert note.startswith("3 more by others of agent command with any model on this pack: run-0")


@pytest.mark.short
def test_a_458_twin(tmp_path: Path) -> None:
    """Without the admission policies nobody can say who requested a run: all count."""
    tries, by_others, notes = Counted(tmp_path, is_trusted=False).last("ben", "ben", "ben", "ada")
    assert (tries, by_others) == (4, 0)
    (note,) = notes
    assert note.startswith("4 runs of agent command with any model on this pack")


@pytest.mark.short
def test_a_458_honest(tmp_path: Path) -> None:
    """Her own tries count, whatever others do between them."""
    tries, by_others, notes = Counted(tmp_path).last("ada", "ben", "ada", "ada")
    assert (tries, by_others) == (3, 1)
    assert [note.split(" ")[0] for note in notes] == ["3", "1"]


# names that users write, on the API server


@pytest.fixture(scope="module")
def stamped() -> Iterator[Requests]:
    with requests() as opened_:
        yield opened_


@pytest.fixture(scope="module")
def unstamped() -> Iterator[Requests]:
    """Return a namespace in which the name is only checked, as on clusters before 1.34."""
    with requests(is_stamped=False) as opened_:
        yield opened_


@pytest.fixture(scope="module")
def open_to_all() -> Iterator[Requests]:
    with requests(has_policies=False) as opened_:
        yield opened_


@pytest.mark.parametrize("kind", KINDS)
def test_a_459_attack(stamped: Requests, unstamped: Requests, kind: str) -> None:
    forged = named(kind, "forged", "ada")
    assert stamped.create("ben", forged) == "ben"
    assert "ben, not ada" in unstamped.create("ben", forged)


@pytest.mark.parametrize("kind", KINDS)
def test_a_459_twin(open_to_all: Requests, kind: str) -> None:
    assert open_to_all.create("ben", named(kind, "forged", "ada")) == "ada"


@pytest.mark.parametrize("kind", KINDS)
def test_a_459_honest(stamped: Requests, unstamped: Requests, kind: str) -> None:
    assert stamped.create("ada", named(kind, "own")) == "ada"
    assert unstamped.create("ada", named(kind, "own", "ada")) == "ada"


@pytest.mark.parametrize("kind", KINDS)
def test_a_460_attack(stamped: Requests, unstamped: Requests, kind: str) -> None:
    item = named(kind, "changed", "ada")
    for place in (stamped, unstamped):
        place.create("ada", item)
        assert f"{REQUESTER_ANNOTATION} does not change: it is ada" in place.edit(
            "ada", item, naming("ben")
        )
    assert stamped.edit("ada", item, naming(None)) == "ada"
    assert "does not change" in unstamped.edit("ada", item, naming(None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_460_twin(open_to_all: Requests, kind: str) -> None:
    item = named(kind, "changed", "ada")
    open_to_all.create("ada", item)
    assert open_to_all.edit("ada", item, naming("ben")) == "ben"


@pytest.mark.parametrize("kind", KINDS)
def test_a_460_honest(stamped: Requests, kind: str) -> None:
    item = named(kind, "labelled")
    stamped.create("ada", item)
    assert stamped.edit("ben", item, {"metadata": {"labels": {"team": "b"}}}) == "ada"


def cell(name: str, requester: str | None) -> dict[str, object]:
    """Return a run that looks like a cell of somebody's suite."""
    run = named("BenchmarkRun", name, requester)
    owner = {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": "BenchmarkSuite",
        "name": "nightly",
        "uid": "11111111-1111-4111-8111-111111111111",
        "controller": True,
    }
    run["metadata"] |= {"labels": {"securebench.dev/suite": "nightly"}, "ownerReferences": [owner]}
    return run


def test_a_461_attack(stamped: Requests, unstamped: Requests) -> None:
    assert stamped.create("ben", cell("forged-cell", "ada")) == "ben"
    assert "ben, not ada" in unstamped.create("ben", cell("forged-cell", "ada"))


def test_a_461_twin(open_to_all: Requests) -> None:
    assert open_to_all.create("ben", cell("forged-cell", "ada")) == "ada"


def test_a_461_honest(stamped: Requests, unstamped: Requests) -> None:
    """The operator alone names the user who requested the suite."""
    for place in (stamped, unstamped):
        assert place.create(place.operator, cell("own-cell", "ada")) == "ada"


# somebody else's suite runs the tries

FEWER = {"spec": {"attempts": 2}}


def test_a_462_attack(stamped: Requests, unstamped: Requests) -> None:
    """Whoever edits Ada's suite, or has it run again, is the one who requests its next runs."""
    suite = named("BenchmarkSuite", "edited", "ada")
    stamped.create("ada", suite)
    assert stamped.edit("ben", suite, FEWER) == "ben"
    unstamped.create("ada", suite)
    assert "ben, not ada" in unstamped.edit("ben", suite, FEWER)


def test_a_462_twin(open_to_all: Requests) -> None:
    suite = named("BenchmarkSuite", "edited", "ada")
    open_to_all.create("ada", suite)
    assert open_to_all.edit("ben", suite, FEWER) == "ada"


def test_a_462_honest(stamped: Requests) -> None:
    suite = named("BenchmarkSuite", "own-edit")
    stamped.create("ada", suite)
    assert stamped.edit("ada", suite, FEWER) == "ada"
