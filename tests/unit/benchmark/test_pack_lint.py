import json

import pytest

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import LintRule, Severity, lint_harness, lint_pack

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
    "configuration": (
        {**QUIET, "family": "free_response", "input": {"prompt": "p"}, "eval": {"rubric": "x"}},
        LintRule.VERIFIER_CONFIGURATION, "structured rubric"),
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
                "eval": {"tests": {"source": "inline", "code": "x"}},
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
    (finding,) = findings(tmp_path, {"id": "x", **row})
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
