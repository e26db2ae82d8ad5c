"""F3: what crosses from candidate code to the tests is plain data, and nothing else happens."""

from __future__ import annotations

import pytest

from support.code_pair import CONNECTIONS, LOOPBACK, judge
from threats.candidate_code.local_judging import ANSWER, WRONG, cases, naive, weaken_runner
from threats.honest import RIGHT_CODE

HELPERS = {
    "AssertionError": (
        "import builtins\nbuiltins.AssertionError = lambda *_: SystemExit(0)\n",
        'if answer(6) != 42: raise AssertionError("wrong")\n',
    ),
    "abs": (
        "import builtins\nbuiltins.abs = lambda _: 0\n",
        "assert abs(answer(6) - 42) < 1e-6\n",
    ),
    "all": (
        "import builtins\nbuiltins.all = lambda _: True\n",
        "assert all(answer(number) == 7 * number for number in (0, 6))\n",
    ),
    "any": (
        "import builtins\nbuiltins.any = lambda _: False\n",
        "assert not any(answer(number) != 7 * number for number in (0, 6))\n",
    ),
    "len": (
        "import builtins\nbuiltins.len = lambda _: 42\n",
        "assert len(range(answer(6))) == 42\n",
    ),
    "sorted": (
        "import builtins\nbuiltins.sorted = lambda _: []\n",
        "assert sorted([answer(6)]) == sorted([42])\n",
    ),
    "math.isclose": (
        "import math\nmath.isclose = lambda *_, **__: True\n",
        "import math\nassert math.isclose(answer(6), 42)\n",
    ),
    "operator.eq": (
        "import operator\noperator.eq = lambda *_: True\n",
        "import operator\nassert operator.eq(answer(6), 42)\n",
    ),
    "json.dumps": (
        'import json\njson.dumps = lambda *_, **__: ""\n',
        "import json\nassert json.dumps(answer(6)) == json.dumps(42)\n",
    ),
    "TestCase.assertEqual": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *_: None\n",
        "import unittest\nunittest.TestCase().assertEqual(answer(6), 42)\n",
    ),
    "a module": (
        'import sys, types\nsys.modules["math"] = types.SimpleNamespace(fabs=lambda _: 0)\n',
        "import math\nassert math.fabs(answer(6) - 42) < 1\n",
    ),
    "the hook for errors": (
        "import os, sys\nsys.excepthook = lambda *_: os._exit(0)\n",
        ANSWER,
    ),
}


@pytest.mark.parametrize("name", cases(HELPERS, "abs"))
def test_a_042_attack(name):
    change, tests = HELPERS[name]
    assert judge(change + WRONG, tests).code == 1


@pytest.mark.parametrize("name", HELPERS)
def test_a_042_twin(name):
    change, tests = HELPERS[name]
    assert naive(change + WRONG, tests).code == 0


@pytest.mark.parametrize("name", HELPERS)
def test_a_042_honest(name):
    _, tests = HELPERS[name]
    assert judge(RIGHT_CODE, tests).code == 0


EVERYTHING = """\
    __eq__ = __le__ = __ge__ = __bool__ = lambda *_: True
    __hash__ = lambda self: hash(42)
    __ne__ = lambda *_: False
    __len__ = __int__ = __index__ = lambda _: 42
"""
OBJECT = "on an object of the candidate's class Any; a pack whose tests need this may set"
RETURNED = {
    "an object": ("object", "()", "assert answer(6) == 42\n", OBJECT),
    "an object with truth and length": (
        "object",
        "()",
        "got = answer(6)\nassert got and len(got) == 42 and got == [7] * 42\n",
        OBJECT,
    ),
    "an int": ("int", "(7)", "assert answer(6) == 42\n", "crosses as int"),
    "a str": ("str", "('7')", "assert answer(6) == '42'\n", "crosses as str"),
    "a dict": ("dict", "(a=7)", "assert answer(6) == {'a': 42}\n", "crosses as dict"),
    "a list": ("list", "([7])", "assert answer(6) == [42]\n", "crosses as list"),
    "a float": ("float", "('nan')", "assert answer(6) == 42.0\n", "crosses as float"),
}


def returns(kind: str, value: str) -> str:
    return f"class Any({kind}):\n{EVERYTHING}def answer(_): return Any{value}\n"


@pytest.mark.parametrize("name", cases(RETURNED, "an object"))
def test_a_043_attack(name):
    kind, value, tests, reason = RETURNED[name]
    judged = judge(returns(kind, value), tests)
    assert judged.code == 1
    assert reason in judged.stderr


