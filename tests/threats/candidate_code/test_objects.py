"""F3: objects of the candidate are not values, and its exceptions end nothing of the tests."""

from __future__ import annotations

import re

import pytest

from support.code_pair import judge
from threats.candidate_code.local_judging import cases, weaken_runner

LIE = """\
class Lie(BASE):
    def __init__(self, *_): pass
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __contains__(self, item): return True
    def startswith(self, prefix): return True
    def __bool__(self): return False
"""
WORKER = """\
import sys
sys.modules["securebench_code.worker"].REBUILT = ()
"""
"""Takes the candidate's own side over: nothing is flattened there."""

STANDS_IN = {
    "humaneval-4": (
        "mean_absolute_deviation",
        """\
        def check(candidate):
            assert abs(candidate([1.0, 2.0, 3.0]) - 2.0/3.0) < 1e-6
            assert abs(candidate([1.0, 2.0, 3.0, 4.0]) - 1.0) < 1e-6
            assert abs(candidate([1.0, 2.0, 3.0, 4.0, 5.0]) - 6.0/5.0) < 1e-6
        check(mean_absolute_deviation)
        """,
        """\
        def mean_absolute_deviation(numbers):
            mean = sum(numbers) / len(numbers)
            return sum(abs(number - mean) for number in numbers) / len(numbers)
        """,
    ),
    "float-abs": (
        "truncate",
        """\
        assert abs(truncate(3.5) - 0.5) < 1e-6
        assert abs(truncate(1.33) - 0.33) < 1e-6
        assert abs(truncate(123.456) - 0.456) < 1e-6
        """,
        "def truncate(x): return x % 1.0\n",
    ),
    "almost-equal": (
        "mean",
        """\
        import unittest
        case = unittest.TestCase()
        case.assertAlmostEqual(mean([1, 2, 4]) - 7 / 3, 0)
        case.assertAlmostEqual(0, mean([1.5, 2.5]) - 2.0)
        """,
        "def mean(x): return sum(x) / len(x)\n",
    ),
    "interval": (
        "distance",
        """\
        assert -1e-9 < distance((0, 0), (3, 4)) - 5 < 1e-9
        assert not (distance((0, 0), (1, 0)) - 1)
        """,
        "def distance(a, b): return ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5\n",
    ),
    "contains": (
        "describe",
        """\
        told = describe("bob", 7)
        assert "bob" in told
        assert "7 years" in told
        assert told.startswith("Name: ")
        """,
        "def describe(name, age): return f'Name: {name}, {age} years'\n",
    ),
}
HANDLED = """\
import securebench_code.handles as handles
def asks(name):
    return lambda self, *operands: handles._ask(self, "getattr", name)(*operands)
signs = [f"__{side}{name}__" for name in handles._BINARY for side in ("", "r")]
for name in (*handles.COMPARED, *signs): setattr(handles.Handle, name, asks(name))
"""
"""Operators on handles are asked of the candidate instead of refused."""


def lies(name: str, *, takes_over: bool) -> str:
    lie = LIE.replace("BASE", "float" if takes_over else "object")
    return f"{lie}{WORKER if takes_over else ''}def {STANDS_IN[name][0]}(*_): return Lie(0.0)\n"


@pytest.mark.parametrize("takes_over", [False, True], ids=["object", "worker"])
@pytest.mark.parametrize("name", cases(STANDS_IN, "humaneval-4"))
def test_a_360_attack(name, takes_over):
    judged = judge(lies(name, takes_over=takes_over), STANDS_IN[name][1])
    assert judged.code == 1
    assert "object of the candidate's class Lie" in judged.stderr
    assert "tests.isolation: shared" in judged.stderr


@pytest.mark.parametrize("takes_over", [False, True], ids=["object", "worker"])
@pytest.mark.parametrize("name", STANDS_IN)
def test_a_360_twin(monkeypatch, name, takes_over):
    weaken_runner(monkeypatch, HANDLED)
    assert judge(lies(name, takes_over=takes_over), STANDS_IN[name][1]).code == 0


