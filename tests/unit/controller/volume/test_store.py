import errno
import hashlib
import json
import os
import stat

import pytest

from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore, file_digest, read_json, read_texts
from securebench.errors import DigestMismatchError, InvariantViolationError
from securebench.files import make_folder, replace_file
from securebench.run.artifacts import Lanes, Part
from securebench.run.layout import launch_part
from securebench.run.plan.model import AttemptKey
from securebench.run.records.record import RecordTexts
from securebench.sizes import MIB
from support.build import (
    HARNESS,
    KEY,
    VERIFIER,
    history_of,
    lead_of,
    production,
    sealed,
    verification,
)
from support.places import lanes_place, launch_place, place
from support.progress import told_progress

UID = "3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77"
ENTRY = IndexEntry("nightly", UID, "n", "geo", "sha256:p", "sha256:h", "1", "2026-01-01T00:00:00Z")


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path, UID, lead_of(tmp_path))
    store.create({"plan_digest": "sha256:x"})
    return store


def drafts(store):
    return list(store.staging.iterdir())


def sha(data):
    return hashlib.sha256(data).hexdigest()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_exists_from_its_binding_on(tmp_path):
    store = RunStore(tmp_path, UID)
    assert not store.exists()
    make_folder(store.folder)
    assert not store.exists()
    store.create({"a": 1})
    assert store.exists()
    assert store.binding() == {"a": 1}
    assert store.folder == tmp_path / "runs" / UID
    assert (store.folder / "probe").is_dir()


def test_who_only_reads_opens_no_journal(tmp_path):
    with pytest.raises(InvariantViolationError, match="only reads"):
        RunStore(tmp_path, UID).open_journal()


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.write_record(KEY, [b"late"]),
        lambda store: store.export([]),
        lambda store: store.write_json("summary.json", {}),
        lambda store: RunIndex(store.root, staging=store.staging).add(ENTRY),
    ],
    ids=["record", "export", "json", "index"],
)
@pytest.mark.usefixtures("store")
def test_the_next_leader_ends_the_writing_of_the_one_before(tmp_path, write):
    late = RunStore(tmp_path, UID, lead_of(tmp_path))
    late.export([(KEY, late.write_record(KEY, [b"right"]))])
    before = contents(tmp_path / "runs")
    lead_of(tmp_path)
    with pytest.raises(FileNotFoundError):
        write(late)
    assert contents(tmp_path / "runs") == before
    write(RunStore(tmp_path, UID, lead_of(tmp_path)))
    assert contents(tmp_path / "runs") != before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folders_of_a_launch_are_there_before_its_pod(store):
    store.make_launch_folders(HARNESS)
    store.make_launch_folders(HARNESS)
    folder = launch_place(store, HARNESS)
    assert folder == store.folder / "tasks/0/attempts/1/launches/1"
    assert sorted(item.name for item in folder.iterdir()) == [
        "candidate",
        "producer",
        "verification",
    ]
    assert {mode(item) for item in (folder, *folder.iterdir())} == {0o755}


def test_folders_reach_the_disk_from_the_top(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("securebench.files.fsync_folder", synced.append)
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]


def test_lanes_are_removed_once(store):
    folder = lanes_place(store, 3)
    assert folder == store.folder / "tasks/3/lanes"
    make_folder(folder / "public" / "files")
    for _ in range(2):
        store.artifacts.remove(Lanes(store.uid, 3))
    assert not folder.exists()


# Records and the export

KEYS = (AttemptKey(0, 1), AttemptKey(0, 2), AttemptKey(1, 1))


def written(store, keys=KEYS):
    return [
        (key, store.write_record(key, [json.dumps({"task": key[0], "n": key[1]}).encode()]))
        for key in keys
    ]


def test_a_record_is_one_line_with_its_digest(store):
    digest = store.write_record(KEYS[0], [b'{"a"', b": 1}"])
    assert digest == sha(b'{"a": 1}')
    assert b"".join(store.record_pieces(KEYS[0])) == b'{"a": 1}'
    assert mode(store.folder / "tasks/0/attempts/1/record.json") == 0o644


def test_the_export_holds_whole_lines_in_the_given_order(store):
    finished = written(store)
    count, digest = store.export(reversed(finished))
    data = (store.folder / "candidates.jsonl").read_bytes()
    assert data == b'{"task": 1, "n": 1}\n{"task": 0, "n": 2}\n{"task": 0, "n": 1}\n'
    assert (count, digest) == (3, sha(data))
    assert drafts(store) == []


