"""The calls with which a tester watches a run: attempts in flight, their output, ids of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.client.why import attempt_lines, dropped_lines
from securebench.controller.volume.journal import encode_all, first_link
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import MAX_WAITS_BYTES
from securebench.run.api.field_types import Outcome
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, pod_name
from securebench.run.state.attempts import CommandReport, Finish, Lost, PodFacts, VerifierResult
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    LaunchLost,
    Produced,
    RunBound,
    Verified,
)
from support.build import production
from support.fake_operator import LIMITS, write_pack
from support.stored_packs import freeze_stored
from unit.controller.exec.test_exec_io import UID, Reply, call, launch, record

KEY = AttemptKey(0, 1)
HARNESS = LaunchKey(0, 1, Role.HARNESS, 1)
VERIFIER = LaunchKey(0, 1, Role.VERIFIER, 1)
BEGUN = LaunchBegun(HARNESS, 10.0)
PRODUCED = Produced(KEY, production(launch=1), 21.0)
CHECKED = LaunchBegun(VERIFIER, 22.0)
VERDICT = VerifierResult(
    1, passed=False, metadata={"expected": "TOPSECRET"}, command=CommandReport(), facts=PodFacts()
)
VERIFIED = Verified(KEY, VERDICT, 30.0)
FINISHED = Finished(Finish(KEY, Outcome.SCORED, passed=False), "0" * 64, 31.0)
LOST = LaunchLost(Lost(HARNESS, "pod_lost", "evicted", 15.0))
SPEC = {"pack": {"volume": {"path": "pack"}}, "harness": {"type": "command", "config": {}}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_pack(tmp_path / "packs")
    spec = BenchmarkRunSpec.parse(SPEC)
    pack = freeze_stored(tmp_path, spec.pack, LIMITS)
    RunStore(tmp_path, UID).create({"spec": SPEC, "pack_digest": pack.digest})
    return tmp_path


def active(root: Path, *entries: Entry) -> list[tuple[object, ...]]:
    lines, _ = encode_all([RunBound(UID, "sha256:1"), *entries], first_link(UID))
    (root / "runs" / UID / "journal.jsonl").write_bytes(lines + b"00000000 cut")
    reply = call(root, "get-active", UID)
    assert reply.answer["sent"] == len(reply.stdout)
    found = map(json.loads, reply.stdout.splitlines())
    keys = ("task", "attempt", "step", "since", "reason")
    return [tuple(item[key] for key in keys) for item in found]


STEPS: dict[str, tuple[tuple[Entry, ...], list[tuple[object, ...]]]] = {
    "nothing was begun": ((), []),
    "its harness": ((BEGUN,), [(0, 1, "harness", 10.0, "")]),
    "waits for its check": ((BEGUN, PRODUCED), [(0, 1, "produced", 21.0, "")]),
    "its check": ((BEGUN, PRODUCED, CHECKED), [(0, 1, "verifier", 22.0, "")]),
    "waits for its record": ((BEGUN, PRODUCED, VERIFIED), [(0, 1, "verified", 30.0, "")]),
    "its record is there": ((BEGUN, PRODUCED, VERIFIED, FINISHED), []),
    "lost": ((BEGUN, LOST), [(0, 1, "lost", 15.0, "pod_lost")]),
    "again": (
        (BEGUN, LOST, LaunchBegun(LaunchKey(0, 1, Role.HARNESS, 2), 40.0)),
        [(0, 1, "harness", 40.0, "")],
    ),
}


@pytest.mark.parametrize(("entries", "want"), STEPS.values(), ids=STEPS)
def test_the_step_of_an_attempt(
    root: Path, entries: tuple[Entry, ...], want: list[tuple[object, ...]]
) -> None:
    assert active(root, *entries) == want


def test_attempts_in_pack_order_without_what_a_verifier_said(root: Path) -> None:
    other = LaunchBegun(LaunchKey(2, 1, Role.HARNESS, 1), 5.0)
    found = active(root, other, BEGUN, PRODUCED, VERIFIED)
    assert [item[0] for item in found] == [0, 2]
    assert "TOPSECRET" not in call(root, "get-active", UID).stdout.decode()


def waits_of(root: Path, waits: object, *entries: Entry) -> list[object]:
    """Return what is said of attempts in flight while the run's loop tells some waits."""
    tell_waits(root, waits, *entries)
    lines = map(json.loads, call(root, "get-active", UID).stdout.splitlines())
    return list(map(said_wait, lines))