@pytest.mark.parametrize("name", RETURNED)
def test_a_043_twin(name):
    kind, value, tests, _ = RETURNED[name]
    assert naive(returns(kind, value), tests).code == 0


def test_a_043_honest():
    candidate = """\
        from dataclasses import dataclass
        @dataclass
        class Money:
            cents: int
            def __len__(self): return 2
        class Named(float): pass
        def total(values): return Money(sum(value.cents for value in values))
        def half(number): return Named(number / 2)
    """
    tests = """\
        bill = total([Money(20), Money(22)])
        assert bill.cents == 42 and bill.cents == Money(42).cents and len(bill) == 2
        assert half(3) == 1.5 and type(half(3)) is float and abs(half(3) - 1.4) < 0.2
    """
    assert judge(candidate, tests).code == 0


SLOW = """\
import time
sleep = time.sleep
time.time = time.monotonic = time.perf_counter = time.process_time = lambda: 0.0
time.sleep = lambda _: None
def answer(number):
    sleep(1)
    return number * 7
"""
TIMED = """\
import time
begun = time.perf_counter(), time.time(), time.monotonic()
assert answer(6) == 42
now = time.perf_counter(), time.time(), time.monotonic()
assert max(end - begin for begin, end in zip(begun, now)) < 0.9
"""


@pytest.mark.short
def test_a_050_attack():
    judged = judge(SLOW, TIMED)
    assert judged.code == 1
    assert 'solution_test.py", line 5' in judged.stderr


def test_a_050_twin():
    assert naive(SLOW, TIMED).code == 0


def test_a_050_honest():
    assert judge(RIGHT_CODE, TIMED).code == 0


ARGUMENTS = {
    "the expected value": (
        """\
        import sys
        def answer(data):
            expected = sys._getframe(1).f_globals.get("expected", [])
            data.clear(), expected.clear()
            return []
        """,
        """\
        data = [3, 1, 2]
        expected = sorted(data)
        assert answer(data) == expected
        """,
    ),
    "an argument of an earlier call": (
        """\
        def load(values):
            global kept
            kept = values
        def best():
            kept.append(99)
            return 99
        """,
        """\
        values = [3, 1, 2]
        load(values)
        assert best() in values
        """,
    ),
    "an object of the tests": (
        """\
        import gc
        def answer(data):
            for item in gc.get_objects():
                if type(item) is dict and "expected" in item: item["expected"] = None
        """,
        """\
        case = {"data": [3, 1, 2], "expected": [1, 2, 3]}
        assert answer(case["data"]) == case["expected"]
        """,
    ),
}


@pytest.mark.parametrize("name", cases(ARGUMENTS, "the expected value"))
def test_a_052_attack(name):
    judged = judge(*ARGUMENTS[name])
    assert judged.code == 1
    assert "AssertionError" in judged.stderr


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_052_twin(name):
    assert naive(*ARGUMENTS[name]).code == 0


def test_a_052_honest():
    candidate = """\
        def order(data): data.sort()
        def merge(first, second):
            first.update(second)
    """
    tests = """\
        data, same = [3, 1, 2], None
        same = data
        expected = sorted(data)
        assert order(data) is None and data == expected and same is data
        table = {"a": [1]}
        assert merge(table, {"b": [2]}) is None and table == {"a": [1], "b": [2]}
    """
    assert judge(candidate, tests).code == 0


CHANGES = """\
import securebench_code.session as session, securebench_code.worker as worker
received = session.Session._received
def applied(self, identity, asked):
    kind, values, table, changes = received(self, identity, asked)
    self._apply(changes, asked)
    return kind, values, table, []
session.Session._received = applied
worker.Worker._changes = lambda _, operation, kind, values, answer, snapshot: snapshot.changes()
"""
"""What the candidate changed of its arguments comes back beside a result or an exception."""

EMPTIED = {
    "a list": (
        "def order(items):\n    items.clear()\n    return []\n",
        "data = [3, 1, 2]\nassert order(data) == sorted(data)\n",
    ),
    "a list inside": (
        "def total(case):\n    case['numbers'].clear()\n    return 0\n",
        "case = {'numbers': [3, 1]}\nassert total(case) == sum(case['numbers'])\n",
    ),
    "a named argument": (
        "def count(*, words):\n    words.clear()\n    return {}\n",
        "words = {'a': 1}\nassert count(words=words) == dict(words)\n",
    ),
    "an exception": (
        "def largest(numbers):\n    numbers.clear()\n    raise ValueError\n",
        """\
        numbers = [3, 1]
        try: got = largest(numbers)
        except ValueError: got = None
        assert got == (max(numbers) if numbers else None)
        """,
    ),
}