@pytest.mark.parametrize("name", STANDS_IN)
def test_a_360_honest(name):
    _, tests, right = STANDS_IN[name]
    judged = judge(right, tests)
    assert judged.code == 0, judged.stderr


LOOP = """\
cases = [(1, 1), (2, 4), (3, 9)]
for got, want in zip(map(square, [a for a, _ in cases]), [b for _, b in cases]):
    assert got == want, (got, want)
"""
SENTINEL = "for got in iter(lambda: square(3), None):\n    assert got == 9\n    break\n"
STOPS = {
    "a map": ("def square(x): raise StopIteration\n", LOOP),
    "an exception of its own": (
        "class Own(StopIteration): pass\ndef square(x): raise Own(9)\n",
        LOOP,
    ),
    "a sentinel": ("def square(x): raise StopIteration\n", SENTINEL),
    "a class": (
        "class square:\n    def __init__(self, x): raise StopIteration\n",
        LOOP,
    ),
    "an asynchronous loop": (
        "def square(x): raise StopAsyncIteration\n",
        """\
        import asyncio
        class Cases:
            def __aiter__(self): return self
            async def __anext__(self): return square(3)
        async def main():
            async for got in Cases():
                assert got == 9
                break
        asyncio.run(main())
        """,
    ),
    "the end of a generator": (
        "def square(x): raise GeneratorExit\n",
        """\
        def checks():
            try: yield
            finally: assert square(3) == 9
        checking = checks()
        next(checking)
        checking.close()
        """,
    ),
}
REAL = """\
import builtins, securebench_code.session as session
failure = session.Session._failure
def real(self, *told):
    error = failure(self, *told)
    names = [kind.__name__ for kind in type(error).__mro__]
    found = next((name for name in names if name in session.CONTROL), None)
    return getattr(builtins, found)() if found else error
session.Session._failure = real
"""
"""Exceptions of the candidate by which Python ends loops are Python's own."""

SQUARE = "def square(x): return x * x\n"


@pytest.mark.parametrize("name", cases(STOPS, "a map"))
def test_a_361_attack(name):
    judged = judge(*STOPS[name])
    assert judged.code == 1
    assert re.search(r"securebench_candidate\.(Own|Stop|GeneratorExit)", judged.stderr)


@pytest.mark.parametrize("name", STOPS)
def test_a_361_twin(monkeypatch, name):
    weaken_runner(monkeypatch, REAL)
    judged = judge(*STOPS[name])
    assert judged.code == 0, judged.stderr


@pytest.mark.parametrize("name", STOPS)
def test_a_361_honest(name):
    judged = judge(SQUARE, STOPS[name][1])
    assert judged.code == 0, judged.stderr


ACCOUNT = """\
class Acc:
    def __init__(self): self.total = 0
    def add(self, number): self.total += number
    def __enter__(self): return self
    def __exit__(self, *error): return False
"""
ADDED = """\
with Acc() as acc:
    acc.add(3)
    acc.add(4)
    assert acc.total == 7
with Acc() as acc:
    assert acc.total == 0
"""
EXPECTED = """\
import contextlib
with contextlib.suppress(KeyError), Acc() as acc:
    acc.add(3)
    assert acc.total == 3
"""
SWALLOWS = {
    "what the tests raise": (-1, "return True", ADDED),
    "its own error": ("property(lambda self: 1 / 0)", "return True", ADDED),
    "with another error": (-1, "raise KeyError", EXPECTED),
}
LEAVES = """\
import securebench_code.handles as handles
def leave(self, kind, error, trace): return handles._ask(self, "exit", error)
handles.ABILITIES["__exit__"] = leave
"""
"""The candidate decides how a ``with`` block of the tests ends."""


