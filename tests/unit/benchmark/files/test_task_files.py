"""Task files as a whole: encodings, rows on their lines, and errors of many rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.benchmark.files.load import check_pack, load_tasks
from securebench.errors import ConfigErrors

MANIFEST = "id: demo\nversion: 1\ndefaults:\n  environment: {image: i}\n"
WITHOUT_IMAGE = "id: demo\nversion: 1\ndefaults:\n  environment: {timeout_seconds: 1}\n"
ROW = {
    "id": "a",
    "family": "short_answer",
    "input": {"question": "q"},
    "eval": {"accepted_answers": ["x"]},
}
NO_IMAGE = "benchmark environment.image is required: a non-empty string"


def rows(count: int, **changes: object) -> list[dict[str, object]]:
    return [{**ROW, "id": f"t{number}", **changes} for number in range(1, count + 1)]


def lines(*values: object) -> str:
    return "\n".join(json.dumps(value) for value in values)


def errors(
    folder: Path, tasks: str | bytes, *, manifest: str = MANIFEST, limit: int | None = None
) -> list[str]:
    (folder / "manifest.yaml").write_text(manifest)
    (folder / "tasks.jsonl").write_bytes(tasks.encode() if isinstance(tasks, str) else tasks)
    checked = check_pack(folder / "manifest.yaml", folder / "tasks.jsonl", limit=limit)
    if checked.errors:
        with pytest.raises(ConfigErrors):
            load_tasks(folder / "manifest.yaml", folder / "tasks.jsonl", limit=limit)
    return [str(error).removeprefix(f"{folder}/") for error in checked.errors]


@pytest.mark.parametrize("text", ["", "\n  \n\n"])
def test_a_file_without_a_task(tmp_path: Path, text: str) -> None:
    want = "tasks.jsonl: the file has no task; write one JSON object per line"
    assert errors(tmp_path, text) == [want]


def test_a_limit_that_leaves_no_task(tmp_path: Path) -> None:
    assert errors(tmp_path, lines(ROW), limit=0) == ["tasks.jsonl: a limit of 0 leaves no task"]


ARRAY = "benchmark row must be an object: write one object per line, not one JSON array"
SPREAD = "a row lies on several lines; write one object per line"
FORMS = {
    "array": (json.dumps(rows(3), indent=1), [f"tasks.jsonl:1: {ARRAY}"]),
    "array on a later line": ("\n" + json.dumps(rows(3), indent=1), [f"tasks.jsonl:2: {ARRAY}"]),
    "array on one line": (
        json.dumps(rows(3)), [f"tasks.jsonl:1: {ARRAY}"]),
    "array beside rows": (
        lines(["x"], ROW), ["tasks.jsonl:1: benchmark row must be an object"]),
    "array that is cut": ("[\n" + lines(*rows(2)), [f"tasks.jsonl:1: {ARRAY}"]),
    "objects on several lines": (
        "\n".join(json.dumps(row, indent=2) for row in rows(2)), [f"tasks.jsonl:1: {SPREAD}"]),
    "a first row that is no JSON for another reason": (
        lines(ROW).replace("{", '{"id": "x", ', 1) + lines(ROW),
        ["tasks.jsonl:1: invalid JSON: an object holds the same key twice"]),
    "a broken first row": (
        '{"id": "x",\n' + lines(ROW),
        [("tasks.jsonl:1: invalid JSON: Expecting property name enclosed in double quotes"
         " (column 12)")]),
}  # fmt: skip


@pytest.mark.parametrize("case", FORMS)
def test_something_else_than_one_object_per_line_is_said_once(tmp_path: Path, case: str) -> None:
    text, want = FORMS[case]
    assert errors(tmp_path, text) == want


ENCODINGS: dict[str, tuple[str, list[str]]] = {
    "UTF-8 with a mark": ("utf-8-sig", []),
    "UTF-16": ("utf-16", ["tasks.jsonl:1: the file is UTF-16; save it as UTF-8"]),
    "UTF-16 without a mark": (
        "utf-16-be", ["tasks.jsonl:1: the file is UTF-16 without a mark; save it as UTF-8"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ENCODINGS)
def test_encodings(tmp_path: Path, case: str) -> None:
    encoding, want = ENCODINGS[case]
    assert errors(tmp_path, lines(*rows(2)).encode(encoding)) == want


def test_a_manifest_with_a_mark_of_utf_8_and_windows_line_ends(tmp_path: Path) -> None:
    manifest = ("\ufeff" + MANIFEST).replace("\n", "\r\n")
    assert errors(tmp_path, lines(*rows(2)), manifest=manifest) == []


EQUAL = {
    "misspelt row key": (
        [{**{key: row[key] for key in ("id", "family", "eval")}, "inputs": row["input"]}
         for row in rows(8)],
        ("tasks.jsonl:1: benchmark row line 1: unknown key 'inputs', did you mean 'input'?"
        " (the same in 7 more rows: line 2, 3, 4, 5, 6, …)")),
    "misspelt family": (
        rows(2, family="short-answer"),
        ("tasks.jsonl:1: task 't1' (short-answer): unknown family 'short-answer', did you mean"
        " 'short_answer'? (the same in 1 more row: line 2)")),
    "missing input": (
        rows(3, input={}),
        ("tasks.jsonl:1: task 't1' (short_answer): input.question is required"
        " (the same in 2 more rows: line 2, 3)")),
    "environment of the rows": (
        rows(2, environment={"timeout_seconds": 0}),
        ("tasks.jsonl:1: task 't1' (short_answer): environment.timeout_seconds must be a positive"
        " number of seconds, at most 31536000 (the same in 1 more row: line 2)")),
    "asset": (
        rows(2, assets=[{"path": "x", "mnt": "y"}]),
        ("tasks.jsonl:1: benchmark row line 1.assets[0] has unknown field(s): mnt, did you mean"
        " 'mount'? (the same in 1 more row: line 2)")),
}  # fmt: skip


@pytest.mark.parametrize("case", EQUAL)
def test_equal_errors_of_many_rows_are_one(tmp_path: Path, case: str) -> None:
    content, want = EQUAL[case]
    assert errors(tmp_path, lines(*content)) == [want]


AT_THE_MANIFEST = {
    "no image anywhere": (
        WITHOUT_IMAGE, rows(3),
        f"manifest.yaml:4: {NO_IMAGE} (defaults.environment.image; rows: 3)"),
    "no defaults": (
        "id: demo\nversion: 1\n", rows(2),
        f"manifest.yaml:1: {NO_IMAGE} (defaults.environment.image; rows: 2)"),
    "blank image": (
        MANIFEST.replace("image: i", "image: ''"), rows(1),
        f"manifest.yaml:4: {NO_IMAGE} (defaults.environment.image; rows: 1)"),
    "misspelt image": (
        MANIFEST.replace("image", "imgae"), rows(3),
        "manifest.yaml:4: unknown key 'imgae' in environment, did you mean 'image'?"),
    "time limit": (
        MANIFEST.replace("}", ", timeout_seconds: 0}"), rows(2),
        ("manifest.yaml:4: environment.timeout_seconds must be a positive number of seconds, at"
        " most 31536000 (defaults.environment.timeout_seconds; rows: 2)")),
    "family": (
        MANIFEST + "  family: short-answer\n", rows(2),
        "manifest.yaml:5: unknown family 'short-answer', did you mean 'short_answer'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", AT_THE_MANIFEST)
def test_what_the_manifest_causes_is_said_there_once(tmp_path: Path, case: str) -> None:
    manifest, content, want = AT_THE_MANIFEST[case]
    assert errors(tmp_path, lines(*content), manifest=manifest) == [want]


def test_an_image_that_one_row_lacks_is_missed_there(tmp_path: Path) -> None:
    first, second = rows(2)
    text = lines({**first, "environment": {"image": "i"}}, second)
    want = f"tasks.jsonl:2: task 't2' (short_answer): {NO_IMAGE}"
    assert errors(tmp_path, text, manifest=WITHOUT_IMAGE) == [want]
