"""Real runs of an operator in memory; then somebody changes their files."""

import base64
import json
import shutil

import pytest

from securebench.attestation.envelope import pem_signer, sealed
from securebench.attestation.starts import RunStart, appended, read_starts
from securebench.attestation.statement import encode
from securebench.attestation.verification import MAX_FINDINGS, Mismatch, Trust, bounded, verify_run
from securebench.client.results import FolderFiles
from support.operator_world import World, opened
from support.sealed_runs import (
    OPERATOR,
    SIGNING,
    check,
    handed_on,
    key_pair,
    place_key,
    run_to_end,
    seal_runs,
    told,
)

OTHER = key_pair(2)
STATEMENT = "statement.dsse.json"


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    root = tmp_path_factory.mktemp("volume")
    return root, seal_runs(root, "first", "second")


@pytest.fixture
def folder(volume, tmp_path):
    root, uids = volume
    return handed_on(root, uids["first"], tmp_path / "first")


@pytest.fixture
def other(volume, tmp_path):
    root, uids = volume
    return handed_on(root, uids["second"], tmp_path / "second")


def edited(path, old, new, count=1):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, count))


def resigned(folder, change, pair=OPERATOR):
    """Let whoever has a key sign another predicate."""
    raw = json.loads((folder / STATEMENT).read_bytes())
    statement = json.loads(base64.b64decode(raw["payload"]))
    change(statement)
    (folder / STATEMENT).write_bytes(sealed(encode(statement), pem_signer(pair.private)))


def test_an_honest_run(folder):
    report = check(folder, OPERATOR.key)
    assert (told(report), report.signed_by) == ([], (OPERATOR.key.keyid,))
    assert report.predicate["results"]["passed"] == report.predicate["sampleSize"] == 2
    (note,) = report.notes
    assert note.startswith("1 more were started after this one had ended: second (2026-")


def test_every_try_is_told(other):
    (note,) = check(other, OPERATOR.key).notes
    assert note.startswith("2 runs with run id 'smoke' on this pack: first (")


def test_without_signature_only_what_fits_is_checked(folder):
    edited(folder / STATEMENT, b'"sig": "', b'"sig": "AAAA')
    report = verify_run(FolderFiles(folder), Trust(is_signature_needed=False))
    assert (told(report), report.signed_by) == ([], ())


@pytest.mark.parametrize(
    ("name", "old", "new", "want"),
    [
        (
            "candidates.jsonl",
            b'"task_id": "b"',
            b'"task_id": "c"',
            "candidates.jsonl, line 2, task 1, attempt 1: is not the record that was written",
        ),
        ("summary.json", b'"passed": 2', b'"passed": 1', "passed: is 1, attempts.jsonl has 2"),
        ("summary.json", b"{", b"[", "summary.json: is no JSON object"),
        ("run.json", b'"smoke"', b'"other"', "run.json: differs from the statement in"),
        ("attempts.jsonl", b'"scored"', b'"agent"', "attempts.jsonl: has SHA-256"),
        ("attempts.jsonl", b'"scored"', b'"agent"', "differs from what the journal tells"),
        ("attempts.jsonl", b": 0", b":0 ", "attempts.jsonl, line 1: is not as the operator"),
        ("journal.jsonl", b"scored", b"agent!", "journal.jsonl, line"),
        ("starts.jsonl", b'"first"', b'"tsrif"', "starts.jsonl: line 1 is damaged"),
    ],
)
def test_an_edited_file(folder, name, old, new, want):
    edited(folder / name, old, new)
    found = told(check(folder, OPERATOR.key))
    assert any(want in line for line in found), found


@pytest.mark.parametrize("name", ["candidates.jsonl", "summary.json", "run.json", "attempts.jsonl"])
def test_a_missing_file(folder, name):
    (folder / name).unlink()
    assert told(check(folder, OPERATOR.key)) == [f"{name}: is missing"]


def test_what_may_stay_behind_is_noted(folder):
    (folder / "journal.jsonl").unlink()
    (folder / "starts.jsonl").unlink()
    report = check(folder, OPERATOR.key)
    assert told(report) == []
    assert [note.partition(":")[0] for note in report.notes] == [
        "journal.jsonl is not here",
        "starts.jsonl is not here",
    ]


def test_no_statement(folder):
    (folder / STATEMENT).unlink()
    (found,) = told(check(folder, OPERATOR.key))
    assert found.startswith("statement.dsse.json: is missing: the run has not ended, or the folder")


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        (slice(0, 1), "candidates.jsonl, line 2, task 1, attempt 1: the record is missing"),
        (slice(None, None, -1), "line 1, task 0, attempt 1: is not the record"),
    ],
)
def test_records_that_are_left_out_or_moved(folder, lines, want):
    path = folder / "candidates.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[lines]))
    assert any(want in line for line in told(check(folder, OPERATOR.key)))


def test_a_record_too_many(folder):
    path = folder / "candidates.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    found = told(check(folder, OPERATOR.key))
    assert "candidates.jsonl, line 3: is the record of no attempt in attempts.jsonl" in found


