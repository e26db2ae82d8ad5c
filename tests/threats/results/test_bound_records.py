"""F4: results belong to their run, and every later change and every repetition shows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.client.run_start import Binding, left_out_lines
from securebench.controller.volume.journal import (
    Journal,
    decode,
    encode_all,
    first_link,
    read_entries,
)
from securebench.controller.volume.registers import RunIndex, index_entry
from securebench.controller.volume.store import RunStore
from securebench.errors import DigestMismatchError, JournalCorruptError
from securebench.run.plan.model import AttemptKey
from securebench.run.records.reading import Record, parse_record, record_key
from securebench.run.state.entries import Entry
from support.journal_entries import ENTRIES, UID
from support.release import DATA, CommandError, Raw, Release, benchmark_run, keyed_pack
from threats.honest import TERMINAL, TEXT
from threats.kit.arena import Arena
from threats.kit.batch import Batch

OTHER_UID = "another-uid"
TIME_LIMIT_SECONDS = 120


def lines(run_uid: str) -> list[bytes]:
    """Return the journal of a run, line by line."""
    return encode_all(ENTRIES[:5], first_link(run_uid))[0].splitlines(keepends=True)


OURS, THEIRS = lines(UID), lines(OTHER_UID)
CHANGES = {
    "removed": (OURS[:1] + OURS[2:], 2),
    "doubled": (OURS[:2] + OURS[1:], 3),
    "swapped": ([OURS[0], OURS[2], OURS[1], *OURS[3:]], 2),
    "edited": ([OURS[0], OURS[1].replace(b"1", b"2"), *OURS[2:]], 2),
    "foreign": ([OURS[0], THEIRS[1], *OURS[2:]], 2),
    "all foreign": (THEIRS, 1),
}
"""A changed journal and the number of the line that must be named."""


def without_chain(data: bytes) -> list[Entry]:
    """Read a journal whose lines are only JSON to its reader."""
    return [decode(line.split(b" ", 2)[2]) for line in data.splitlines()]


@pytest.mark.short
@pytest.mark.parametrize("change", CHANGES)
def test_a_075_attack_on_the_journal(tmp_path: Path, change: str) -> None:
    changed, number = CHANGES[change]
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(changed))

    with pytest.raises(JournalCorruptError, match=f"line {number} ") as raised:
        Journal(path, UID)

    assert raised.value.facts["line"] == number
    assert path.read_bytes() == b"".join(changed)


@pytest.mark.parametrize("change", CHANGES)
def test_a_075_twin_of_the_journal(change: str) -> None:
    changed, _ = CHANGES[change]

    assert len(without_chain(b"".join(changed))) == len(changed)


@pytest.mark.short
def test_a_075_honest_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(OURS))

    assert read_entries(path.read_bytes(), UID).entries == ENTRIES[:5]
    Journal(path, UID).close()


@pytest.mark.trials(TEXT)
def test_a_075_honest_record_is_bound(arena: Arena) -> None:
    record = arena.record(TEXT)
    (harness,) = arena.pods(TEXT, "harness")
    image = harness["status"]["containerStatuses"][0]["imageID"]

    assert {"run_id", "task_id", "attempt", "resume_generation", "run_ordinal"} <= set(record)
    assert set(record["digests"]) == {"pack", "row", "harness", "verifier", "policy", "images"}
    assert record["digests"]["pack"] == record["pack_digest"]
    assert record["digests"]["images"]["harness"] == image
    sealed = hashlib.sha256(record["candidate_text"].encode()).hexdigest()
    assert record["producer_metadata"]["candidate_sha256"].endswith(sealed)


MINE = {"task_id": "a", "passed": False}
GOOD = {"task_id": "a", "passed": True}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path, UID)
    store.create({})
    return store


def exported(store: RunStore, shown: Record) -> Record:
    """Return what is published when a finished record's file is replaced by another record."""
    key = AttemptKey(0, 1)
    digest = store.write_record(key, [json.dumps(MINE).encode()])
    store.write_record(key, [json.dumps(shown).encode()])
    store.export([(key, digest)])
    record = parse_record((store.folder / "candidates.jsonl").read_bytes())
    assert record is not None
    return record


def test_a_075_attack_on_records(store: RunStore) -> None:
    with pytest.raises(DigestMismatchError, match="the record of attempt"):
        exported(store, GOOD)
    assert not (store.folder / "candidates.jsonl").exists()


def test_a_075_twin_of_records(store: RunStore) -> None:
    key = AttemptKey(0, 1)
    store.write_record(key, [json.dumps(MINE).encode()])

    now = store.write_record(key, [json.dumps(GOOD).encode()])

    assert store.export([(key, now)])[0] == 1


def test_a_075_honest_records(store: RunStore) -> None:
    assert exported(store, MINE) == MINE


# The file of the records, and who may write what


def binding(record: Record) -> Binding:
    """Return what a record says that it belongs to."""
    return Binding(*(str(record[name]) for name in Binding._fields))


