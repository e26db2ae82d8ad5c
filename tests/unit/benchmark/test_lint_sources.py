"""Python sources of tests: certain errors, doubts, and modules without a test."""

import sys

import pytest

from securebench.benchmark.lint import has_no_test, is_test_module, source_problem

GOOD = (
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


@pytest.mark.parametrize("source", GOOD)
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