def test_a_journal_whose_end_is_cut(folder):
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    found = told(check(folder, OPERATOR.key))
    assert "journal.jsonl: differs from the statement in 'end'" in found


def test_records_that_the_journal_does_not_know(folder, other):
    for name in ("candidates.jsonl", "attempts.jsonl"):
        shutil.copyfile(other / name, folder / name)
    assert "candidates.jsonl: 2 records are not in the journal" in told(check(folder, OPERATOR.key))


def test_the_statement_of_another_run(folder, other, volume):
    shutil.copyfile(other / STATEMENT, folder / STATEMENT)
    _, uids = volume
    found = told(check(folder, OPERATOR.key))
    assert f"is about another run than run.json, {uids['first']}" in found[0]


def test_another_run_than_the_one_that_was_asked_for(other, volume):
    _, uids = volume
    found = told(check(other, OPERATOR.key, uid=uids["first"]))
    assert found == [
        f"statement.dsse.json, run {uids['second']}: is about another run than {uids['first']}"
    ]


def test_a_statement_that_somebody_else_signed(folder):
    resigned(folder, dict.copy, OTHER)
    (found,) = told(check(folder, OPERATOR.key))
    assert found.endswith(f"it names key {OTHER.key.keyid[:12]}")


def test_an_unsigned_statement(folder):
    data = json.loads((folder / STATEMENT).read_bytes()) | {"signatures": []}
    (folder / STATEMENT).write_bytes(json.dumps(data, sort_keys=True).encode() + b"\n")
    want = "statement.dsse.json: is not signed: the operator had no key when the run ended"
    assert told(check(folder, OPERATOR.key)) == [want]


def test_a_statement_of_another_type(folder):
    resigned(folder, lambda statement: statement.update(predicateType="https://example.org/x"))
    found = told(check(folder, OPERATOR.key))
    assert found == ["statement.dsse.json: is a statement of another type: https://example.org/x"]


@pytest.mark.parametrize(
    ("field", "value", "want"),
    [
        ("results", {"passed": 3}, "summary.json: differs from the statement in 'results'"),
        ("attempts", {}, "attempts.jsonl: differs from the statement in 'attempts'"),
        ("isolation", [], "journal.jsonl: differs from the statement in 'isolation'"),
        ("rows", {}, "run.json: differs from the statement in 'rows'"),
        ("resumed", [{}], "starts.jsonl: differs from the statement in 'resumed'"),
    ],
)
def test_a_signed_statement_that_does_not_say_what_the_files_do(folder, field, value, want):
    resigned(folder, lambda statement: statement["predicate"].update({field: value}))
    assert told(check(folder, OPERATOR.key)) == [want]


def test_the_end_of_the_starts_is_cut(other):
    path = other / "starts.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    want = "starts.jsonl: has 1 lines, the statement saw 2: its end was cut off"
    assert told(check(other, OPERATOR.key)) == [want]


def test_starts_that_were_written_anew(other):
    """Whoever can edit the volume makes a list whose chain holds, without the earlier try."""
    path = other / "starts.jsonl"
    second = RunStart(**dict(read_starts(path.read_bytes()).lines[1].start))
    path.write_bytes(appended(read_starts(b""), [second, second]))
    found = told(check(other, OPERATOR.key))
    assert any("is not the line that the statement saw as line 2" in line for line in found)
    assert "starts.jsonl: differs from the statement in 'starts'" in found


def test_starts_behind_a_damaged_list(volume, tmp_path):
    root = tmp_path / "volume"
    shutil.copytree(volume[0], root)
    (root / "runs" / "starts.jsonl").unlink()
    with opened(World, root, signing=SIGNING, signing_root=root / "signing") as world:
        world.runs = 2
        uid = run_to_end(world, "third")
    found = told(check(handed_on(root, uid, tmp_path / "run"), OPERATOR.key))
    want = "line 1 with run first is missing; line 2 with run second is missing"
    assert found == [f"starts.jsonl, line 1: was written behind a damaged list: {want}"]


def test_a_key_that_was_replaced_in_the_middle(tmp_path):
    signing_root = tmp_path / "signing"
    place_key(signing_root)
    with opened(World, tmp_path, signing=SIGNING, signing_root=signing_root) as world:
        uid = world.apply("nightly", isolation={"require": "Declared"})
        place_key(signing_root, OTHER)
        world.work(uid)
    folder = handed_on(tmp_path, uid, tmp_path / "run")
    (found,) = told(check(folder, OTHER.key))
    assert f"the run began with key {OPERATOR.key.keyid[:12]}" in found
    assert told(check(folder, OTHER.key, OPERATOR.key)) == []
    assert told(check(folder, OPERATOR.key)) != []


def test_many_findings_of_a_kind_are_counted():
    many = [Mismatch("f", f"line {number}", "x") for number in range(MAX_FINDINGS + 3)]
    *shown, last = bounded(many)
    assert (shown, last) == (many[:MAX_FINDINGS], Mismatch("f", "", "3 more findings of this kind"))
    assert list(bounded([])) == []
