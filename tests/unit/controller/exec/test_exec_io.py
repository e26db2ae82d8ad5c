from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from securebench.benchmark.files.bundle import (
    BundleLimits,
    folder_files,
    unpack_bundle,
    write_bundle,
)
from securebench.controller import exec_io
from securebench.controller.exec_io import Streams, Volume, serve
from securebench.controller.volume.registers import IndexEntry, RunIndex, pack_audit
from securebench.files import tree_digest
from securebench.protocol.volume import AuditResult, PackAudit

LIMITS = BundleLimits(files=10, size_bytes=100_000)
UID = "0f6b2c1e-0000-4000-8000-000000000001"


class Reply:
    def __init__(self, code: int, stdout: bytes, stderr: bytes) -> None:
        self.code = code
        self.stdout = stdout
        self.answer: Mapping[str, object] = json.loads(stderr.splitlines()[-1])


def call(root: Path, *arguments: str, stdin: bytes = b"") -> Reply:
    streams = Streams(io.BytesIO(stdin), io.BytesIO(), io.BytesIO())
    code = serve(arguments, volume=Volume(root, LIMITS), streams=streams)
    return Reply(code, streams.stdout.getvalue(), streams.stderr.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    (folder / "packs").mkdir(parents=True)
    return folder


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "hidden").mkdir(parents=True)
    (folder / "manifest.yaml").write_text("id: a\n")
    (folder / "hidden" / "answer").write_text("42")
    return folder


def bundle(pack: Path) -> tuple[str, bytes]:
    sink = io.BytesIO()
    receipt = write_bundle(folder_files(pack), sink, LIMITS)
    return receipt.digest, sink.getvalue()


def put(root: Path, digest: str, tar: bytes, name: str = "a-1") -> Reply:
    return call(root, "put-pack", name, digest, str(len(tar)), stdin=tar)


def test_a_pack_arrives_and_is_shown(root: Path, pack: Path) -> None:
    digest, tar = bundle(pack)
    assert call(root, "show-pack", "a-1").answer == {"ok": True, "present": False}

    reply = put(root, digest, tar)

    assert (reply.code, reply.answer["digest"]) == (0, digest)
    assert tree_digest(root / "packs" / "a-1") == digest
    shown = call(root, "show-pack", "a-1").answer
    assert (shown["present"], shown["digest"], shown["files"]) == (True, digest, 2)


def test_an_upload_reads_no_further_than_its_size(root: Path, pack: Path) -> None:
    digest, tar = bundle(pack)
    stdin = tar + b"more"
    streams = Streams(io.BytesIO(stdin), io.BytesIO(), io.BytesIO())
    arguments = ("put-pack", "a-1", digest, str(len(tar)))
    assert serve(arguments, volume=Volume(root, LIMITS), streams=streams) == 0
    assert streams.stdin.read() == b"more"


def test_a_damaged_upload_leaves_the_old_pack_and_no_rest(root: Path, pack: Path) -> None:
    digest, tar = bundle(pack)
    put(root, digest, tar)
    (pack / "manifest.yaml").write_text("id: b\n")
    new_digest, new_tar = bundle(pack)

    flipped = new_tar.replace(b"id: b", b"id: c")
    reply = put(root, new_digest, flipped)

    assert (reply.code, reply.answer["kind"]) == (1, "DigestMismatchError")
    assert tree_digest(root / "packs" / "a-1") == digest
    assert list((root / "packs" / ".incoming").iterdir()) == []
    assert put(root, new_digest, new_tar).code == 0
    assert tree_digest(root / "packs" / "a-1") == new_digest


def test_a_cut_upload_is_refused(root: Path, pack: Path) -> None:
    digest, tar = bundle(pack)
    arguments = ("put-pack", "a-1", digest, str(len(tar)))
    reply = call(root, *arguments, stdin=tar[:-512])
    assert (reply.code, reply.answer["kind"]) == (1, "StorageError")
    assert "512 bytes early" in str(reply.answer["error"])
    assert not (root / "packs" / "a-1").exists()


def test_a_traversing_upload_is_refused(root: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("../../runs/evil")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    reply = put(root, "sha256:" + "0" * 64, stream.getvalue())
    assert (reply.code, reply.answer["kind"]) == (1, "InvalidInputError")
    assert not (root / "runs").exists()
    assert not (root / "packs" / "a-1").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("put-pack", "../a", "sha256:" + "0" * 64, "1"),
        ("put-pack", ".content", "sha256:" + "0" * 64, "1"),
        ("put-pack", "a/b", "sha256:" + "0" * 64, "1"),
        ("put-pack", "", "sha256:" + "0" * 64, "1"),
        ("put-pack", "a", "0" * 64, "1"),
        ("put-pack", "a", "sha256:" + "0" * 64, "-1"),
        ("put-pack", "a", "sha256:" + "0" * 64, "1 "),
        ("show-pack", ".."),
        ("get-run", "../packs", "summary.json"),
        ("get-run", UID, "journal.1.jsonl"),
        ("get-run", UID, "../run.json"),
        ("get-run", UID, "tasks/0/lanes/hidden/answer.json"),
        ("get-run", UID, "candidates.jsonl", "1"),
        ("get-run", UID, "candidates.jsonl", "-1:" + "0" * 64),
        ("get-log", ".", "t"),
        ("rm", "-rf"),
        (),
    ],
)
def test_bad_arguments_are_refused(root: Path, arguments: tuple[str, ...]) -> None:
    reply = call(root, *arguments, stdin=b"x")
    assert (reply.code, reply.answer["ok"], reply.answer["kind"]) == (1, False, "InvalidInputError")
    assert reply.stdout == b""