def swallows(name: str) -> str:
    total, end, _ = SWALLOWS[name]
    return f"""\
class Acc:
    total = {total}
    def add(self, number): pass
    def __enter__(self): return self
    def __exit__(self, *error):
        if error[0]: {end}
"""


@pytest.mark.parametrize("name", cases(SWALLOWS, "what the tests raise"))
def test_a_362_attack(name):
    judged = judge(swallows(name), SWALLOWS[name][2])
    assert judged.code == 1
    assert "the with block of the candidate's class Acc; a pack whose" in judged.stderr


@pytest.mark.parametrize("name", SWALLOWS)
def test_a_362_twin(monkeypatch, name):
    weaken_runner(monkeypatch, LEAVES)
    assert judge(swallows(name), SWALLOWS[name][2]).code == 0


@pytest.mark.parametrize("tests", [ADDED, EXPECTED], ids=["added", "expected"])
def test_a_362_honest(tests):
    assert judge(ACCOUNT, tests).code == 0


VISITS = """\
expected = iter([2, 4, 6])
def check(value):
    assert value == next(expected), value
visit_even(6, check)
"""
CATCHES = {
    "a call": "def visit_even(n, f):\n    try: f(-1)\n    except AssertionError: pass\n",
    "another error": """\
def visit_even(n, f):
    try: f(-1)
    except AssertionError as error: raise KeyError from error
""",
    "a thread": """\
import threading
def visit_even(n, f):
    threading.excepthook = lambda _: None
    thread = threading.Thread(target=f, args=(-1,))
    thread.start(), thread.join()
""",
}


def visits(name: str) -> str:
    if name == "another error":
        return VISITS.replace(
            "visit_even(6, check)", "try: visit_even(6, check)\nexcept KeyError: 0"
        )
    return VISITS


@pytest.mark.parametrize("name", cases(CATCHES, "a call"))
def test_a_363_attack(name):
    judged = judge(CATCHES[name], visits(name))
    assert judged.code == 1
    assert "AssertionError: -1" in judged.stderr


@pytest.mark.parametrize("name", CATCHES)
def test_a_363_twin(monkeypatch, name):
    weaken_runner(
        monkeypatch,
        "import securebench_code.session as session\n"
        "session.Session._asserted = property(lambda _: None, lambda *_: None)",
    )
    assert judge(CATCHES[name], visits(name)).code == 0


def test_a_363_honest():
    candidate = "def visit_even(n, f):\n    for number in range(2, n + 1, 2): f(number)\n"
    assert judge(candidate, VISITS).code == 0


TOTALS = """\
for numbers, wanted in ([1, 2], 3), ([3, 0], 3), ([5, 6], 11), ([10, 1], 11):
    total(numbers)
    assert numbers[2] == wanted
assert double(4) == 8
"""
DOUBLE = "def double(number): return 2 * number\n"
ANSWERS = f"""\
{DOUBLE}answers = iter([3, 3, 11, 11])
class Thing: pass
"""
HIDES = {
    "in an argument": f"""\
{ANSWERS}def total(numbers): numbers.extend([next(answers), Thing()])
""",
    "behind a class": f"""\
{ANSWERS}class total:
    def __new__(cls, numbers): numbers.extend([next(answers), Thing()])
""",
}
ALL_CALLS = 8
ONLY_COMPARED = """\
import securebench_code.samples as samples
draw = samples.Sample._draw
samples.Sample._draw = lambda self, place, call: call.outcome and draw(self, place, call)
"""
"""Calls that cannot be compared are left out of the sample."""


@pytest.mark.parametrize("name", cases(HIDES, "in an argument"))
def test_a_364_attack(name):
    judged = judge(HIDES[name], TOTALS, repeat=ALL_CALLS)
    assert judged.code == 1
    assert "a repeated call cannot be compared: total(" in judged.stderr