def test_an_export_of_nothing(store):
    assert store.export([]) == (0, sha(b""))
    assert (store.folder / "candidates.jsonl").read_bytes() == b""


def test_a_changed_record_is_not_exported(store):
    finished = written(store)
    store.export(finished)
    before = (store.folder / "candidates.jsonl").read_bytes()
    (store.folder / "tasks/0/attempts/2/record.json").write_text('{"task": 0, "n": 3}')
    with pytest.raises(DigestMismatchError, match="the record of attempt"):
        store.export(finished)
    assert (store.folder / "candidates.jsonl").read_bytes() == before
    assert drafts(store) == []


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["export", "record", "json"])
def test_a_full_disk_leaves_the_old_file(store, monkeypatch, call):
    finished = written(store)
    store.export(finished)
    store.write_json("summary.json", {"a": 1})
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        match_call(store, finished, call)
    after = {path: path.read_bytes() for path in before}
    assert after == before


def match_call(store, finished, call):
    match call:
        case "export":
            store.export(finished[:1])
        case "record":
            store.write_record(KEYS[0], [b"{}"])
        case _:
            store.write_json("summary.json", {"a": 2})


# Files


def test_a_final_status_may_be_missing(store):
    assert store.read_final_status() is None
    store.write_json("status.json", {"status": {}})
    assert store.read_final_status() == {"status": {}}


def test_a_json_file_of_ours_holds_an_object(store):
    replace_file(store.folder / "x.json", b"[1]")
    with pytest.raises(ValueError, match="not an object"):
        read_json(store.folder / "x.json")


CANDIDATE = launch_part(UID, HARNESS, Part.CANDIDATE)


def sealed_file(store):
    store.make_launch_folders(HARNESS)
    return place(store, CANDIDATE) / "candidate.txt"


def test_a_sealed_file_is_hashed_again(store):
    path = sealed_file(store)
    path.write_bytes(b"abc")
    digest = f"sha256:{sha(b'abc')}"
    assert file_digest(path) == digest
    store.check_file(CANDIDATE, path.name, digest)
    path.write_bytes(b"abd")
    with pytest.raises(DigestMismatchError, match=r"candidate\.txt has digest") as caught:
        store.check_file(CANDIDATE, path.name, digest)
    assert caught.value.facts["sealed"] == digest


def test_a_large_file_that_is_hashed_again_tells_of_progress(store):
    path, data = sealed_file(store), b"x" * (3 * MIB + 1)
    path.write_bytes(data)
    assert told_progress(lambda: store.check_file(CANDIDATE, path.name, f"sha256:{sha(data)}")) == 4


def test_a_link_is_not_followed(store):
    (store.folder / "secret").write_text("x")
    sealed_file(store).symlink_to("secret")
    with pytest.raises(DigestMismatchError, match="symbolic link"):
        store.check_file(CANDIDATE, "candidate.txt", "sha256:x")


def test_a_link_that_leads_nowhere_is_none_that_is_missing(store):
    sealed_file(store).symlink_to("nowhere")
    with pytest.raises(DigestMismatchError, match="symbolic link"):
        store.check_file(CANDIDATE, "candidate.txt", "sha256:x")
    with pytest.raises(FileNotFoundError, match=r"no applied\.patch"):
        store.check_file(CANDIDATE, "applied.patch", "sha256:x")


# Texts


def test_texts_of_an_attempt(store):
    history = history_of(production=production(), verification=verification())
    for launch in (HARNESS, VERIFIER):
        store.make_launch_folders(launch)
    folder = launch_place(store, HARNESS)
    (folder / "candidate/candidate.txt").write_bytes(b"B\n")
    (folder / "producer/stdout").write_bytes(b"out")
    (folder / "producer/stderr").write_bytes(b"caf\xe9")
    (folder / "verification/stdout").write_bytes(b"1 passed")
    assert read_texts(store, history) == RecordTexts(
        b"out", "caf\ufffd".encode(), b"1 passed", b"", "B\n"
    )


def test_no_production_no_texts(store):
    assert read_texts(store, history_of()) == RecordTexts()


def test_what_a_launch_did_not_leave_is_empty(store):
    assert read_texts(store, history_of(production=production())) == RecordTexts(
        b"", b"", b"", b"", candidate=""
    )


@pytest.mark.parametrize("file", [None, "workspace.tar"])
def test_only_a_text_candidate_is_a_text(store, file):
    history = history_of(production=production(candidate=sealed(file=file)))
    assert read_texts(store, history).candidate is None