def tell_waits(root: Path, waits: object, *entries: Entry) -> None:
    path = root / "runs" / UID / "launch-waits.json"
    path.write_bytes(waits if isinstance(waits, bytes) else json.dumps(waits).encode())
    active(root, *entries)


def said_wait(line: dict[str, object]) -> tuple[object, ...]:
    return (line.get("wait"), line.get("has_begun"), "pod" in line)


def of_pods(*launches: LaunchKey, **fields: object) -> object:
    pods = [pod_name(UID, each) for each in launches]
    return {"waits": [{"message": "pulling x:1", "pods": pods, "has_begun": False, **fields}]}


AGAIN = LaunchBegun(LaunchKey(0, 1, Role.HARNESS, 2), 40.0)
SECOND = LaunchKey(2, 1, Role.VERIFIER, 1)
BATCH = (LaunchBegun(VERIFIER, 22.0, VERIFIER), LaunchBegun(SECOND, 22.0, VERIFIER))
WAITS: dict[str, tuple[object, tuple[Entry, ...], list[object]]] = {
    "its harness": (of_pods(HARNESS), (BEGUN,), [("pulling x:1", False, False)]),
    "its agent": (of_pods(HARNESS, has_begun=True), (BEGUN,), [("pulling x:1", True, False)]),
    "a batch": (of_pods(VERIFIER), BATCH, [("pulling x:1", False, False)] * 2),
    "another launch of the attempt": (
        of_pods(HARNESS),
        (BEGUN, LOST, AGAIN),
        [(None, None, False)],
    ),
    "a launch that was lost": (of_pods(HARNESS), (BEGUN, LOST), [(None, None, False)]),
    "a damaged file": (b"{", (BEGUN,), [(None, None, False)]),
    "a file that is too long": (b"{}" + b" " * MAX_WAITS_BYTES, (BEGUN,), [(None, None, False)]),
}


@pytest.mark.parametrize(("waits", "entries", "want"), WAITS.values(), ids=WAITS)
def test_what_a_launch_waits_for(
    root: Path, waits: object, entries: tuple[Entry, ...], want: list[object]
) -> None:
    assert waits_of(root, waits, *entries) == want


@pytest.mark.parametrize(("waits", "entries", "want"), WAITS.values(), ids=WAITS)
def test_what_the_last_launch_of_an_attempt_waits_for(
    root: Path, waits: object, entries: tuple[Entry, ...], want: list[object]
) -> None:
    tell_waits(root, waits, *entries)

    reply = call(root, "get-launches", UID)

    attempts = map(json.loads, reply.stdout.splitlines())
    assert [said_wait(each["launches"][-1]) for each in attempts] == want
    assert isinstance(reply.answer["now"], float)


def test_a_launch_that_has_ended_waits_for_nothing(root: Path) -> None:
    tell_waits(root, of_pods(HARNESS, VERIFIER), BEGUN, PRODUCED, CHECKED, VERIFIED)
    (attempt,) = map(json.loads, call(root, "get-launches", UID).stdout.splitlines())
    assert [said_wait(each) for each in attempt["launches"]] == [(None, None, False)] * 2


