from __future__ import annotations

import json
import os
import signal
import tarfile
import time
from pathlib import Path

import pytest

from securebench.protocol.messages import USAGE_FIELDS
from support import courier

LIMITS = {
    "text_bytes": 100,
    "patch_bytes": 200,
    "workspace_bytes": 10_000,
    "workspace_files": 10,
    "stream_bytes": 10,
}
KERNEL = os.uname().release
FILE = {"mode": "file", "path": "answer.txt", "kind": "text"}
STDOUT = {"mode": "stdout", "path": None, "kind": "text"}
WORKSPACE = {"mode": "workspace", "path": None, "kind": "workspace"}


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    for name in ("workspace", "output", "candidate", "producer", "verification"):
        (tmp_path / name).mkdir()
    return tmp_path


def seal_spec(extraction: object = FILE, **changes: object) -> str:
    seal = {"extraction": extraction, "exclude": ["securebench"], "limit_bytes": 100, **changes}
    return json.dumps({"version": 1, "seal": seal, "limits": LIMITS})


def collect_spec() -> str:
    return json.dumps({"version": 1, "limits": LIMITS})


def work(volumes: Path, spec: str) -> dict[str, object]:
    log = volumes / "log"
    log.write_text("an old message that is longer than the new one" * 100)
    ended = courier.run(volumes, spec)
    assert (ended.code, ended.said) == (0, "")
    assert len(ended.message) <= 4096
    message = json.loads(ended.message)
    assert isinstance(message, dict)
    # Where this machine tells what the courier took: of the cgroup in which the tests run.
    took = [message.pop(name) for name in USAGE_FIELDS & message.keys()]
    assert all(count > 0 for count in took)
    return message


def capture(volumes: Path, **streams: str) -> None:
    """Write what supervise leaves."""
    report = {"v": 1}
    for name, text in streams.items():
        (volumes / "output" / name).write_text(text)
        (volumes / "output" / f"{name}.tail").write_text("")
        report[f"{name}_bytes"] = len(text)
    (volumes / "output" / "report.json").write_text(json.dumps(report))


def test_a_file_is_sealed_with_its_streams(volumes: Path) -> None:
    (volumes / "workspace/answer.txt").write_text("42\n")
    capture(volumes, stdout="out", stderr="0123456789abc")
    digest = "sha256:084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0"
    assert work(volumes, seal_spec()) == {
        "v": 1,
        "problem": None,
        "message": "",
        "file": "candidate.txt",
        "digest": digest,
        "size_bytes": 3,
        "candidate_sha256": digest,
        "dropped_entries": 0,
        "stdout": {"bytes": 3, "truncated": False},
        "stderr": {"bytes": 13, "truncated": True},
        "kernel": KERNEL,
    }
    assert (volumes / "candidate/candidate.txt").read_text() == "42\n"
    assert (volumes / "producer/stdout").read_text() == "out"
    want = "01234\n[securebench: 3 of 13 bytes omitted]\n89abc"
    assert (volumes / "producer/stderr").read_text() == want


def test_a_stdout_candidate_is_measured_before_the_output_is_cut(volumes: Path) -> None:
    capture(volumes, stdout="x" * 100)
    (volumes / "output/stdout.tail").unlink()
    assert work(volumes, seal_spec(STDOUT))["problem"] is None
    assert (volumes / "candidate/candidate.txt").stat().st_size == 100
    assert "90 of 100 bytes omitted" in (volumes / "producer/stdout").read_text()


def test_a_stdout_candidate_that_is_too_large(volumes: Path) -> None:
    capture(volumes, stdout="x" * 101)
    message = work(volumes, seal_spec(STDOUT))
    assert (message["problem"], message["file"]) == ("candidate_too_large", None)


def test_the_report_counts_what_was_never_written(volumes: Path) -> None:
    (volumes / "output/stdout").write_text("0123456789")
    (volumes / "output/stdout.tail").write_text("vwxyz")
    (volumes / "output/report.json").write_text('{"v":1,"stdout_bytes":1000}')
    assert work(volumes, seal_spec())["stdout"] == {"bytes": 1000, "truncated": True}
    want = "01234\n[securebench: 990 of 1000 bytes omitted]\nvwxyz"
    assert (volumes / "producer/stdout").read_text() == want


@pytest.mark.parametrize(
    "report", ["", "{", '{"stdout_bytes":-5}', '{"stdout_bytes":true}', '{"a":1,"a":2}', "x" * 9999]
)
def test_a_forged_report_does_no_harm(volumes: Path, report: str) -> None:
    capture(volumes, stdout="abc", stderr="")
    (volumes / "output/report.json").write_text(report)
    assert work(volumes, seal_spec(STDOUT))["stdout"] == {"bytes": 3, "truncated": False}


def test_nothing_at_all_is_a_missing_candidate(volumes: Path) -> None:
    for extraction in (FILE, STDOUT):
        message = work(volumes, seal_spec(extraction))
        assert message["problem"] == "candidate_missing"
        assert message["stdout"] == {"bytes": 0, "truncated": False}
        (volumes / "producer/sealed.json").unlink()


def test_links_in_the_output_are_not_followed(volumes: Path) -> None:
    (volumes / "secret").write_text("secret")
    for name in ("stdout", "stderr", "stdout.tail", "report.json"):
        (volumes / "output" / name).symlink_to("../secret")
    message = work(volumes, seal_spec(STDOUT))
    assert message["problem"] == "candidate_missing"
    assert (volumes / "producer/stdout").read_text() == ""


