"""``securebench pack import``: tables become packs, and what is no task is named by its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from securebench.cli.main import app

CSV = 'id,question,A,B,answer\nq1,"Two, or one?",two,one,B\nq2,Which?,x,y,0\n'
MMLU = {"question": "Which?", "choices": ["x", "y"], "answer": 1}
ARC = {
    "id": "arc-1",
    "question": "Which?",
    "choices": {"text": ["x", "y"], "label": ["1", "2"]},
    "answerKey": "2",
}
GSM = {"question": "2 + 2?", "answer": "4"}
WHICH = {"question": "Which?", "choices": ["x", "y"]}


def run(*words: object) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["pack", "import", *map(str, words)])
    return result.exit_code, result.stdout.splitlines()


def table(folder: Path, *rows: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def tasks(pack: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (pack / "tasks.jsonl").read_text().split("\n")[:-1]]


def answered(row_id: str, question: str, *accepted: str) -> dict[str, object]:
    accepted_answers = {"accepted_answers": list(accepted)}
    return {"id": row_id, "input": {"question": question}, "eval": accepted_answers}


SHORT = ("--family", "short_answer")


@pytest.mark.parametrize(
    ("row", "flags", "want"),
    [
        (MMLU, (), {"id": "data-1", "input": WHICH, "eval": {"answer": 1}}),
        (
            {**MMLU, "answer": 2, "idx": 7},
            ("--first", "1"),
            {"id": "7", "input": WHICH, "eval": {"answer": 1}},
        ),
        (ARC, (), {"id": "arc-1", "input": WHICH, "eval": {"answer": 1}}),
        (GSM, SHORT, answered("data-1", "2 + 2?", "4")),
        (
            {"ask": "Who?", "names": ["Ann", "Anna"]},
            (*SHORT, "--question", "ask", "--answer", "names"),
            answered("data-1", "Who?", "Ann", "Anna"),
        ),
    ],
    ids=["positions", "positions from 1", "labels", "texts", "named columns"],
)
def test_rows_of_data_sets(
    tmp_path: Path, row: object, flags: tuple[str, ...], want: object
) -> None:
    pack = tmp_path / "pack"
    assert run(table(tmp_path, row), pack, *flags)[0] == 0
    assert tasks(pack) == [want]


def test_a_csv_with_a_column_for_each_choice(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(CSV)
    pack = tmp_path / "pack"
    code, lines = run(tmp_path / "data.csv", pack, "--choices", "A,B")
    assert (code, lines) == (0, [f"securebench: pack={pack} family=multiple_choice tasks=2"])
    first, second = tasks(pack)
    question = {"question": "Two, or one?", "choices": ["two", "one"]}
    assert first == {"id": "q1", "input": question, "eval": {"answer": 1}}
    assert second["eval"] == {"answer": 0}
    files = ("--manifest", str(pack / "manifest.yaml"), "--tasks", str(pack / "tasks.jsonl"))
    assert CliRunner().invoke(app, ["pack", "lint", *files]).exit_code == 0


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c"])
def test_a_cell_of_a_csv_has_every_sign(tmp_path: Path, sign: str) -> None:
    path, pack = tmp_path / "data.csv", tmp_path / "pack"
    rows = f'question,answer\r\na{sign}b,1\r\n"a{sign}\r\nb",2\r\n'
    path.write_bytes(rows.encode())
    assert run(path, pack, *SHORT)[0] == 0
    questions = [answered("data-1", f"a{sign}b", "1"), answered("data-2", f"a{sign}\r\nb", "2")]
    assert tasks(pack) == questions
    path.write_bytes(f"{rows}c,3,4\r\n".encode())
    code, said = run(path, pack, *SHORT)
    assert (code, said) == (
        1,
        [f"securebench: error: {path}:5: has more or fewer cells than the header"],
    )


@pytest.mark.parametrize(
    ("name", "want"), [("arc-1.0", "arc-1-0-"), (".", "here"), ("../here/../mmlu", "mmlu")]
)
def test_the_id_of_a_pack_is_the_name_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, want: str
) -> None:
    source = table(tmp_path, MMLU)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(source, name)[0] == 0
    identity = yaml.safe_load((Path(name) / "manifest.yaml").read_text())["id"]
    assert identity.startswith(want)
    assert want.endswith("-") or identity == want


def test_a_preview_writes_nothing(tmp_path: Path) -> None:
    code, lines = run(table(tmp_path, MMLU, MMLU))
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data.jsonl"]
    assert ["question", "question"] in [line.split() for line in lines]
    assert any('"choices": ["x", "y"]' in line for line in lines)


@pytest.mark.parametrize(
    ("content", "name", "flags", "want"),
    [
        ("", "data.jsonl", (), "data.jsonl: the table has no row"),
        ("[1]\n", "data.jsonl", (), "data.jsonl:1: is no object; a table has one object per line"),
        (
            f"{json.dumps(MMLU)}\n\n{json.dumps({**MMLU, 'answer': 9})}\n",
            "data.jsonl",
            (),
            (
                "data.jsonl:3: task 'data-2' (multiple_choice): eval.answer is no letter A to B,"
                " text or position (a number from 0) of a choice"
            ),
        ),
        (
            CSV,
            "data.csv",
            (),
            (
                "no column of data.csv is known as the choices; name it with --choices; there are"
                " id, question, A, B, answer"
            ),
        ),
        (
            CSV,
            "data.csv",
            ("--choices", "A,B", "--answer", "answers"),
            "data.csv has no column 'answers', did you mean 'answer'?",
        ),
        (
            "question,answer\n1,2,3\n",
            "data.csv",
            SHORT,
            "data.csv:2: has more or fewer cells than the header",
        ),
        (
            f"{json.dumps({**GSM, 'answer': None})}\n",
            "data.jsonl",
            SHORT,
            (
                "data.jsonl:1: task 'data-1' (short_answer): eval.accepted_answers[0] must be a"
                " non-empty string or a number"
            ),
        ),
    ],
)
def test_what_is_no_table_of_tasks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    name: str,
    flags: tuple[str, ...],
    want: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    code, lines = run(name, "pack", *flags)
    assert (code, lines) == (1, [f"securebench: error: {want}"])
    assert not Path("pack").exists()


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "mine").touch()
    code, lines = run(table(tmp_path, MMLU), pack)
    said = f"securebench: error: {pack} is not empty; name a new or an empty folder"
    assert (code, lines) == (1, [said])
    assert [path.name for path in pack.iterdir()] == ["mine"]


@pytest.mark.parametrize("target", ["pack", "nothing"])
def test_a_link_to_no_folder_is_no_new_folder(tmp_path: Path, target: str) -> None:
    pack = tmp_path / "pack"
    pack.symlink_to(target)
    code, lines = run(table(tmp_path, MMLU), pack)
    said = f"securebench: error: {pack} is not empty; name a new or an empty folder"
    assert (code, lines) == (1, [said])
