from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from securebench.controller.volume import results
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import (
    FIELDS,
    prepare_published,
    publish,
    published_line,
)
from securebench.controller.volume.store import RunStore
from securebench.run.plan.model import TaskLimits
from securebench.run.records.record_line import record_line

Record = dict[str, object]

UID = "0f6b2c1e-0000-4000-8000-000000000001"
HIDDEN = "assert answer == 'Lake Superior'"
ENTRY = IndexEntry(
    "a-run", UID, "A run", "pack", "sha256:p", "sha256:h", "1", "2026-11-23", run_ordinal=3
)
RECORD = {
    "task_id": "a",
    "passed": False,
    "outcome": "scored",
    "failure_reason": "verifier_timeout",
    "failure_message": HIDDEN,
    "candidate_text": "Lake Erie",
    "producer_stdout": "thinking",
    "verifier_stdout": HIDDEN,
    "verifier_stderr": HIDDEN,
    "verifier_metadata": {"why": HIDDEN},
    "digests": {"row": "sha256:of a short answer"},
    "of_a_later_version": HIDDEN,
}


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """Make a run that has ended, with one record."""
    made = RunStore(tmp_path, UID)
    made.create({"spec": {"secret": HIDDEN}, "pack_digest": "sha256:p"})
    (made.folder / "candidates.jsonl").write_text(json.dumps(RECORD) + "\n")
    made.write_json("summary.json", {"total": 1, "sha256": "of the whole"})
    prepare_published(tmp_path)
    return made


def published_record(record: Record) -> Record:
    """Return what is published of a record."""
    line = b"".join(record_line(record, TaskLimits())).decode()
    published: Record = json.loads("".join(published_line(f"{line}\n")))
    return published


@pytest.mark.parametrize(
    "text", ["", '"', "\\", '\\"', '}, "passed": true', "\0\x1f\u3000\U0001f600", "a\nb"]
)
def test_a_text_is_published_as_it_is(text: str) -> None:
    nested = [{"a": [text, None, 1.5]}, True]
    record = {"candidate_text": text, "labels": nested, "verifier_stdout": text, "passed": False}
    want = {name: record[name] for name in ("candidate_text", "labels", "passed")}

    assert published_record(record) == want
    line = b"".join(record_line(record, TaskLimits())).decode()
    assert "".join(published_line(line)) == json.dumps(want, sort_keys=True)


def test_a_record_of_which_nothing_is_published() -> None:
    assert published_record({"verifier_stdout": "x"}) == {}


@pytest.mark.parametrize("line", ["", "[]", '{"a"', '{"a": }', '{"passed": tru'])
def test_a_line_that_is_no_record_is_not_published(line: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        list(published_line(line))


def test_a_published_record_has_no_word_of_a_check() -> None:
    assert published_record(RECORD) == {
        "task_id": "a",
        "passed": False,
        "outcome": "scored",
        "failure_reason": "verifier_timeout",
        "candidate_text": "Lake Erie",
        "producer_stdout": "thinking",
    }


@pytest.mark.parametrize(
    ("phase", "want"), [("producer", True), ("verification", False), (None, False)]
)
def test_the_message_stays_where_no_verifier_saw_the_candidate(
    phase: str | None, *, want: bool
) -> None:
    told = {"failure_message": "exit code 3", "failure_phase": phase}
    assert ("failure_message" in published_record(told)) is want


def test_nothing_that_a_check_wrote_is_named() -> None:
    assert not {field for field in FIELDS if "verifier" in field} - {"verifier_version"}
    assert not FIELDS & {"digests", "failure_message"}


def test_an_ended_run_is_published(store: RunStore, tmp_path: Path) -> None:
    sha256 = publish(store, ENTRY, "Completed")
    folder = tmp_path / "published" / UID
    content = (folder / "candidates.jsonl").read_bytes()
    assert sha256 == hashlib.sha256(content).hexdigest()
    assert json.loads((folder / "summary.json").read_text()) == {"total": 1, "sha256": sha256}
    bound = json.loads((folder / "run.json").read_text())
    assert (bound["pack_digest"], bound["index"]["run"]) == ("sha256:p", "a-run")
    for path in (tmp_path / "published").rglob("*"):
        assert path.is_dir() or HIDDEN.encode() not in path.read_bytes()
    (kept,) = RunIndex(tmp_path, "published").entries()
    assert (kept.outcome, kept.run_ordinal) == ("Completed", 3)


def test_publishing_again_changes_nothing(store: RunStore, tmp_path: Path) -> None:
    first = publish(store, ENTRY, "Completed")
    assert publish(store, ENTRY, "Completed") == first
    assert len(RunIndex(tmp_path, "published").entries()) == 1


def test_a_run_ends_also_where_it_cannot_be_published(store: RunStore, tmp_path: Path) -> None:
    (tmp_path / "published" / UID).write_text("a file in the way")
    assert publish(store, ENTRY, "Completed") == ""
    (tmp_path / "published" / UID).unlink()
    (store.folder / "candidates.jsonl").write_text("no JSON\n")
    assert publish(store, ENTRY, "Completed") == ""
    assert not (tmp_path / "published" / UID).exists()


def test_a_run_ends_also_where_the_index_of_published_runs_is_damaged(
    store: RunStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "published" / "index.jsonl").write_text("no JSON\n")
    assert publish(store, ENTRY, "Completed") == ""
    assert "published/index.jsonl on the results volume is damaged" in caplog.text


def test_a_folder_that_the_kubelet_made_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "published").mkdir()
    calls = []

    def refuse_once(path: Path, data: bytes) -> None:
        calls.append(path.parent.exists())
        if len(calls) == 1:
            path.parent.chmod(0o700)
            raise PermissionError(13, "Permission denied")
        path.write_bytes(data)

    monkeypatch.setattr(results, "replace_file", refuse_once)
    prepare_published(tmp_path)
    assert (calls, (tmp_path / "published" / ".ready").exists()) == ([True, True], True)
    assert (tmp_path / "published").stat().st_mode & 0o777 == 0o755
