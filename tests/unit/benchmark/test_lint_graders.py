"""Lint of graders: rows of mistakes that a run would have blamed on the agent."""

import json

import pytest

from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import LintRule, Severity, lint_graders

MANIFEST = """\
id: demo
version: 1
defaults:
  environment: {image: "python:3.11-slim"}
"""
PATCH = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
CUT = PATCH.removesuffix("+b\n")
PLACE = "securebench/evaluation_inputs"


def terminal(checker, **evaluation):
    inputs = {"instructions": "i"}
    return {
        "id": "a",
        "family": "terminal_task",
        "input": inputs,
        "eval": {"checker": checker, **evaluation},
    }


def pytest_row(path):
    return terminal({"source": "pytest", "path": path})


CHECK = "def check(candidate):\n    assert candidate(4) == 8\n"


def code(source, **evaluation):
    tests = {"source": "inline", "code": source}
    return {
        "id": "a",
        "family": "code_completion",
        "input": {"prompt": "p"},
        "eval": {"tests": tests, **evaluation},
    }


def choice(answer, *choices):
    return {
        "id": "a",
        "family": "multiple_choice",
        "input": {"question": "q", "choices": choices or ("Mercury", "Venus", "Earth")},
        "eval": {"answer": answer},
    }


def repo(**patches):
    tests = {"source": "command", "command": "x", "workdir": "/testbed", **patches}
    inputs = {"repo": "r", "base_commit": "c", "instructions": "i"}
    return {"id": "a", "family": "repo_patch", "input": inputs, "eval": {"tests": tests}}


def findings(tmp_path, row, files):
    (tmp_path / "m.yaml").write_text(MANIFEST)
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    for name, content in files.items():
        path = tmp_path / "hidden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    checked = check_pack(tmp_path / "m.yaml", tmp_path / "t.jsonl")
    assert not checked.errors
    return lint_graders(checked)


