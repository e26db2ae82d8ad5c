"""Reference answers of a pack (design 10)."""

import json
import os

import pytest

from securebench.benchmark.files.load import read_answers
from securebench.benchmark.pack.oracle import ReferenceAnswer, reference_answers
from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import BenchmarkManifest
from securebench.digests import content_digest
from securebench.errors import ConfigErrors, PackError

MANIFEST = BenchmarkManifest("demo", 1, default_environment={"image": "i"})


def task(task_id, family="short_answer"):
    sections = {
        "short_answer": {"input": {"question": "?"}, "eval": {"accepted_answers": ["a"]}},
        "terminal_task": {
            "input": {"instructions": "i"},
            "eval": {"checker": {"command": "true"}},
        },
    }[family]
    row = {"id": task_id, "family": family, **sections}
    return compile_benchmark_row(row, manifest=MANIFEST)


TASKS = (task("text"), task("work", "terminal_task"), task("later"))
GOOD = ({"id": "work", "command": "make\n"}, {"id": "text", "candidate": " é\n"})


def content(*lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return "\n".join(texts).encode()


def problems(*lines, wanted=("text", "work"), is_whole=True):
    with pytest.raises(ConfigErrors) as caught:
        reference_answers(content(*lines), TASKS, wanted, is_whole=is_whole)
    return [
        str(error).removeprefix("oracle/answers.jsonl:").strip() for error in caught.value.errors
    ]


def test_answers_in_any_order_with_blank_lines():
    data = content(*GOOD, "", "  ")
    found = reference_answers(data, TASKS, {"text", "work"}, is_whole=True)
    assert found.by_id == {
        "work": ReferenceAnswer("command", "make\n"),
        "text": ReferenceAnswer("candidate", " é\n"),
    }
    assert found.digest == content_digest(data)


def test_a_task_that_does_not_run_needs_no_answer():
    assert problems(*GOOD, wanted=("text", "later")) == ["there is no answer for task 'later'"]


def test_ids_behind_a_limit_are_not_known():
    extra = {"id": "row-99", "candidate": "x"}
    data = content(*GOOD, extra)
    assert "row-99" in reference_answers(data, TASKS, {"text"}, is_whole=False).by_id
    assert problems(*GOOD, extra) == ["3: the pack has no task 'row-99'"]


def test_no_file():
    with pytest.raises(
        ConfigErrors, match=r"^p/answers: the pack has no such file; an oracle hands"
    ):
        reference_answers(None, TASKS, {"text"}, is_whole=True, path="p/answers")


BAD = {
    "not JSON": ("{", "1: "),
    "a key twice": ('{"id": "text", "id": "text", "candidate": "x"}', "1: "),
    "no object": ("[1]", "1: an answer must be an object"),
    "no id": ({"candidate": "x"}, "1: id must be a non-empty string"),
    "id of another type": ({"id": 3, "candidate": "x"}, "1: id must be a non-empty string"),
    "nothing": ({"id": "text"}, "1: the answer for task 'text' needs either candidate or command"),
    "both": (
        {"id": "text", "candidate": "x", "command": "y"},
        "1: the answer for task 'text' needs either candidate or command",
    ),
    "blank": ({"id": "text", "command": " \n"}, "1: command of the answer for task 'text' must be"),
    "no text": ({"id": "text", "candidate": ["x"]}, "1: candidate of the answer for task 'text' m"),
    "half a character": ({"id": "text", "candidate": "\ud800"}, "1: candidate of the answer for"),
    "unknown key": (
        {"id": "text", "candidate": "x", "why": 1, "a": 2},
        "1: the answer for task 'text' has unknown key(s): a, why",
    ),
    "text for a workspace": (
        {"id": "work", "candidate": "x"},
        "1: task 'work' is solved in its workspace: its answer needs a command",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_one_defect_gives_one_line(name):
    line, want = BAD[name]
    (found,) = problems(line, wanted=())
    assert found.startswith(want)


def test_all_defects_come_together():
    lines = (GOOD[1], "", "{", GOOD[1], {"id": "typo", "candidate": "x"})
    found = problems(*lines, wanted=("text", "work", "later"))
    assert found[1:] == [
        "4: a second answer for task 'text'; the first is on line 1",
        "5: the pack has no task 'typo'",
        "there is no answer for task 'work'",
        "there is no answer for task 'later'",
    ]
    assert found[0].startswith("3: ")


# The file


def test_the_file_lies_beside_the_manifest(tmp_path):
    assert read_answers(tmp_path) is None
    (tmp_path / "oracle").mkdir()
    assert read_answers(tmp_path) is None
    (tmp_path / "oracle/answers.jsonl").write_bytes(b"{}")
    assert read_answers(tmp_path) == b"{}"


@pytest.mark.parametrize("link", ["oracle", "oracle/answers.jsonl"])
def test_a_symlink_is_refused(link, tmp_path):
    outside, pack = tmp_path / "outside", tmp_path / "pack"
    for folder in (outside, pack):
        (folder / "oracle").mkdir(parents=True)
        (folder / "oracle/answers.jsonl").write_bytes(b"{}")
    if link == "oracle":
        (pack / "oracle/answers.jsonl").unlink()
        (pack / "oracle").rmdir()
    else:
        (pack / link).unlink()
    (pack / link).symlink_to(outside / link)
    with pytest.raises(PackError, match="not reached by a symlink"):
        read_answers(pack)


def test_a_folder_in_its_place_cannot_be_read(tmp_path):
    (tmp_path / "oracle/answers.jsonl").mkdir(parents=True)
    with pytest.raises(PackError, match=r"oracle/answers\.jsonl: cannot be read: Is a directory"):
        read_answers(tmp_path)


def test_answers_that_are_no_file_are_not_opened(tmp_path):
    (tmp_path / "oracle").mkdir()
    os.mkfifo(tmp_path / "oracle/answers.jsonl")
    with pytest.raises(PackError, match="is a FIFO"):
        read_answers(tmp_path)