def test_a_fifo_in_the_output_does_not_block(volumes: Path) -> None:
    for name in ("stdout", "report.json"):
        os.mkfifo(volumes / "output" / name)
    assert work(volumes, seal_spec())["stdout"] == {"bytes": 0, "truncated": False}


def test_a_workspace_is_sealed_without_what_is_excluded(volumes: Path) -> None:
    (volumes / "workspace/securebench").mkdir()
    (volumes / "workspace/securebench/forged").write_text("x")
    (volumes / "workspace/kept").write_text("x")
    os.mkfifo(volumes / "workspace/dropped")
    message = work(volumes, seal_spec(WORKSPACE))
    assert (message["file"], message["dropped_entries"]) == ("workspace.tar", 1)
    assert message["digest"] != message["candidate_sha256"]
    with tarfile.open(volumes / "candidate/workspace.tar") as archive:
        assert archive.getnames() == [".", "kept"]


def test_a_long_path_in_a_message_is_cut(volumes: Path) -> None:
    long = "/".join(["\u20ac" * 80] * 40)
    message = work(volumes, seal_spec({**FILE, "path": long}))
    assert message["problem"] in {"candidate_missing", "candidate_invalid"}
    assert len(str(message["message"])) <= 500


def test_a_restarted_courier_never_seals_again(volumes: Path) -> None:
    (volumes / "workspace/answer.txt").write_text("first")
    first = work(volumes, seal_spec())
    (volumes / "workspace/answer.txt").write_text("second")
    assert work(volumes, seal_spec()) == first
    assert (volumes / "candidate/candidate.txt").read_text() == "first"


def test_a_note_that_is_not_ours_stops_the_courier(volumes: Path) -> None:
    (volumes / "producer/sealed.json").symlink_to("../workspace/forged")
    ended = courier.run(volumes, seal_spec())
    assert (ended.code, ended.message) == (1, b"")
    assert not list((volumes / "candidate").iterdir())


def test_collect_keeps_the_streams_only(volumes: Path) -> None:
    capture(volumes, stdout="0123456789abc", stderr="")
    assert work(volumes, collect_spec()) == {
        "v": 1,
        "stdout": {"bytes": 13, "truncated": True},
        "stderr": {"bytes": 0, "truncated": False},
        "kernel": KERNEL,
    }
    assert (volumes / "verification/stderr").read_text() == ""
    assert not list((volumes / "candidate").iterdir())
    assert not list((volumes / "producer").iterdir())


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="a list"),
        pytest.param(collect_spec() + " x", id="trailing bytes"),
        pytest.param(collect_spec().replace("{", '{"version": 1, ', 1), id="a duplicate key"),
        pytest.param(collect_spec().replace('"version": 1', '"version": 2'), id="version 2"),
        pytest.param(collect_spec().replace('"version": 1', '"version": true'), id="version true"),
        pytest.param(collect_spec().replace('"version": 1, ', ""), id="no version"),
        pytest.param(collect_spec().replace(": 10}", ": NaN}"), id="not a number"),
        pytest.param(collect_spec().replace(": 10}", ": -1}"), id="a negative bound"),
        pytest.param(collect_spec().replace(": 10}", ": 1.5}"), id="a broken bound"),
        pytest.param(collect_spec().replace("text_bytes", "Text_bytes"), id="an unknown bound"),
        pytest.param(json.dumps({"version": 1, "limits": []}), id="limits as a list"),
        pytest.param(seal_spec(extra=1), id="an unknown field"),
        pytest.param(seal_spec({**FILE, "mode": "guess"}), id="an unknown extraction"),
        pytest.param(seal_spec({**FILE, "kind": 1}), id="a kind that is no text"),
        pytest.param(seal_spec({**FILE, "path": None}), id="a file without path"),
        pytest.param(seal_spec({**FILE, "path": "../x"}), id="a path with a step up"),
        pytest.param(seal_spec({**FILE, "path": "/x"}), id="an absolute path"),
        pytest.param(seal_spec(exclude=["a//b"]), id="an unclean exclusion"),
        pytest.param(seal_spec(exclude="securebench"), id="exclusions as text"),
        pytest.param(seal_spec(exclude=[1]), id="an exclusion that is no text"),
    ],
)
def test_odd_specifications_are_refused_before_waiting(volumes: Path, spec: str) -> None:
    with courier.started(volumes, spec) as process:
        assert process.wait(timeout=10) == 1
    assert not (volumes / "log").exists()


def test_the_program_sleeps_until_it_is_told(volumes: Path) -> None:
    with courier.started(volumes, collect_spec()) as process:
        time.sleep(0.2)
        assert process.poll() is None
        assert not list((volumes / "verification").iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    assert json.loads((volumes / "log").read_text())["v"] == 1


@pytest.mark.parametrize("is_live", [True, False])
def test_what_an_agent_prints_is_copied_when_that_is_told(volumes: Path, *, is_live: bool) -> None:
    live = volumes / "producer/live-stdout"
    capture(volumes, stdout="an event\n")
    spec = seal_spec(**({"live": True} if is_live else {}))
    with courier.started(volumes, spec) as process:
        deadline = time.monotonic() + (30 if is_live else 1.5)
        while not live.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert live.exists() is is_live
    assert not is_live or live.read_text() == "an event\n"
