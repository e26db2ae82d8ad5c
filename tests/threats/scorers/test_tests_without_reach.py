"""F5: lint and audit see tests of code that anything passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.audit.rules import check_trial
from securebench.audit.subject import FindingOutcome, candidates
from securebench.benchmark.families.registry import FAMILIES
from support.code_pair import judge
from threats.kit.local_judging import cases
from unit.audit.audit_packs import Row, code, write_pack

FAMILY = FAMILIES["code_completion"]
(STUBS,) = FAMILY.audit.trials
RIGHT = "def total(numbers): return sum(numbers)\n"
WRONG = "def total(numbers): return 7\n"
STARTER = "def total(numbers):\n    return 0\n"


def row(tests: str, **row_input: str) -> Row:
    made = code("total")
    made["input"] |= {"prompt": "Write total(numbers).", **row_input}
    made["eval"]["tests"]["code"] = tests
    return made


def said(folder: Path, made: Row) -> str:
    """Return what lint says about the grader of a row."""
    (task,) = write_pack(folder, made).tasks
    return " ".join(FAMILY.answer_problems(task))


CASE = """\
import unittest
class Totals(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([3, 4, 5]), 12)
"""
CHECK = "def check(candidate):\n    assert candidate([3, 4, 5]) == 12\n"
UNCALLED = {
    "check": (CHECK, "check(total)\n", "check is never called"),
    "a test case": (
        CASE,
        (
            "assert unittest.TextTestRunner().run(unittest.defaultTestLoader."
            "loadTestsFromTestCase(Totals)).wasSuccessful()\n"
        ),
        "nothing runs the class Totals",
    ),
    "a test": (
        "def test_total():\n    assert total([3, 4, 5]) == 12\n", "test_total()\n",
        "test_total is never called",
    ),
    "a main block": (
        "def run():\n    assert total([3, 4, 5]) == 12\nif __name__ == '__main__':\n    run()\n",
        "run()\n", "the block of __main__ never runs",
    ),
}  # fmt: skip
"""Sources that call nothing, the line that calls it, and what is said without it."""


@pytest.mark.parametrize("name", cases(UNCALLED, "check"))
def test_a_417_attack(tmp_path, name):
    source, _, words = UNCALLED[name]
    assert words in said(tmp_path, row(source))


@pytest.mark.parametrize("name", UNCALLED)
def test_a_417_twin(name):
    """Without lint such tests are content with a wrong answer."""
    assert judge(WRONG, UNCALLED[name][0]).code == 0


@pytest.mark.parametrize("name", UNCALLED)
def test_a_417_honest(tmp_path, name):
    source, call, _ = UNCALLED[name]
    assert said(tmp_path, row(source + call)) == ""
    assert (judge(RIGHT, source + call).code, judge(WRONG, source + call).code) == (0, 1)


def test_a_417_honest_entry_point(tmp_path):
    """A check of HumanEval's form is called where the row names the function."""
    made = row(CHECK, entry_point="total")
    assert said(tmp_path, made) == ""
    (task,) = write_pack(tmp_path / "again", made).tasks
    tests = task.resources.value("tests")
    assert isinstance(tests, dict)
    assert (judge(RIGHT, tests["code"]).code, judge(WRONG, tests["code"]).code) == (0, 1)


ASIDE = {
    "the tests' own function": f"{RIGHT}assert total([3, 4]) == 7\n",
    "a look at it": "assert callable(total)\n",
    "constants": "expected = sum([3, 4])\nassert expected == 7\n",
    "a branch that never runs": "if False:\n    assert total([3, 4, 5]) == 12\n",
}  # fmt: skip
"""Sources that run to their end and ask the candidate for nothing."""


@pytest.mark.parametrize("name", cases(ASIDE, "a look at it"))
def test_a_418_attack(tmp_path, name):
    assert "nothing of the candidate is called" in said(tmp_path, row(ASIDE[name]))


@pytest.mark.parametrize("name", ASIDE)
def test_a_418_twin(name):
    assert judge(WRONG, ASIDE[name]).code == 0


def test_a_418_honest(tmp_path):
    source = "assert callable(total)\nexpected = sum([3, 4])\nassert total([3, 4]) == expected\n"
    assert said(tmp_path, row(source)) == ""
    assert (judge(RIGHT, source).code, judge("total = len\n", source).code) == (0, 1)


WEAK = {
    "returns None": "assert total([]) in (None, 0)\n",
    "returns 0": "assert total([]) == 0\n",
    'returns ""': "assert not total([])\n",
    "returns []": "assert sum([total([])] if total([]) == 0 else total([])) == 0\n",
    "returns True": "assert total([1]) == 1\n",
    "returns its argument": "data = [3]\nassert total(data) == data\n",
    "raises": "try: total([3])\nexcept ValueError: pass\n",
    "empties its arguments": "data = [3, 4]\ntotal(data)\nassert data == sorted(data)\n",
    "the starter code alone": "assert total([0, 0]) == 0\n",
}
"""Tests by the stub that passes them."""
STRONG = "assert total([3, 4, 5]) == 12 and total([]) == 0\n"


def found(folder: Path, tests: str, *, without: str = "") -> str:
    """Return what the audit says of the stubs that pass, or "" where the rule is fulfilled."""
    subject = write_pack(folder, row(tests, starter_code=STARTER))
    made = {
        task: [each for each in of_task if without not in each.said or not without]
        for task, of_task in candidates(subject, STUBS).items()
    }
    records = [
        {"task_id": each.row_id, "passed": judge(each.text, tests).code == 0}
        for of_task in made.values()
        for each in of_task
    ]
    findings = check_trial(STUBS, subject, made, records)
    problems = [each for each in findings if each.outcome is not FindingOutcome.PASSED]
    return " ".join(each.message for each in problems)


@pytest.mark.parametrize("name", cases(WEAK, "empties its arguments"))
def test_a_419_attack(tmp_path, name):
    assert f"{name} passes the tests" in found(tmp_path, WEAK[name])


@pytest.mark.parametrize("name", WEAK)
def test_a_419_twin(tmp_path, name):
    """An audit without that stub does not name it; nothing handed in fails all the same."""
    assert f"{name} passes" not in found(tmp_path, WEAK[name], without=name)
    assert judge("", WEAK[name]).code == 1


def test_a_419_honest(tmp_path):
    assert found(tmp_path, STRONG) == ""
    assert judge(RIGHT, STRONG).code == 0