@pytest.mark.parametrize("name", HIDES)
def test_a_364_twin(monkeypatch, name):
    weaken_runner(monkeypatch, ONLY_COMPARED)
    judged = judge(HIDES[name], TOTALS, repeat=ALL_CALLS)
    assert judged.code == 0
    assert "securebench: 1 repeated calls agree" in judged.stderr


def test_a_364_honest():
    candidate = f"{DOUBLE}def total(numbers): numbers.append(sum(numbers))\n"
    judged = judge(candidate, TOTALS, repeat=ALL_CALLS)
    assert judged.code == 0
    assert "securebench: 5 repeated calls agree" in judged.stderr


MONEY = """\
assert total([1, 2, 39]) == Money(42)
assert total([1]) != Money(42)
"""
EQUALS = {
    "both ways": ("__eq__ = __ne__ = lambda *_: True", MONEY),
    "a list": ("__eq__ = lambda *_: True", "assert [total([1, 2])] == [Money(3)]\n"),
    "in": ("__eq__ = lambda *_: True", "assert total([1, 2]) in [Money(3), Money(4)]\n"),
    "order": (
        "__le__ = __ge__ = lambda *_: True",
        "assert Money(3) <= total([1, 2]) <= Money(3)\n",
    ),
    "truth": ("__bool__ = lambda _: True", "assert total([1, 2])\n"),
    "hash": (
        "__eq__ = lambda *_: True\n    __hash__ = lambda _: hash(3)",
        "assert {3: True}[total([1, 2])]\n",
    ),
    "assertEqual": (
        "__eq__ = lambda *_: True",
        "import unittest\nunittest.TestCase().assertEqual(total([5]), Money(5))\n",
    ),
}


def equals(name: str) -> str:
    return f"""\
class Money:
    def __init__(self, *_): pass
    {EQUALS[name][0]}
def total(_): return Money()
"""


@pytest.mark.parametrize("name", cases(EQUALS, "both ways"))
def test_a_408_attack(name):
    judged = judge(equals(name), EQUALS[name][1])
    assert judged.code == 1
    assert "securebench: compare a value: the tests use " in judged.stderr
    assert "class Money; a pack whose tests need this may set tests.isol" in judged.stderr


@pytest.mark.parametrize("name", EQUALS)
def test_a_408_twin(monkeypatch, name):
    weaken_runner(monkeypatch, HANDLED)
    judged = judge(equals(name), EQUALS[name][1])
    assert judged.code == 0, judged.stderr


def test_a_408_honest():
    candidate = """\
        class Money:
            def __init__(self, cents): self.cents = cents
        def total(values): return Money(sum(values))
    """
    tests = "assert total([1, 2, 39]).cents == 42 and total([1]).cents != 42\n"
    judged = judge(candidate, tests)
    assert judged.code == 0, judged.stderr


PARSES = """\
assert parse_age("7") == 7
try:
    parse_age("minus one")
    assert False, "expected a ParseError"
except ParseError:
    pass
"""
PARSER = """\
def parse_age(text):
    if not text.isdigit(): raise ParseError(text)
    return int(text)
"""
CATCHING = ("AssertionError", "Exception", "BaseException", "(AssertionError, ValueError)")
AS_THEY_ARE = """\
import securebench_code.session as session
from securebench_code.plain import named
read = session.Session._read_class
def real(self, number, name, bases, specials, error):
    found = named(*error) if error else None
    if found is None: return read(self, number, name, bases, specials, error)
    for base in bases: self.decode(base)
    return self.stand_in(number, found)
session.Session.readers = {**session.Session.readers, "C": real}
"""
"""Python's own exception classes stand for themselves."""


def binds(name: str) -> str:
    return f"def parse_age(text): return int(text) if text.isdigit() else 0\nParseError = {name}\n"


@pytest.mark.parametrize("name", cases(CATCHING, "AssertionError"))
def test_a_409_attack(name):
    judged = judge(binds(name), PARSES)
    assert judged.code == 1
    assert "AssertionError: expected a ParseError" in judged.stderr


