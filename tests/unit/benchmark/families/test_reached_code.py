"""Tests that prove nothing because nothing of them runs."""

import pytest

from securebench.benchmark.families.reached_code import never_run, uncalled_check

CHECK = "def check(candidate):\n    assert candidate(4) == 8\n"
CASE = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(double(4), 8)\n"  # noqa: E501
ASKED = frozenset({"double"})

IDLE = {
    CHECK: (1, "check is never called"),
    "async def check(c):\n    assert c(4) == 8\ncheck(double)\n": (1, "coroutine"),
    CASE: (2, "nothing runs the class T"),
    f"{CASE}if __name__ == '__main__':\n    unittest.main()\n": (2, "nothing runs the class T"),
    "def test_it():\n    assert double(4) == 8\n": (1, "test_it is never called"),
    "async def test_it():\n    assert double(4) == 8\ntest_it()\n": (1, "coroutine"),
    "def test_it():\n    yield double(4) == 8\ntest_it()\n": (1, "generator"),
    "import pytest\n@pytest.mark.parametrize('n', [1])\ndef test_it(n):\n    assert double(n)\n": (
        3,
        "test_it is never called",
    ),
    "class TestIt:\n    def test_it(self):\n        assert double(4) == 8\n": (1, "TestIt"),
    "if __name__ == '__main__':\n    assert double(4) == 8\n": (1, "__main__"),
    "if '__main__' == __name__:\n    assert double(4) == 8\n": (1, "__main__"),
    "if False:\n    assert double(4) == 8\n": (1, "nothing of the candidate"),
    "def helper():\n    assert double(4) == 8\n": (1, "nothing of the candidate"),
    "run = lambda: double(4)\n": (1, "nothing of the candidate"),
    "x = 4\nassert x == 4\n": (1, "nothing of the candidate"),
    "def double(n):\n    return n * 2\nassert double(4) == 8\n": (1, "nothing of the candidate"),
    "assert callable(double)\n": (1, "nothing of the candidate"),
    "assert double is not None\n": (1, "nothing of the candidate"),
    "double\n": (1, "nothing of the candidate"),
    "def a(): b()\ndef b(): assert double(4) == 8\n": (1, "nothing of the candidate"),
    "assert len([x for x in (1, 2)]) == 2\n": (1, "nothing of the candidate"),
    "def test_a():\n    assert double(4) == 8\nassert double(1) == 2\n": (1, "test_a"),
}
"""Sources by line and what is said."""

RUN = (
    "assert double(4) == 8\n",
    f"{CHECK}check(double)\n",
    "def check(double):\n    assert double(4) == 8\ncheck(double)\n",
    f"{CASE}unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))\n",
    f"{CASE}T().test_it()\n",
    (
        "import unittest\nclass B(unittest.TestCase):\n    def test_a(self):\n        double(1)\n"
        "class T(B):\n    pass\nT('test_a').debug()\n"
    ),
    "def test_it():\n    assert double(4) == 8\ntest_it()\n",
    "def test_it():\n    assert double(4) == 8\nfor test in (test_it,):\n    test()\n",
    (
        "def test_it():\n    assert double(4) == 8\n"
        "for name, f in list(globals().items()):\n    if name.startswith('test_'):\n        f()\n"
    ),
    (
        "tests = []\ndef case(f):\n    tests.append(f)\n    return f\n"
        "@case\ndef test_it():\n    assert double(4) == 8\nfor f in tests:\n    f()\n"
    ),
    "import asyncio\nasync def test_it():\n    assert double(4) == 8\nasyncio.run(test_it())\n",
    "def cases():\n    yield double(4), 8\nfor got, want in cases():\n    assert got == want\n",
    "if __name__ != '__main__':\n    assert double(4) == 8\n",
    "try:\n    double(None)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError\n",
    "double = double\nassert double(4) == 8\n",
    "try:\n    double\nexcept NameError:\n    double = None\nassert double(4) == 8\n",
    "assert LIMIT == 5\n",
    "assert issubclass(Broken, ValueError)\n",
    "import securebench_candidate as c\nassert c.double(4) == 8\n",
    "from securebench_candidate import double\nassert double(4) == 8\n",
    "@double\ndef f():\n    return 1\nassert f() == 1\n",
    "exec('assert double(4) == 8')\n",
    "run = lambda: double(4)\nassert run() == 8\n",
    "class Helper:\n    def go(self):\n        return double(4)\nassert Helper().go() == 8\n",
    "assert all(double(n) == 2 * n for n in range(9))\n",
    "assert list(map(double, [1, 2])) == [2, 4]\n",
    "def (",
)


@pytest.mark.parametrize("source", IDLE)
def test_what_never_runs_is_named(source):
    ((line, said),) = never_run(source, ASKED)
    assert (line, IDLE[source][1] in said) == (IDLE[source][0], True), said


@pytest.mark.parametrize("source", RUN)
def test_what_runs_is_left_alone(source):
    assert list(never_run(source, ASKED)) == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (CHECK, 1),
        (f"import math\n\n\n{CHECK}", 4),
        ("def check(candidate, /, slack=0):\n    pass\n", 1),
        ("def check(*functions):\n    pass\n", 1),
        (f"{CHECK}if __name__ == '__main__':\n    check(double)\n", 1),
        (f"{CHECK}def main():\n    check(double)\n", 1),
        (f"{CHECK}check(double)\n", None),
        (f"{CHECK}for f in (double,):\n    check(f)\n", None),
        (f"{CHECK}def main():\n    check(double)\nmain()\n", None),
        ("def check():\n    assert double(4) == 8\n", None),
        ("def check(a, b):\n    assert a(4) == b\n", None),
        ("def check(candidate, *, slack):\n    pass\n", None),
        ("async def check(candidate):\n    pass\n", None),
        ("class A:\n    def check(self):\n        pass\n", None),
        ("def check(", None),
    ],
)
def test_an_uncalled_check(source, line):
    assert uncalled_check(source) == line