@pytest.mark.parametrize(
    ("name", "size", "want"), [("a", 10**9, "TooLargeError"), ("../a", 3, "InvalidInputError")]
)
def test_a_refused_upload_is_read_to_its_end(root: Path, name: str, size: int, want: str) -> None:
    streams = Streams(io.BytesIO(b"xyz"), io.BytesIO(), io.BytesIO())
    arguments = ("put-pack", name, "sha256:" + "0" * 64, str(size))
    assert serve(arguments, volume=Volume(root, LIMITS), streams=streams) == 1
    assert want.encode() in streams.stderr.getvalue()  # type: ignore[attr-defined]
    assert streams.stdin.read() == b""
    assert list((root / "packs").iterdir()) == []


def test_what_ended_uploads_left_is_removed_after_a_day(root: Path, pack: Path) -> None:
    incoming = root / "packs" / ".incoming"
    for name, age in (("stale", 25 * 3600), ("fresh", 3600)):
        (incoming / name / "new").mkdir(parents=True)
        then = time.time() - age
        os.utime(incoming / name, (then, then))
    digest, tar = bundle(pack)
    assert put(root, digest, tar).code == 0
    assert [path.name for path in incoming.iterdir()] == ["fresh"]


def run_file(root: Path, content: bytes, name: str = "candidates.jsonl") -> None:
    (root / "runs" / UID).mkdir(parents=True, exist_ok=True)
    (root / "runs" / UID / name).write_bytes(content)


def mark(content: bytes) -> str:
    return f"{len(content)}:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize(
    ("marks", "want_offset"),
    {
        "nothing known": ([], 0),
        "all known": ([mark(b"one\ntwo\nthree\n")], 14),
        "a prefix known": ([mark(b"one\n")], 4),
        "the longest of several": ([mark(b"one\ntwo\n"), mark(b""), mark(b"one\n")], 8),
        "another content": ([mark(b"eins\n")], 0),
        "the longer differs": ([mark(b"one\n"), mark(b"one\nzwo\n")], 4),
        "longer than the file": ([mark(b"one\n"), mark(b"x" * 100)], 4),
    }.values(),
)
def test_only_what_is_not_known_travels(root: Path, marks: list[str], want_offset: int) -> None:
    content = b"one\ntwo\nthree\n"
    run_file(root, content)
    reply = call(root, "get-run", UID, "candidates.jsonl", *marks)
    assert reply.stdout == content[want_offset:]
    assert reply.answer == {
        "ok": True,
        "present": True,
        "offset": want_offset,
        "sent": len(content) - want_offset,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def test_a_large_file_comes_in_parts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_io, "MAX_ANSWER_BYTES", 6)
    run_file(root, b"0123456789")
    first = call(root, "get-run", UID, "summary.json")
    assert first.answer == {"ok": True, "present": False}
    run_file(root, b"0123456789", "summary.json")
    first = call(root, "get-run", UID, "summary.json")
    assert (first.stdout, first.answer["size"]) == (b"012345", 10)
    second = call(root, "get-run", UID, "summary.json", mark(first.stdout))
    assert (second.stdout, second.answer["offset"]) == (b"6789", 6)


def test_a_link_in_place_of_a_run_file_is_refused(root: Path) -> None:
    run_file(root, b"secret", "journal.jsonl")
    (root / "runs" / UID / "summary.json").symlink_to("journal.jsonl")
    reply = call(root, "get-run", UID, "summary.json")
    assert (reply.code, reply.stdout, reply.answer["kind"]) == (1, b"", "StorageError")


def index_entry(run: str, run_id: str, outcome: str = "Completed") -> IndexEntry:
    return IndexEntry(
        run, f"uid-{run}", run_id, "p", "sha256:p", "sha256:h", "1", "now", outcome=outcome
    )


def test_runs_are_found_by_run_id(root: Path) -> None:
    index = RunIndex(root)
    for entry in (index_entry("a", "x"), index_entry("b", "y"), index_entry("c", "x", "")):
        index.add(entry)
    reply = call(root, "find-run", "x")
    found = json.loads(reply.stdout)
    assert [(entry["run"], entry["outcome"]) for entry in found] == [("a", "Completed"), ("c", "")]
    assert found[0]["harness_digest"] == "sha256:h"
    assert json.loads(call(root, "find-run", "nothing").stdout) == []