@pytest.mark.parametrize("name", cases(EMPTIED, "a list"))
def test_a_407_attack(name):
    judged = judge(*EMPTIED[name])
    assert judged.code == 1
    told = ("changed by a call whose result is used", "changed beside an exception stays as it was")
    assert any(words in judged.stderr for words in told)
    assert "tests.isolation: shared" in judged.stderr


@pytest.mark.parametrize("name", EMPTIED)
def test_a_407_twin(monkeypatch, name):
    weaken_runner(monkeypatch, CHANGES)
    judged = judge(*EMPTIED[name])
    assert judged.code == 0, judged.stderr


@pytest.mark.parametrize("name", EMPTIED)
def test_a_407_honest(name):
    candidate = """\
        def order(items): return sorted(items)
        def total(case): return sum(case["numbers"])
        def count(*, words): return dict(words)
        def largest(numbers): return max(numbers)
    """
    judged = judge(candidate, EMPTIED[name][1])
    assert judged.code == 0, judged.stderr


ALL_CALLS = 8
"""As many as the tests below make, or more."""

MEMORY = {
    "a count": (
        """\
        calls = 0
        def answer(number):
            global calls
            calls += 1
            return number * 7 if calls > 2 else None
        """,
        """\
        warm = [answer(6) for _ in range(2)]
        assert answer(6) == 42
        """,
    ),
    "a global": (
        """\
        def encode(text):
            global kept
            kept = text
            return ""
        def decode(_): return kept
        """,
        """\
        for text in ("hello", "", "worlds"):
            assert decode(encode(text)) == text
        """,
    ),
    "a file": (
        """\
        def encode(text):
            with open("kept", "w") as file: file.write(text)
            return ""
        def decode(_): return open("kept").read()
        """,
        """\
        for text in ("hello", "", "worlds"):
            assert decode(encode(text)) == text
        """,
    ),
}


@pytest.mark.parametrize("name", cases(MEMORY, "a file"))
def test_a_054_attack(name):
    judged = judge(*MEMORY[name], repeat=ALL_CALLS)
    assert judged.code == 1
    assert "a repeated call disagrees" in judged.stderr


@pytest.mark.parametrize("name", MEMORY)
def test_a_054_twin(name):
    assert judge(*MEMORY[name]).code == 0


DECODED = 'assert decode(encode("hello")) == "hello"\n'
NO_NAMESPACES = "from securebench_code import process_reset; process_reset.NAMESPACES = -1"
NEITHER = (
    "from securebench_code import process_reset;"
    " process_reset.enter_namespaces = process_reset.forbid = lambda: None"
)


@pytest.mark.parametrize("line", ["pass", NO_NAMESPACES], ids=["namespaces", "none"])
def test_a_430_attack(line, monkeypatch):
    weaken_runner(monkeypatch, line)
    judged = judge(CONNECTIONS, DECODED, repeat=ALL_CALLS)
    assert judged.code == 1
    refused = "Address family not supported" in judged.stderr
    assert "a repeated call disagrees" in judged.stderr or (refused and line == NO_NAMESPACES)


def test_a_430_twin(monkeypatch):
    weaken_runner(monkeypatch, NEITHER)
    judged = judge(CONNECTIONS, DECODED, repeat=ALL_CALLS)
    assert judged.code == 0, judged.stderr


def test_a_430_honest():
    """Code that serves and asks itself has a loopback of its own."""
    judged = judge(LOOPBACK, "assert echo('six') == 'six'\n", repeat=2)
    assert judged.code == 0, judged.stderr


def test_a_054_honest():
    candidate = """\
        import functools
        @functools.lru_cache(None)
        def fibonacci(number):
            return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)
        def encode(text): return text[::-1]
        def decode(text): return text[::-1]
    """
    tests = """\
        assert [fibonacci(number) for number in (1, 10, 50)] == [1, 55, 12586269025]
        assert decode(encode("hello")) == "hello"
    """
    judged = judge(candidate, tests, repeat=ALL_CALLS)
    assert judged.code == 0
    assert "5 repeated calls agree" in judged.stderr


def test_a_054_honest_state():
    """State is the task where the tests ask for it; such a pack has no calls repeated."""
    candidate = """\
        import itertools
        numbers = itertools.count(1)
        def ticket(): return next(numbers)
        def encode(text): return text[::-1]
        def decode(text): return text[::-1]
    """
    tests = """\
        assert [ticket() for _ in range(3)] == [1, 2, 3]
        assert decode(encode("hello")) == "hello"
    """
    assert judge(candidate, tests).code == 0