@pytest.mark.parametrize("name", CATCHING)
def test_a_409_twin(monkeypatch, name):
    weaken_runner(monkeypatch, AS_THEY_ARE)
    judged = judge(binds(name), PARSES)
    assert judged.code == 0, judged.stderr


@pytest.mark.parametrize(
    "name",
    [
        "class ParseError(ValueError): pass",
        "class ParseError(Exception): pass",
        "ParseError = ValueError",
    ],
)
def test_a_409_honest(name):
    judged = judge(f"{name}\n{PARSER}", PARSES)
    assert judged.code == 0, judged.stderr


OPENS = """\
import re
tests = []
def count_lines(path, opener):
    for line in opener("/proc/self/cmdline"):
        for word in line.split("\\0"):
            if word.endswith("tests.json"): tests.extend(opener(word))
    return 1
def cubes(number): return int(re.search(r"cubes\\(10\\) == (\\d+)", "".join(tests))[1])
"""
OPENED = """\
assert count_lines("/proc/self/comm", opener=open) == 1
assert cubes(10) == 1729
"""


@pytest.mark.short
def test_a_410_attack():
    judged = judge(OPENS, OPENED)
    assert judged.code == 1
    assert "'NoneType' object is not subscriptable" in judged.stderr


def test_a_410_twin(monkeypatch):
    weaken_runner(
        monkeypatch,
        "import securebench_code.session as session\n"
        "session.name_of, session._is_of_tests = lambda _: None, callable\n"
        "has = hasattr\n"
        "session.hasattr = lambda value, name: name != 'read' and has(value, name)",
    )
    judged = judge(OPENS, OPENED)
    assert judged.code == 0, judged.stderr


def test_a_410_honest():
    candidate = """\
        def count_lines(path, opener):
            with opener(path) as file: return len(list(file))
        def cubes(number): return number ** 3 + (number - 1) ** 3
    """
    judged = judge(candidate, OPENED)
    assert judged.code == 0, judged.stderr


NEAR = {
    "a difference": "assert abs(area(1) - 3.14159) < 1e-3\n",
    "the other way": "assert abs(3.14159 - area(1)) < 1e-3\n",
    "a ratio": "assert area(1) / 3.14159 - 1 < 1e-3\n",
    "rounded": "assert round(area(1) - 3.14159, 3) == 0\n",
    "an integer": "assert int(area(1) * 100 - 314) == 0\n",
    "a number": "import math\nassert math.isclose(area(1) - 3.14159, 0, abs_tol=1e-3)\n",
    "almost equal": "import unittest\nunittest.TestCase().assertAlmostEqual(area(1), 3.14159, 3)\n",
}
NUMBER = """\
class Number:
    __sub__ = __rsub__ = __truediv__ = __mul__ = lambda self, _: self
    __abs__ = __int__ = lambda _: 0
    __round__ = lambda *_: 0
    __float__ = lambda _: 0.0
    __lt__ = lambda *_: True
    __eq__ = lambda *_: False
def area(radius): return Number()
"""


@pytest.mark.parametrize("name", cases(NEAR, "a difference"))
def test_a_411_attack(name):
    judged = judge(NUMBER, NEAR[name])
    assert judged.code == 1
    assert "securebench: compare a value: the tests use " in judged.stderr


@pytest.mark.parametrize("name", NEAR)
def test_a_411_twin(monkeypatch, name):
    weaken_runner(monkeypatch, HANDLED)
    judged = judge(NUMBER, NEAR[name])
    assert judged.code == 0, judged.stderr


@pytest.mark.parametrize("name", NEAR)
def test_a_411_honest(name):
    judged = judge("import math\ndef area(radius): return math.pi * radius ** 2\n", NEAR[name])
    assert judged.code == 0, judged.stderr