def test_a_damaged_index_is_said(root: Path) -> None:
    (root / "runs").mkdir()
    (root / "runs" / "index.jsonl").write_text("{")
    reply = call(root, "find-run", "x")
    assert (reply.code, reply.answer["kind"]) == (1, "StorageError")


def launch(root: Path, task: int, attempt: int, number: int, files: Mapping[str, str]) -> None:
    base = root / "runs" / UID / "tasks" / str(task) / "attempts" / str(attempt)
    for name in ("producer", "verification", "candidate"):
        (base / "launches" / str(number) / name).mkdir(parents=True)
    for name, text in files.items():
        (base / "launches" / str(number) / name).write_text(text)


def record(root: Path, task: int, attempt: int, task_id: str) -> None:
    base = root / "runs" / UID / "tasks" / str(task) / "attempts" / str(attempt)
    base.mkdir(parents=True, exist_ok=True)
    (base / "record.json").write_text(json.dumps({"task_id": task_id}))


def test_the_log_is_of_the_last_launches_and_holds_no_candidate(root: Path, tmp_path: Path) -> None:
    launch(root, 0, 1, 1, {"producer/stdout": "other task"})
    record(root, 0, 1, "other")
    launch(root, 10, 1, 1, {"producer/stdout": "lost"})
    launch(
        root, 10, 1, 2, {"producer/stdout": "out", "producer/stderr": "err", "candidate/c": "no"}
    )
    launch(root, 10, 1, 3, {"verification/stdout": "checked", "producer/sealed.json": "{}"})
    record(root, 10, 1, "t 1")

    reply = call(root, "get-log", UID, "t 1")
    receipt = unpack_bundle(io.BytesIO(reply.stdout), tmp_path / "log", LIMITS)

    found = {key: path.read_text() for key, path in folder_files(tmp_path / "log").items()}
    assert found == {
        "producer/stdout": "out",
        "producer/stderr": "err",
        "verification/stdout": "checked",
    }
    assert reply.answer["digest"] == receipt.digest


@pytest.mark.parametrize(("words", "want"), [((), "second"), (("1",), "first"), (("2",), "second")])
def test_the_log_of_one_of_several_attempts(
    root: Path, tmp_path: Path, words: tuple[str, ...], want: str
) -> None:
    for attempt, said in ((1, "first"), (2, "second")):
        launch(root, 0, attempt, 1, {"producer/stdout": said})
        record(root, 0, attempt, "t")

    reply = call(root, "get-log", UID, "t", *words)
    unpack_bundle(io.BytesIO(reply.stdout), tmp_path / "log", LIMITS)

    assert (tmp_path / "log/producer/stdout").read_text() == want


def test_an_attempt_that_has_not_finished_has_no_log(root: Path) -> None:
    launch(root, 0, 1, 1, {"producer/stdout": "first"})
    record(root, 0, 1, "t")
    reply = call(root, "get-log", UID, "t", "3")
    assert reply.answer["error"] == "task 't' has no finished attempt 3; it has 1"


def test_a_task_without_record_has_no_log(root: Path) -> None:
    launch(root, 0, 1, 1, {"producer/stdout": "half"})
    reply = call(root, "get-log", UID, "t")
    assert (reply.code, reply.answer["kind"]) == (1, "InvalidInputError")
    assert "'t'" in str(reply.answer["error"])


def test_trouble_of_the_volume_is_an_answer(root: Path) -> None:
    (root / "packs" / "a").mkdir()
    (root / "runs").write_text("a file")
    reply = call(root, "get-run", UID, "summary.json")
    assert (reply.code, reply.answer["kind"]) == (1, "StorageError")
    assert str(reply.answer["error"]).startswith("the results volume refused: ")


def test_the_result_of_an_audit_arrives(root: Path) -> None:
    digest = "sha256:" + "0a" * 32
    result = AuditResult(digest, "1", PackAudit.PASSED, "2026-11-23T03:00:00Z", 3, {"passed": 12})
    data = result.encode()

    reply = call(root, "put-audit", str(len(data)), stdin=data + b"more")

    assert reply.answer == {"ok": True, "digest": digest, "result": "passed"}
    assert pack_audit(root, digest, "1") is PackAudit.PASSED


@pytest.mark.parametrize("size", ["0", "-1", "x", "16385", "10"])
def test_what_is_no_result_of_an_audit_leaves_nothing(root: Path, size: str) -> None:
    reply = call(root, "put-audit", size, stdin=b'{"result": "passed"}' * 1000)

    assert (reply.code, reply.answer["kind"]) == (1, "InvalidInputError")
    assert not (root / "audits").exists()
