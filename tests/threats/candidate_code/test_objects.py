"""F3: objects of the candidate are not values, and its exceptions end nothing of the tests."""

from __future__ import annotations

import pytest

from support.code_pair import judge
from threats.candidate_code.local_judging import cases, weaken_runner

LIE = """\
seen = [0.0]
class Lie(float):
    def __sub__(self, other):
        seen[0] = other
        return 0.0
    __rsub__ = __sub__
    def __contains__(self, item): return True
    def startswith(self, prefix): return True
    def __bool__(self): return False
"""
WORKER = """\
import sys
W = sys.modules["securebench_code.worker"]
W.REBUILT = ()
W.OPERATIONS["plain"] = lambda value: float(seen[0])
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
for name in handles.REFUSED: setattr(handles.Handle, name, asks(name))
"""
"""Operators on handles are asked of the candidate instead of refused."""


def lies(name: str, *, takes_over: bool) -> str:
    return f"{LIE}{WORKER if takes_over else ''}def {STANDS_IN[name][0]}(*_): return Lie(0.0)\n"


@pytest.mark.parametrize("takes_over", [False, True], ids=["object", "worker"])
@pytest.mark.parametrize("name", cases(STANDS_IN, "humaneval-4"))
def test_a_360_attack(name, takes_over):
    judged = judge(lies(name, takes_over=takes_over), STANDS_IN[name][1])
    assert judged.code == 1
    assert "on an object of the candidate's class Lie" in judged.stderr
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
SQUARE = "def square(x): return x * x\n"


@pytest.mark.parametrize("name", cases(STOPS, "a map"))
def test_a_361_attack(name):
    judged = judge(*STOPS[name])
    assert judged.code == 1
    assert "where it would end a loop; a pack whose tests need this" in judged.stderr


@pytest.mark.parametrize("name", STOPS)
def test_a_361_twin(monkeypatch, name):
    weaken_runner(monkeypatch, "import securebench_code.session as session; session.ENDINGS = ()")
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
    assert "the candidate caught an AssertionError of a test's function" in judged.stderr


@pytest.mark.parametrize("name", CATCHES)
def test_a_363_twin(monkeypatch, name):
    weaken_runner(
        monkeypatch,
        "import securebench_code.session as session\n"
        "session.Session._require_assertions = lambda *_: None",
    )
    assert judge(CATCHES[name], visits(name)).code == 0


def test_a_363_honest():
    candidate = "def visit_even(n, f):\n    for number in range(2, n + 1, 2): f(number)\n"
    assert judge(candidate, VISITS).code == 0


TOTALS = """\
assert total([1, 2]) == 3
assert total([3]) == 3
assert total([5, 6]) == 11
assert total([10, 1]) == 11
assert double(4) == 8
"""
DOUBLE = "def double(number): return 2 * number\n"
ANSWERS = f"""\
{DOUBLE}answers = iter([3, 3, 11, 11])
class Thing: pass
"""
HIDES = {
    "in an argument": f"""\
{ANSWERS}def total(numbers):
    numbers.append(Thing())
    return next(answers)
""",
    "behind a class": f"""\
{ANSWERS}class total:
    def __new__(cls, numbers):
        numbers.append(Thing())
        return next(answers)
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
    candidate = f"{DOUBLE}def total(numbers): return sum(numbers)\n"
    judged = judge(candidate, TOTALS, repeat=ALL_CALLS)
    assert judged.code == 0
    assert "securebench: 5 repeated calls agree" in judged.stderr
