"""What lint says of a pack: its rows, its graders, its patches and their sources."""

import json
import subprocess
import sys

import pytest

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import (
    LintRule,
    Severity,
    has_no_test,
    is_test_module,
    lint_graders,
    lint_harness,
    lint_pack,
    patch_problem,
    source_problem,
)

IMAGE = "python@sha256:" + "0" * 64
MANIFEST = f"id: demo\nversion: 1\ndefaults:\n  environment:\n    image: {IMAGE}\n"
QUIET = {
    "id": "a",
    "family": "terminal_task",
    "input": {"instructions": "i"},
    "eval": {"checker": {"command": "true"}},
}
REPO = {
    "id": "r",
    "family": "repo_patch",
    "input": {"repo": "r", "base_commit": "c", "instructions": "i"},
    "eval": {
        "tests": {
            "source": "command",
            "command": "pytest",
            "workdir": "/testbed",
            "candidate_policy": {"allow_paths": ["src"]},
        }
    },
}


def findings(tmp_path, *rows, manifest=MANIFEST):
    (tmp_path / "m.yaml").write_text(manifest)
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return lint_pack(check_pack(tmp_path / "m.yaml", tmp_path / "t.jsonl"))


def test_a_quiet_pack(tmp_path):
    assert findings(tmp_path, QUIET, REPO) == ()


ROWS = {
    "unknown key": ({**QUIET, "notes": 1}, LintRule.UNKNOWN_KEY, "unknown row key 'notes'"),
    "no effect": (
        {**QUIET, "environment": {"packages": []}}, LintRule.NO_EFFECT,
        "environment.packages has no effect"),
    "image": ({**QUIET, "environment": {"image": "python:3"}}, LintRule.IMAGE_DIGEST, "no digest"),
    "deferred eval key": (
        {"id": "x", "family": "tool_call", "input": {}, "eval": {"expected_cals": []}},
        LintRule.UNKNOWN_KEY,
        "unknown key eval.expected_cals, it stays hidden, did you mean 'expected_calls'?"),
    "rubric key": (
        {**QUIET, "family": "free_response", "input": {"prompt": "p"},
         "eval": {"rubric": {"accepted_answers": ["x"], "rejected_answer": ["y"]}}},
        LintRule.UNKNOWN_KEY,
        "unknown key eval.rubric.rejected_answer, did you mean 'rejected_answers'?"),
    "file with another key": (
        {**QUIET, "eval": {"checker": {"command": "true"}, "test_files": {"path": "x", "mnt": 1}}},
        LintRule.UNKNOWN_KEY,
        ("unknown key eval.test_files.mnt: the value is data and names no file, did you mean"
        " 'mount'?")),
    "allow paths": (
        {**REPO, "eval": {"tests": {"source": "command", "command": "pytest", "workdir": "/w"}}},
        LintRule.ALLOW_PATHS, "without allow_paths"),
    "tests that are not counted": (
        {**REPO, "eval": {"tests": {**REPO["eval"]["tests"], "command": "tox -e py"}}},
        LintRule.EXIT_CODE, "cannot take the place of tox in it: its exit code alone decides"),
    "a command that starts no pytest": (
        {**REPO, "eval": {"tests": {**REPO["eval"]["tests"], "command": ["npm", "test"]}}},
        LintRule.EXIT_CODE, "it starts no pytest: its exit code alone decides"),
    "a check that starts pytest": (
        {**QUIET, "eval": {"checker": {"command": "python3 -m pytest securebench"}}},
        LintRule.EXIT_CODE, "source: pytest counts tests"),
}  # fmt: skip


@pytest.mark.parametrize("case", ROWS)
def test_row_warnings(tmp_path, case):
    row, want_rule, want_text = ROWS[case]
    (finding,) = findings(tmp_path, QUIET, {**row, "id": "x"})
    assert finding.severity is Severity.WARNING
    assert (finding.rule, finding.line) == (want_rule, 2)
    assert want_text in finding.message
    assert finding.path == str(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("row", "want"),
    [
        (
            {
                "family": "code_completion",
                "input": {"prompt": "p", "language": "rust"},
                "eval": {"tests": {"source": "inline", "code": "assert f() == 1"}},
            },
            "correct input.language",
        ),
        (
            {
                "family": "multiple_choice",
                "input": {"question": "q", "choices": [str(each) for each in range(27)]},
                "eval": {"answer": "A"},
            },
            "correct input.choices",
        ),
        (
            {"family": "free_response", "input": {"prompt": "p"}, "eval": {"rubric": "x"}},
            "correct eval of the row",
        ),
    ],
)
def test_the_hint_names_what_to_correct(tmp_path, row, want):
    (finding,) = graders_findings(tmp_path, {"id": "x", **row}, {})
    assert finding.severity is Severity.ERROR
    assert (finding.rule, finding.hint) == (LintRule.VERIFIER_CONFIGURATION, want)