GOOD = {
    "inline tests": (code("assert f() == 1"), {}),
    "tests that are no text": (code(3), {}),
    "a check with its entry point": (code(CHECK, entry_point="double"), {}),
    "patches": (repo(test_patch=PATCH, setup_patch={"source": "inline", "patch": PATCH}), {}),
    "a pytest file": (pytest_row("t.py"), {"t.py": "def test_x(): pass"}),
    "a pytest folder": (
        pytest_row("t"),
        {"t/test_x.py": "def test_x(): pass", "t/data.txt": "def ("},
    ),
    "a folder with a conftest": (pytest_row("t"), {"t/conftest.py": "", "t/cases.yaml": ""}),
    "a script of a shell": (terminal({"source": "script", "path": "c.sh"}), {"c.sh": "if ["}),
    "a command with its file": (
        terminal({"command": f"sh {PLACE}/c.sh >out"}, run_tests={"path": "c.sh"}),
        {"c.sh": ""},
    ),
    "a command with a file of a folder": (
        terminal({"command": ["sh", f"/app/{PLACE}/c/run.sh"]}, run_tests={"path": "c"}),
        {"c/run.sh": ""},
    ),
    "a command with the folder of a file": (
        terminal({"command": f"D={PLACE}/c sh $D/run.sh"}, run_tests={"path": "c/run.sh"}),
        {"c/run.sh": ""},
    ),
    "a command with plain data": (
        terminal({"command": f"sh -c 'cat {PLACE}/test_files.json'"}, test_files={"x": 1}),
        {},
    ),
    "a file of the image": (terminal({"command": "/opt/check --all"}), {}),
}
BAD = {
    "inline tests": (code("assert f( == 1"), {}, "eval.tests.code, line 1: "),
    "a check that nothing calls": (
        code(f"import math\n{CHECK}"),
        {},
        "eval.tests.code, line 2: check is never called: name the candidate's function",
    ),
    "tests that call nothing": (code("n = 1\nassert n == 1"), {}, "line 1: nothing"),
    "a test patch": (repo(test_patch=CUT), {}, "eval.tests.test_patch, line 4: hunk 1 of x"),
    "a setup patch": (
        repo(setup_patch={"source": "inline", "patch": CUT}),
        {},
        "eval.tests.setup_patch, line 4: hunk 1 of x",
    ),
    "a control": (repo(control=CUT), {}, "eval.tests.control, line 4"),
    "a pytest file": (pytest_row("t.py"), {"t.py": "def test_x(:\n"}, "t.py, line 1: "),
    "a file of a pytest folder": (
        pytest_row("t"),
        {"t/test_x.py": "\nassert (\n", "t/test_y.py": "def test_y(): pass"},
        "t/test_x.py, line 2: ",
    ),
    "no test in a file": (pytest_row("t.py"), {"t.py": "x = 1"}, "t.py holds no test"),
    "no test in a folder": (pytest_row("t"), {"t/helper.py": "def test_x(): pass"}, "t holds no"),
    "a Python script": (
        terminal({"source": "script", "path": "c"}),
        {"c": "#!/usr/bin/env python3\nif x\n"},
        "c, line 2: ",
    ),
    "a file that the task has not": (
        terminal({"command": f"python3 {PLACE}/checks.py"}, run_tests={"path": "check.py"}),
        {"check.py": ""},
        "names 'securebench/evaluation_inputs/checks.py', which the task has not",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_grader_that_may_work(tmp_path, name):
    assert findings(tmp_path, *GOOD[name]) == ()


@pytest.mark.parametrize("name", BAD)
def test_a_grader_that_cannot_work(tmp_path, name):
    row, files, words = BAD[name]
    (found,) = findings(tmp_path, row, files)
    assert (found.severity, found.rule, found.line) == (Severity.ERROR, LintRule.GRADER, 1)
    assert found.message.startswith(f"task 'a' ({row['family']}): ")
    assert words in found.message


@pytest.mark.parametrize(
    "answer",
    ["A", "(c)", "answer: b", "venus", " Earth. ", 0, 2.0, ["A", "Venus", 2]],
)
def test_an_answer_that_is_a_choice(tmp_path, answer):
    assert findings(tmp_path, choice(answer), {}) == ()


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        ("Z", ["eval.answer"]),
        ("D", ["eval.answer"]),
        ("3", ["eval.answer"]),
        (3, ["eval.answer"]),
        ("Merkury", ["eval.answer"]),
        ("A, B", ["eval.answer"]),
        (["A", "D", "Venus", "Erth"], ["eval.answer[1]", "eval.answer[3]"]),
    ],
)
def test_an_answer_that_is_no_choice(tmp_path, answer, want):
    found = findings(tmp_path, choice(answer), {})
    what = "is no letter A to C, text or position (a number from 0) of a choice"
    assert [item.message for item in found] == [
        f"task 'a' (multiple_choice): {name} {what}" for name in want
    ]
    assert {(item.severity, item.rule) for item in found} == {(Severity.ERROR, LintRule.GRADER)}


def test_an_answer_that_is_not_the_only_choice(tmp_path):
    (found,) = findings(tmp_path, choice("B", "yes"), {})
    assert "is no letter A, text" in found.message


def test_answers_without_letters_are_left_to_the_verifier(tmp_path):
    assert findings(tmp_path, choice("Z", *map(str, range(27))), {}) == ()


@pytest.mark.parametrize(
    ("row", "files"),
    [
        (code("print 'x'"), {}),
        (
            pytest_row("t"),
            {"t/broken_on_purpose.py": "def (", "t/test_x.py": "def test_x(): pass"},
        ),
    ],
)
def test_what_the_image_may_know_better_is_a_warning(tmp_path, row, files):
    (found,) = findings(tmp_path, row, files)
    assert found.severity is Severity.WARNING


def test_nothing_of_a_pack_runs(tmp_path):
    mark = tmp_path / "ran"
    (found,) = findings(tmp_path, code(f"open({str(mark)!r}, 'w')\nassert ("), {})
    assert found.severity is Severity.ERROR
    assert not mark.exists()


def test_a_pack_that_cannot_be_read_has_no_findings(tmp_path):
    assert lint_graders(check_pack(tmp_path / "m.yaml", tmp_path / "t.jsonl")) == ()
