"""Tests that a pack's compiler completes, and the remedy of lint, judge candidates."""

import pytest

from securebench.benchmark.pack.task import compile_benchmark_row
from securebench.benchmark.reading.rows import BenchmarkManifest
from support.code_pair import judge

MANIFEST = BenchmarkManifest(id="demo", version=1)
CHECK = "def check(candidate):\n    assert candidate(4) == 8\n    assert candidate(-1) == -2\n"
CASE = (
    "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n"
    "        self.assertEqual(double(4), 8)\n"
    "loaded = unittest.defaultTestLoader.loadTestsFromTestCase(T)\n"
    "assert unittest.TextTestRunner().run(loaded).wasSuccessful()\n"
)
METHOD = "class Solution:\n    def run(self, n):\n        return n * {}\n"
FUNCTION = "def double(n):\n    return n * {}\n"


@pytest.mark.parametrize(
    ("code", "entry", "candidate"),
    [(CHECK, "double", FUNCTION), (CHECK, "Solution().run", METHOD), (CASE, "double", FUNCTION)],
)
def test_a_solution_passes_and_nothing_else(code, entry, candidate):
    tests = {"source": "inline", "code": code}
    row_input = {"prompt": "p", "entry_point": entry}
    row = {"id": "a", "family": "code_completion", "input": row_input, "eval": {"tests": tests}}
    completed = compile_benchmark_row(row, manifest=MANIFEST).resources.value("tests")["code"]
    assert judge(candidate.format(2), completed).code == 0
    assert judge(candidate.format(3), completed).code != 0