def test_what_of_a_patch_was_not_applied(root: Path) -> None:
    active(root, BEGUN, PRODUCED, CHECKED, VERIFIED, FINISHED)
    paths = [f"conftest{number}.py" for number in range(30)]
    metadata = {
        "patch_dropped_paths": paths,
        "patch_dropped_reasons": ["a tool loads it"] * 30,
        "patch_dropped_paths_total": 40,
    }
    folder = root / "runs" / UID / "tasks/0/attempts/1"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"task_id": "a", "passed": False, "verifier_metadata": metadata})
    (folder / "record.json").write_text(text)

    (attempt,) = map(json.loads, call(root, "get-launches", UID).stdout.splitlines())

    assert attempt["dropped"] == [f"{path}: a tool loads it" for path in paths[:20]]
    lines = list(dropped_lines(attempt))
    assert lines[0] == "  not applied: conftest0.py: a tool loads it"
    assert lines[20:] == ["  not applied: 20 more paths"]
    assert lines == list(attempt_lines(attempt, {}, 0.0))[1:22]


def test_the_tasks_of_the_frozen_pack(root: Path) -> None:
    write_pack(root / "packs", tasks=("changed",))
    reply = call(root, "list-tasks", UID)
    assert (json.loads(reply.stdout), reply.answer["tasks"]) == (["a", "b", "c"], 3)


def output(root: Path, *words: str) -> tuple[Reply, list[tuple[object, ...]]]:
    reply = call(root, "get-output", UID, *words)
    listed = reply.answer.get("parts")
    assert isinstance(listed, list)
    return reply, [(part["stream"], part["offset"], part["sent"]) for part in listed]


def test_both_streams_of_the_last_launch(root: Path) -> None:
    launch(root, 1, 1, 1, {"producer/live-stdout": "lost"})
    files = {"producer/live-stdout": "out\n", "producer/live-stderr": "error\n"}
    launch(root, 1, 1, 2, files)
    for name in ("b", "#1"):
        reply, parts = output(root, name)
        assert reply.stdout == b"out\nerror\n"
        assert parts == [("stdout", 0, 4), ("stderr", 0, 6)]
        assert [reply.answer[key] for key in ("task", "attempt", "launch")] == [1, 1, 2]
    marks = ("1.2.stdout:4", "1.2.stderr:2", "1.1.stdout:4")
    assert output(root, "b", *marks)[1] == [("stderr", 2, 4)]


def test_an_attempt_that_was_not_begun_and_one_with_a_record(root: Path) -> None:
    waiting, parts = output(root, "a")
    assert (waiting.answer["attempt"], waiting.answer["finished"], parts) == (0, False, [])
    launch(root, 0, 1, 1, {"producer/live-stdout": "over"})
    record(root, 0, 1, "a")
    ended, parts = output(root, "a")
    assert (ended.answer["attempt"], ended.answer["finished"], parts) == (1, True, [])


WRONG = {
    "task": (("get-output", UID, "aa"), "the run's pack has no task 'aa'"),
    "index": (("get-output", UID, "#3"), "the run's pack has no task '#3'"),
    "mark": (("get-output", UID, "a", "1.1.diff:0"), "ATTEMPT.LAUNCH.STREAM:OFFSET"),
    "too many words": (("get-active", UID, "more"), "does not know this operation"),
    "another run": (("list-tasks", "0" * 8), "the run has not begun yet"),
    "a path": (("get-active", "../packs"), "is no run uid"),
}


@pytest.mark.parametrize(("words", "want"), WRONG.values(), ids=WRONG)
def test_wrong_calls(root: Path, words: tuple[str, ...], want: str) -> None:
    reply = call(root, *words)
    assert (reply.code, want in str(reply.answer["error"])) == (1, True)


def test_a_link_in_the_place_of_the_output_is_not_followed(root: Path) -> None:
    launch(root, 0, 1, 1, {})
    producer = root / "runs" / UID / "tasks/0/attempts/1/launches/1/producer"
    (producer / "live-stderr").symlink_to(root / "runs" / UID / "run.json")
    assert output(root, "a")[1] == []