def flips(data: bytes) -> list[bytes]:
    """Return a file with one bit changed, at places all over it."""
    step = max(1, len(data) // 50)
    places = range(0, len(data), step)
    return [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in places]


def counted(path: Path, data: bytes, original: bytes) -> list[int]:
    """Return the numbers of the lines that a resume takes from a file."""
    records = [json.loads(line) for line in original.splitlines()]
    ledger = {record_key(record): record for record in records}
    path.write_bytes(data)
    left_out = {each.line for each in left_out_lines(path, binding(records[0]), ledger)}
    found = range(1, len(data.splitlines()) + 1)
    return [number for number in found if number not in left_out]


def better(data: bytes) -> bytes:
    """Return the file with another score; it is still a record like any other."""
    changed = data.replace(b'"score": 1.0', b'"score": 9.0')
    assert changed != data
    return changed


@pytest.mark.trials(TEXT)
def test_a_078_attack_on_records(arena: Arena, tmp_path: Path) -> None:
    data = arena.file(TEXT, "candidates.jsonl")
    sealed = arena.run(TEXT.batch)["status"]["results"]["sha256"]

    for changed in (*flips(data), better(data)):
        assert hashlib.sha256(changed).hexdigest() != sealed
        assert counted(tmp_path / "candidates.jsonl", changed, data) == []


@pytest.mark.trials(TEXT)
def test_a_078_twin_of_records(arena: Arena, tmp_path: Path) -> None:
    changed = better(arena.file(TEXT, "candidates.jsonl"))

    assert counted(tmp_path / "candidates.jsonl", changed, original=changed) == [1]


@pytest.mark.trials(TEXT)
def test_a_078_honest(arena: Arena, tmp_path: Path) -> None:
    data = arena.file(TEXT, "candidates.jsonl")
    sealed = arena.run(TEXT.batch)["status"]["results"]["sha256"]

    assert hashlib.sha256(data).hexdigest() == sealed
    assert counted(tmp_path / "candidates.jsonl", data, data) == [1]
    assert can(bound(arena, "securebench-submitter"), "create benchmarkruns.securebench.dev")


FORBIDDEN = (
    "patch benchmarkruns.securebench.dev/status",
    "update benchmarkruns.securebench.dev/status",
    "create pods",
    "create pods/exec",
    "get pods/log",
    "create jobs.batch",
    "get persistentvolumeclaims",
    "create persistentvolumeclaims",
    "get secrets",
    "create secrets",
)


class User:
    """Somebody with a role in the namespace of a release."""

    def __init__(self, release: Release, role: str) -> None:
        self.release = release
        self.name = f"user-of-{role}"


def bound(arena: Arena, role: str) -> User:
    """Return a user who has a role of the arena's namespace."""
    release = arena.place(TERMINAL.batch).release
    user = User(release, role)
    words = ("create", "rolebinding", user.name, f"--role={role}", f"--user={user.name}")
    try:
        release.kubectl(*words)
    except CommandError as error:
        if "already exists" not in str(error):
            raise
    return user


def can(user: User, what: str) -> bool:
    """Return whether a user may do something."""
    verb, resource = what.split()
    kind, _, sub = resource.partition("/")
    words = ["auth", "can-i", verb, kind, f"--as={user.name}"]
    try:
        answer = user.release.kubectl(*words, *([f"--subresource={sub}"] if sub else []))
    except CommandError as error:
        answer = str(error)
    return answer.strip() == "yes"


@pytest.mark.trials(TERMINAL)
def test_a_078_attack_with_rights(arena: Arena) -> None:
    user = bound(arena, "securebench-submitter")

    assert [what for what in FORBIDDEN if can(user, what)] == []


@pytest.mark.trials(TERMINAL)
def test_a_078_twin_with_rights(arena: Arena) -> None:
    release = arena.place(TERMINAL.batch).release
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    role: Raw = {"metadata": {"name": "everything"}, "rules": rules}
    release.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", **role})
    user = bound(arena, "everything")

    assert [what for what in FORBIDDEN if can(user, what)] == list(FORBIDDEN)


# Repetitions

AGAIN = Batch("f4-again", "short_answer")
AGAIN_ROW = AGAIN.task("again", candidate="4\n", grading={"accepted_answers": ["5"]}).row


@pytest.mark.trials(TERMINAL)
def test_a_079_attack(arena: Arena) -> None:
    release = arena.place(AGAIN).release
    pack, source = keyed_pack("ConfigMap", "f4-again-pack", AGAIN.pack([AGAIN_ROW]))
    release.create(pack)
    spec = {**AGAIN.run_spec(), "runId": "again", "pack": source}

    records = [repeated(release, spec) for _ in range(3)]

    assert [record["run_ordinal"] for record in records] == [1, 2, 3]
    index = release.operator("cat", f"{DATA}/runs/index.jsonl").splitlines()
    kept = [line for line in map(json.loads, index) if line["run_id"] == "again"]
    assert [line["run_ordinal"] for line in kept] == [1, 2, 3]
    assert len({line["uid"] for line in kept}) == 3


def repeated(release: Release, spec: Raw) -> Record:
    """Return the record of a run that is deleted afterwards."""
    release.create(benchmark_run(AGAIN.name, spec))
    release.wait_ended(AGAIN.name, TIME_LIMIT_SECONDS)
    (record,) = release.records(AGAIN.name)
    release.kubectl("delete", "benchmarkrun", AGAIN.name, f"--timeout={TIME_LIMIT_SECONDS}s")
    return record


ENTRY = index_entry(
    {
        "run": "again",
        "uid": "1",
        "run_id": "again",
        "pack": "p",
        "pack_digest": "sha256:p",
        "harness_digest": "sha256:h",
        "verifier_version": "1",
        "started_at": "2026-01-01T00:00:00Z",
    }
)


def test_a_079_twin(tmp_path: Path) -> None:
    forgetful = [
        RunIndex(tmp_path / str(number)).add(replace(ENTRY, uid=str(number))) for number in range(3)
    ]

    assert [entry.run_ordinal for entry in forgetful] == [1, 1, 1]


@pytest.mark.trials(TEXT)
def test_a_079_honest(arena: Arena, tmp_path: Path) -> None:
    index = RunIndex(tmp_path)

    assert arena.record(TEXT)["run_ordinal"] == 1
    assert [index.add(replace(ENTRY, run_id=name)).run_ordinal for name in ("a", "b")] == [1, 1]
