"""The commits of a team that keeps its suite in git, and what each has to lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gitops.repository import SUITES, Repository

README = f"{SUITES}/README.md"
WORDS = f"{SUITES}/packs/words/tasks.jsonl"
GATE = "notWorse"


class Commit(NamedTuple):
    """A commit, and what it has to lead to.

    Attributes:
        what: Its message.
        edit: What is done to the repository.
        want_cells: Cells that run, in order of their names.
        want_said: What the message of the suite's health contains.
        is_healthy: Whether the suite is healthy afterwards.
    """

    what: str
    edit: Callable[[Repository], None]
    want_cells: tuple[str, ...]
    want_said: str
    is_healthy: bool = True


def commits() -> Iterator[Commit]:
    """Return the commits in order."""
    four = ("sums/careful", "sums/hasty", "words/careful", "words/hasty")
    yield Commit("a suite of 2 packs and 2 harnesses", _nothing, four, "")
    yield Commit("a README beside it", _describe, (), "")
    words = ("words/careful", "words/hasty")
    yield Commit("one pack changed", _change_pack, words, "different digests", is_healthy=False)
    yield Commit("the new pack is meant: notWorse taken out", _take_gate_out, (), "")
    yield Commit("the pack changed again, for one harness", _change_pack_of_one, words[:1], "")
    yield Commit("notWorse put back", _put_gate_back, (), "")
    careful = ("sums/careful", "words/careful")
    yield Commit("a harness that got worse", _regress, careful, GATE, is_healthy=False)
    yield Commit("the harness as it was", _repair, (), "")


def _nothing(repository: Repository) -> None:
    """Leave the repository as it was copied."""


def _describe(repository: Repository) -> None:
    repository.write(README, "# Our suites\n")


def _change_pack(repository: Repository) -> None:
    text = repository.text(WORDS)
    repository.write(WORDS, text.replace("Which word is", "Which of these words is", 1))


def _take_gate_out(repository: Repository) -> None:
    spec = repository.suite()
    del spec["gates"][GATE]
    repository.write_suite(spec)


def _change_pack_of_one(repository: Repository) -> None:
    _change_pack(repository)
    spec = repository.suite()
    spec["matrix"]["exclude"] = [{"pack": "words", "harness": "hasty"}]
    repository.write_suite(spec)


def _put_gate_back(repository: Repository) -> None:
    spec = repository.suite()
    spec["gates"][GATE] = {"level": "0.05"}
    repository.write_suite(spec)


def _regress(repository: Repository) -> None:
    _replace_command(repository, "sum(numbers) if", "sum(numbers) - 1 if")


def _repair(repository: Repository) -> None:
    _replace_command(repository, "sum(numbers) - 1 if", "sum(numbers) if")


def _replace_command(repository: Repository, old: str, new: str) -> None:
    spec = repository.suite()
    command = spec["matrix"]["harnesses"][0]["harness"]["config"]["command"]
    assert old in command[-1]
    command[-1] = command[-1].replace(old, new)
    repository.write_suite(spec)
