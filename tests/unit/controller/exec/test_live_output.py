"""What a tester who watches gets from the volume."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.controller import exec_watching
from unit.controller.exec.test_exec_io import UID, Reply, call, launch, record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs" / UID).mkdir(parents=True)
    return tmp_path


def live(root: Path, task: int, attempt: int, number: int, text: str) -> None:
    launch(root, task, attempt, number, {"producer/live-stdout": text})


def parts(reply: Reply) -> list[tuple[object, ...]]:
    found = reply.answer["parts"]
    assert isinstance(found, list)
    return [tuple(part[key] for key in PART) for part in found]


PART = ("task", "attempt", "launch", "offset", "sent")


def test_only_running_launches_are_read_and_only_what_is_new(root: Path) -> None:
    live(root, 0, 1, 1, "finished")
    record(root, 0, 1, "a")
    live(root, 0, 2, 1, "second")
    live(root, 3, 1, 1, "lost")
    live(root, 3, 1, 2, "one\ntwo\n")
    launch(root, 4, 1, 1, {"producer/stdout": "no live output"})

    reply = call(root, "get-live", UID, "3.1.2:4", "9.1.1:7")

    assert parts(reply) == [(0, 2, 1, 0, 6), (3, 1, 2, 4, 4)]
    assert reply.stdout == b"secondtwo\n"
    assert parts(call(root, "get-live", UID, "0.2.1:6", "3.1.2:8")) == []


def test_an_answer_is_bounded_and_the_rest_follows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_watching, "LIVE_BYTES", 6)
    live(root, 0, 1, 1, "abcd")
    live(root, 1, 1, 1, "efgh")
    first = call(root, "get-live", UID)
    assert (first.stdout, parts(first)) == (b"abcdef", [(0, 1, 1, 0, 4), (1, 1, 1, 0, 2)])
    second = call(root, "get-live", UID, "0.1.1:4", "1.1.1:2")
    assert (second.stdout, parts(second)) == (b"gh", [(1, 1, 1, 2, 2)])


def test_a_link_is_not_followed(root: Path) -> None:
    live(root, 0, 1, 1, "x")
    (path,) = root.rglob("live-stdout")
    path.unlink()
    (root / "secret").write_text("secret")
    path.symlink_to(root / "secret")
    assert call(root, "get-live", UID).stdout == b""


def test_a_run_without_tasks_has_no_live_output(root: Path) -> None:
    assert parts(call(root, "get-live", UID)) == []


@pytest.mark.parametrize(
    "arguments", [(UID, "1.1:0"), (UID, "1.1.1:-1"), (UID, "../1.1.1:0"), ("../x",)]
)
def test_odd_arguments_are_refused(root: Path, arguments: tuple[str, ...]) -> None:
    reply = call(root, "get-live", *arguments)
    assert (reply.code, reply.answer["kind"]) == (1, "InvalidInputError")