def test_asset_keys_warn(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/x").write_text("x")
    row = {**QUIET, "assets": [{"path": "x", "type": "image", "mode": 1}]}
    found = findings(tmp_path, row)
    assert [finding.rule for finding in found] == [LintRule.ASSET_KEY, LintRule.ASSET_KEY]


MANIFESTS = {
    "unknown key": (
        MANIFEST + "owner: me\n", LintRule.UNKNOWN_KEY, 6, "unknown manifest key 'owner'"),
    "unknown sub-key": (
        MANIFEST + "asset_roots:\n  hidden: x\n", LintRule.UNKNOWN_KEY, 7,
        "unknown manifest key 'asset_roots.hidden'"),
    "no effect": (
        MANIFEST + "    network: full\n", LintRule.NO_EFFECT, 6,
        "environment.network has no effect"),
    "image": (MANIFEST.replace(IMAGE, "python:3"), LintRule.IMAGE_DIGEST, 5, "no digest"),
    "roots": (
        MANIFEST + "asset_roots: {public: files, eval: files/private}\n", LintRule.ASSET_ROOTS, 6,
        "overlap"),
    "roots the other way": (
        MANIFEST + "asset_roots: {public: a/b, eval: a}\n", LintRule.ASSET_ROOTS, 6, "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifest_warnings(tmp_path, case):
    text, want_rule, want_line, want_text = MANIFESTS[case]
    (finding,) = findings(tmp_path, QUIET, manifest=text)
    assert (finding.rule, finding.line) == (want_rule, want_line)
    assert want_text in finding.message
    assert str(finding).startswith(f"{tmp_path / 'm.yaml'}:{want_line}: ")


def test_errors_come_first_and_do_not_hide_warnings(tmp_path):
    broken = {**QUIET, "id": "b", "input": {}}
    found = findings(tmp_path, {**QUIET, "x": 1}, broken)
    assert [finding.severity for finding in found] == [Severity.ERROR, Severity.WARNING]
    assert found[0].line == 2


def test_a_broken_manifest_has_errors_only(tmp_path):
    found = findings(tmp_path, QUIET, manifest="id: a")
    assert [(finding.severity, finding.line) for finding in found] == [(Severity.ERROR, 1)]


NAMES = {
    "MY_TOKEN": True,
    "API_KEY": True,
    "db_password": True,
    "X_SECRET": True,
    "KEYBOARD": False,
    "HOME": False,
}


@pytest.mark.parametrize("name", NAMES)
def test_harness_names_that_look_like_secrets(name):
    found = lint_harness([name], path="tester.yaml")
    assert bool(found) is NAMES[name]
    assert all(finding.rule is LintRule.SECRET_NAME for finding in found)
    assert all(str(finding).startswith("tester.yaml: ") for finding in found)


def test_artifact_path_with_a_terminal_task():
    (finding,) = lint_harness([], artifact_path="out.txt", task_types=["terminal_task"])
    assert finding.rule is LintRule.ARTIFACT_PATH
    assert str(finding) == finding.message
    assert lint_harness([], artifact_path="out.txt", task_types=["repo_patch"]) == ()
    assert lint_harness([], task_types=["terminal_task"]) == ()


def test_the_difference_of_a_checkout_is_for_repositories_alone():
    (finding,) = lint_harness([], takes_checkout=True, task_types=["short_answer"])
    assert finding.rule is LintRule.NO_EFFECT
    assert "is for repo_patch tasks; the pack has none" in finding.message
    assert lint_harness([], takes_checkout=True, task_types=["short_answer", "repo_patch"]) == ()


CASE = "import unittest\nclass T(unittest.TestCase):\n def test_it(self):\n  "


@pytest.mark.parametrize(
    ("source", "isolation", "said"),
    [
        ("import random\nrandom.seed(1)\nassert f() == 1", "separate", "line 2: random.seed"),
        ("import os\nos.environ['A'] = '1'\nassert f()", "separate", "line 2: os.environ"),
        ("assert total() == Money(42)", "separate", "line 1: an object of Money"),
        ("assert Money(1) != 3", "separate", "line 1: an object of Money"),
        ("money = Money(1)\nassert total() == money", "separate", "line 2: an object of Money"),
        ("bag = Bag()\nassert 'a' in bag", "separate", "line 2: an object of Bag"),
        (
            f"{CASE}self.bag = Bag()\n  self.assertEqual(self.bag, f())\nunittest.main()",
            "separate",
            "an object of Bag",
        ),
        ("bag = Bag()\nbag.items['a'] = 1", "separate", "line 2: bag.items is changed"),
        ("bag = Bag()\nbag.items.append(1)", "separate", "line 2: bag.items is changed"),
        ("import os\nf()\nos.remove('a')", "separate", "line 3: os.remove does not reach"),
        ("bag = Bag()\nassert bag is not None and bag.size == 1", "separate", None),
        ("bag = Bag()\nbag = bag.size\nassert bag == 1", "separate", None),
        (
            "bag = Bag()\nbag.shelf.add(1)\nbag[0] = 1\nitems = bag.items\nitems[0] = 1",
            "separate",
            None,
        ),
        ("for money in (Money(1), f()): pass\nassert money == 1", "separate", None),
        ("assert Money(1).cents == 1", "separate", None),
        ("from decimal import Decimal\nassert f() == Decimal(1)", "separate", None),
        ("assert f() == 1", "separate", None),
        ("import random\nrandom.seed(1)\nassert f() == Money(1)", "shared", None),
    ],
)
def test_tests_that_need_one_process(source, isolation, said):
    tests = {"source": "inline", "code": source, "isolation": isolation}
    found = [each.message for each in FAMILIES["code_completion"].advice({"tests": tests})]
    assert [said in each for each in found] == ([True] if said else [])


GRADERS_MANIFEST = """\
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


def graders_findings(tmp_path, row, files):
    (tmp_path / "m.yaml").write_text(GRADERS_MANIFEST)
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
    assert graders_findings(tmp_path, *GOOD[name]) == ()


@pytest.mark.parametrize("name", BAD)
def test_a_grader_that_cannot_work(tmp_path, name):
    row, files, words = BAD[name]
    (found,) = graders_findings(tmp_path, row, files)
    assert (found.severity, found.rule, found.line) == (Severity.ERROR, LintRule.GRADER, 1)
    assert found.message.startswith(f"task 'a' ({row['family']}): ")
    assert words in found.message


@pytest.mark.parametrize(
    "answer",
    ["A", "(c)", "answer: b", "venus", " Earth. ", 0, 2.0, ["A", "Venus", 2]],
)
def test_an_answer_that_is_a_choice(tmp_path, answer):
    assert graders_findings(tmp_path, choice(answer), {}) == ()


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
    found = graders_findings(tmp_path, choice(answer), {})
    what = "is no letter A to C, text or position (a number from 0) of a choice"
    assert [item.message for item in found] == [
        f"task 'a' (multiple_choice): {name} {what}" for name in want
    ]
    assert {(item.severity, item.rule) for item in found} == {(Severity.ERROR, LintRule.GRADER)}


def test_an_answer_that_is_not_the_only_choice(tmp_path):
    (found,) = graders_findings(tmp_path, choice("B", "yes"), {})
    assert "is no letter A, text" in found.message


def test_more_choices_than_letters_are_one_error(tmp_path):
    (finding,) = graders_findings(tmp_path, choice("Z", *map(str, range(27))), {})
    assert finding.message.endswith("has 27 input.choices; at most 26 have a letter")


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
    (found,) = graders_findings(tmp_path, row, files)
    assert found.severity is Severity.WARNING


def test_nothing_of_a_pack_runs(tmp_path):
    mark = tmp_path / "ran"
    (found,) = graders_findings(tmp_path, code(f"open({str(mark)!r}, 'w')\nassert ("), {})
    assert found.severity is Severity.ERROR
    assert not mark.exists()


def test_a_pack_that_cannot_be_read_has_no_findings(tmp_path):
    assert lint_graders(check_pack(tmp_path / "m.yaml", tmp_path / "t.jsonl")) == ()


HEAD = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n"
HUNK = "@@ -1,3 +1,3 @@ def f():\n a\n-b\n+c\n d\n"
FILES_GOOD = {
    "one hunk": HEAD + HUNK,
    "two hunks": HEAD + HUNK + "@@ -9 +9,2 @@\n-q\n+r\n+s\n",
    "two files": HEAD + HUNK + HEAD.replace("x.py", "y.py") + HUNK,
    "no line end at the end": (HEAD + HUNK).removesuffix("\n"),
    "no line end in the file": HEAD + "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    "\\ No newline at end of file\n",
    "blank context without its blank": HEAD + "@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n",
    "a mail": "Subject: x\n\n---\n x.py | 2 +-\n\n" + HEAD + HUNK + "-- \n2.39.2\n\n",
    "a rename": "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n",
    "an empty file": "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n",
    "a binary file": "diff --git a/x b/x\nindex 1..2 100644\nGIT binary patch\nliteral 1\n"
    "IcmZPo00ouv@@\n\nliteral 0\nHcmV?d00001\n\n",
    "without a git header": HEAD.partition("\n")[2] + HUNK,
    "removed lines that look like headers": HEAD + "@@ -1,2 +1 @@\n--- a\n+++ b\n-c\n",
}
FILES_BAD = {
    "empty": ("", 1, "changes nothing"),
    "text": ("hello\n", 1, "changes nothing"),
    "a header alone": (HEAD, 4, "a hunk of x.py (@@"),
    "a hunk of another form": (HEAD + "@@ x @@\n-b\n+c\n", 4, "hunk 1 of x.py does not begin"),
    "an indented hunk": (HEAD + "  @@ -1 +1 @@\n-a\n+b\n", 4, "a hunk of x.py (@@"),
    "a hunk alone": (HUNK, 1, "before the lines --- and +++"),
    "too few lines": (HEAD + HUNK.replace("+c\n", ""), 4, "1 of them are missing"),
    "cut": (HEAD + HUNK.replace(" d\n", ""), 4, "hunk 1 of x.py announces 3 old and 3 new lines"),
    "too many lines": (HEAD + HUNK + "+e\n", 9, "has more lines than its @@ line (line 4)"),
    "more context": (HEAD + HUNK + " e\n", 9, "has more lines"),
    "a missing blank": (HEAD + HUNK.replace(" d\n", "d\n"), 4, "1 and 1 of them are missing"),
    "wrong kinds": (HEAD + HUNK.replace("-b", "+b"), 8, "other lines here"),
    "context alone": (HEAD + "@@ -1 +1 @@\n a\n", 4, "changes nothing"),
    "the second hunk": (HEAD + HUNK + "@@ -9,2 +9,2 @@\n-q\n+r\n", 9, "hunk 2 of x.py announces"),
    "the second file": (
        HEAD + HUNK + HEAD.replace("x.py", "y.py") + "@@ -1 +1 @@\n-a\n",
        12,
        "hunk 1 of y.py",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES_GOOD)
def test_a_patch_that_holds(name):
    assert patch_problem(FILES_GOOD[name]) is None


@pytest.mark.parametrize("name", FILES_BAD)
def test_a_defect_has_its_line(name):
    text, line, words = FILES_BAD[name]
    found = patch_problem(text)
    assert found is not None
    assert found.startswith(f"line {line}: ")
    assert words in found


def git_reads(text, folder):
    """Return whether git takes a patch, and how many changed lines it sees."""
    command = ["git", "apply", "--numstat", "-"]
    done = subprocess.run(
        command, input=text.encode(), cwd=folder, capture_output=True, check=False
    )
    counts = [line.split(b"\t")[:2] for line in done.stdout.splitlines()]
    return done.returncode == 0, sum(int(number) for pair in counts for number in pair)


TWO_FILES = HEAD + HUNK + "@@ -9,2 +9,3 @@\n q\n+r\n+s\n-t\n" + HEAD.replace("x.py", "y.py") + HUNK
LINES = TWO_FILES.splitlines(keepends=True)
CHANGES = {
    "dropped": lambda at: LINES[:at] + LINES[at + 1 :],
    "doubled": lambda at: LINES[: at + 1] + LINES[at:],
    "cut": lambda at: LINES[:at],
    **{
        f"with {sign!r}": lambda at, sign=sign: [
            *LINES[:at],
            sign + LINES[at][1:],
            *LINES[at + 1 :],
        ]
        for sign in "+- x"
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_holds_is_taken_whole_by_git(tmp_path, change):
    for at in range(len(LINES)):
        text = "".join(CHANGES[change](at))
        if patch_problem(text) is None:
            signed = [
                x
                for x in text.splitlines()
                if x[0] in "+-" and "iff --git" not in x and x[:4] not in {"--- ", "+++ "}
            ]
            assert git_reads(text, tmp_path) == (True, len(signed)), text


def test_most_changes_are_seen():
    texts = ["".join(make(at)) for make in CHANGES.values() for at in range(len(LINES))]
    seen = [text for text in texts if text != TWO_FILES and patch_problem(text) is not None]
    assert len(seen) > len(texts) / 2


SOURCES_GOOD = (
    "",
    "assert answer(6) == 42\n",
    "# -*- coding: latin-1 -*-\nx = '\xe4'\n".encode("latin-1"),
    "import re\nre.compile('\\d')\n",
    "\ufeffx = 1\n".encode(),
)
CERTAIN = {
    "assert answer( == 42\n": 1,
    "def test_x():\nreturn 1\n": 2,
    "def test_x()\n    pass\n": 1,
    "x = 1\nif x = 3:\n    pass\n": 2,
    "x = (1, 2\n": 1,
    "x = 'no end\n": 1,
    "return 1\n": 1,
    "for = 3\n": 1,
    "def test_x(:\n    pass\n": 1,
}
DOUBTFUL = (
    "print 'hello'\n",
    "exec 'x = 1'\n",
    "raise ValueError, 'x'\n",
    "try:\n    pass\nexcept A, e:\n    pass\n",
    "x = 0777\n",
    "x = 10L\n",
    "if a <> b:\n    pass\n",
    "async = 1\n",
    "x = t'{y}'\n",
    "lazy import json\n",
)


@pytest.mark.parametrize("source", SOURCES_GOOD)
def test_a_source_that_compiles(source):
    assert source_problem(source, "x.py") is None


@pytest.mark.parametrize("source", CERTAIN)
def test_an_error_in_every_version(source):
    found = source_problem(source, "tests/x.py")
    assert found is not None
    assert found.is_certain
    assert found.message.startswith(f"tests/x.py, line {CERTAIN[source]}: ")


@pytest.mark.parametrize("source", DOUBTFUL)
def test_what_another_version_may_take_is_a_doubt(source):
    found = source_problem(source, "x.py")
    assert found is None or not found.is_certain


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python knows the syntax")
@pytest.mark.parametrize(
    "source", ["def f[T](x: T) -> T:\n    return x\n", "x = f'{d['a']}'\n", "type X = int\n"]
)
def test_syntax_since_3_12_is_a_doubt_before(source):
    found = source_problem(source, "x.py")
    assert found is not None
    assert not found.is_certain


@pytest.mark.parametrize("source", ["x = 1\0", b"\xff\xfe", "(" * 500 + ")" * 500])
def test_what_no_compiler_reads_is_a_finding(source):
    assert source_problem(source, "x.py") is not None


WITH_TESTS = (
    "def test_x(): pass",
    "async def test_x(): pass",
    "class TestX:\n    def check(self): pass",
    "class X(Base): pass",
    "from shared import *",
    "from shared import test_x",
    "from shared import cases as TestCases",
    "test_x = make()",
    "globals()['x'] = 1",
    "def pytest_generate_tests(metafunc): pass",
    "class A:\n    def test_x(self): pass",
    "if True:\n    def test_x(): pass",
)
WITHOUT = ("", "assert answer(6) == 42", "def check_x(): pass", "import os", "class X: pass")


@pytest.mark.parametrize("source", WITH_TESTS)
def test_a_module_that_may_have_tests(source):
    assert not has_no_test(source.encode())


@pytest.mark.parametrize("source", WITHOUT)
def test_a_module_without_a_test(source):
    assert has_no_test(source.encode())


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("test_x.py", True),
        ("a/b/x_test.py", True),
        ("tests.py", False),
        ("conftest.py", False),
        ("test_x.sh", False),
    ],
)
def test_names_of_test_modules(name, want):
    assert is_test_module(name) is want
