# ruff: noqa: E501  # statements as authors write them
# candidates and tests as authors write them
"""Objects of the candidate are handles: what the tests can do with them, and what fails loudly."""

import pytest

from securebench.grading.code import handles
from support.code_pair import judge, judge_shared
from unit.grading.code.test_shared import shared

pytestmark = pytest.mark.timeout(30)

SHARED = "; a pack whose tests need this may set tests.isolation: shared"
SPECIALS = sorted(
    {*handles.COMPARED, *handles.ABILITIES, "__add__", "__radd__", "__sub__", "__rsub__"}
    - {"__hash__"}
)
EVERYTHING = (
    "class Any:\n"
    "    def __getattr__(self, name): return 7\n"
    "    def __init__(self): self.x = 3\n"
    + "".join(f"    def {name}(self, *_): return self\n" for name in SPECIALS)
    + "    def __eq__(self, other): return True\n"
    "    def __hash__(self): return 3\n"
    "def f(): return Any()\n"
)
COMPARED = {
    "==": ("f() == 3", "3 == f()", "f() == f()", "f() == None", "[f()] == [3]", "3 in [f()]", "f() in (1, 2)"),
    "!=": ("f() != 3", "f() != None", "f() != f()"),
    "<": ("f() < 3", "sorted([f(), f()])", "f() < f()"),
    ">": ("f() > 3", "max(3, f())"),
    "<=": ("0 >= f()",),
    "a truth value": ("assert f()", "not f()", "f() or 1", "bool(f())", "any([f()])"),
    "in": ("3 in f()", "'x' not in f()", "f() in f()"),
    "hash()": ("f() in {1, 2}", "f() in {1: 2}", "{f()}", "hash(f())"),
    "-": ("3 - f()", "f() - 3", "abs(f() - 3) < 1"),
    "+": ("f() + 3", "3 + f()", "[1] + f()", "sum([f()])", "v += 1"),
    "*": ("2 * f()", "'x' * f()"),
    "/": ("f() / 2",),
    "%": ("f() % 2",),
    "**": ("f() ** 2", "pow(f(), 2)"),
    "divmod()": ("divmod(f(), 2)",),
    "&": ("f() & {1}", "{1} & f()"),
    "|": ("f() | 1", "{1: 2} | f()"),
}  # fmt: skip
REFUSED = {
    "reversed()": ("reversed(f())",),
    "copy.copy()": ("import copy; copy.copy(f())",),
    "copy.deepcopy()": ("import copy; copy.deepcopy([f()])",),
    "pickle": ("import pickle; pickle.dumps(f())",),
    "await": (
        "import asyncio\n    async def main(): await f()\n    asyncio.run(main())",
    ),
}  # fmt: skip
WORDS = {
    **dict.fromkeys(COMPARED, "compare a value: "),
    **dict.fromkeys(REFUSED, "non-plain value: "),
}


@pytest.mark.parametrize("name", WORDS)
def test_operators_are_refused_by_name(name):
    for statement in {**COMPARED, **REFUSED}[name]:
        caught = f"v = f()\ntry:\n    {statement}\nexcept Exception: pass\n"
        judged = judge(EVERYTHING, caught)
        assert judged.code == 1, statement
        want = f"{WORDS[name]}the tests use {name} "
        assert want in judged.stderr, (statement, judged.stderr)
        assert "an object of the candidate's class Any" in judged.stderr
        assert SHARED in judged.stderr


HONEST = {
    "attributes": "v = f(); assert v.x == 3 and v.y == 7; v.z = [4]; assert v.z == [4]; del v.z",
    "identity": "v = f(); assert v is v and v is not None and v is not f()",
    "what they return": "v = f(); assert v[3].x == (v + v).x == round(v).x == abs(v).x == 3",
    "class": "assert isinstance(f(), Any) and type(f()) is Any and type(f()).__name__ == 'Any'",
}


@pytest.mark.parametrize("name", HONEST)
def test_handles(name):
    judged = judge(EVERYTHING, HONEST[name])
    assert judged.code == 0, judged.stderr


STAND_INS = {
    "the same object": "class M:\n    one = None\n    def __new__(cls, *_):\n        cls.one = cls.one or object.__new__(cls)\n        return cls.one\ndef f(): return M()\n",
    "the same exception": "class M(Exception): pass\none = M()\nclass Maker:\n    def __new__(cls, *_): return one\nM, E = Maker, M\ndef f(): return one\n",
    "the same function": "def g(): pass\ndef f(): return g\ndef M(*_): return g\n",
}
SEEMS_EQUAL = (
    "[f()] == [M(3)]",
    "f() in [M(3)]",
    "{1: f()} == {1: M(3)}",
    "[f()].count(M(3)) == 1",
    "f() is M(3)",
)


@pytest.mark.parametrize("name", STAND_INS)
def test_no_container_takes_two_objects_for_one(name):
    for statement in SEEMS_EQUAL:
        judged = judge(STAND_INS[name], f"assert {statement}\n")
        assert judged.code == 1, statement
        assert SHARED in judged.stderr or "Error" in judged.stderr


EMPTIED = {
    "compared": "nums = [1, 2]\nassert f(nums) == next(iter(nums), None)\n",
    "assigned": "nums = [1, 2]\nr = f(nums)\nassert r == max(nums, default=None)\n",
    "a condition": "nums = [1, 2]\nassert (f(nums) is not None) == (2 in nums)\n",
    "an argument": "def same(a, b): assert a == b\nnums = [1]\nsame(f(nums), next(iter(nums), None))\n",
}


@pytest.mark.parametrize("name", EMPTIED)
def test_an_argument_that_was_emptied_is_compared_as_it_was(name):
    judged = judge("def f(items): items.clear()\n", EMPTIED[name])
    assert judged.code == 1
    assert "an argument was changed by a call whose result is used" in judged.stderr


FOR_EFFECT = (
    "f(nums)", "assert f(nums) is None", "assert f(nums) == None", "unittest.TestCase().assertIsNone(f(nums))",
    "def call(items): f(items)\ncall(nums)", "for _ in range(1): f(nums)", "(lambda: 0)(); f(nums); None",
)  # fmt: skip


@pytest.mark.parametrize("statement", ["f(nums)", "for _ in range(1): f(nums)", "Sorter().f(nums)"])
def test_a_statement_changes_its_argument_whatever_it_returns(statement):
    candidate = "def f(items):\n    items.sort()\n    return items, 1\n"
    candidate += "class Sorter:\n    f = staticmethod(f)\n"
    judged = judge(candidate, f"nums = [2, 1]\n{statement}\nassert nums == [1, 2]\n")
    assert judged.code == 0, judged.stderr


OWN = {
    "a class of its own module": (
        "from datetime import datetime\ndef day(): return datetime(2026, 1, 2)\n",
        "assert day() == datetime(2026, 1, 2) and isinstance(day(), datetime)\n",
        "values",
    ),
    "a type in a container": (
        "class Parser:\n    def __init__(self): self.types = {'age': int, 'day': str}\n",
        "assert Parser().types == {'age': int, 'day': str}\n",
        "objects",
    ),
    "a type under the name that the task asks for": (
        "whole = int\n", "assert whole('7') == 7 and whole(7.9) == 7\n", "objects"
    ),
    "an exception under another name": (
        "class Parser:\n    Error = ValueError\n    def run(self): raise self.Error('no')\n",
        """
        try: Parser().run()
        except Parser.Error as error: assert str(error) == 'no'
        else: raise AssertionError
        """,
        "objects",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_classes_of_python_are_its_own_in_the_tests(name):
    candidate, tests, basis = OWN[name]
    judged = judge(candidate, tests)
    assert judged.code == 0, judged.stderr
    assert f"rests on {basis}" in judged.stderr
    assert judge_shared(candidate, tests).code == 0


def test_no_attribute_catches_an_exception_of_the_tests():
    candidate = "class Parser:\n    Error = AssertionError\nclass Other:\n    Error = ValueError\n"
    for name, error in (("Parser", "AssertionError"), ("Other", "ValueError")):
        tests = f"try: raise {error}\nexcept {name}.Error: pass\n"
        assert judge(candidate, tests).code == 1


@pytest.mark.parametrize("statement", FOR_EFFECT)
def test_a_call_for_its_effect_changes_its_argument(statement):
    tests = f"import unittest\nnums = [2, 1]\n{statement}\nassert nums == [1, 2]\n"
    judged = judge("def f(items): items.sort()\n", tests)
    assert judged.code == 0, judged.stderr


BREAKS = {
    "IntEnum": (
        "from enum import IntEnum\nclass Color(IntEnum):\n    RED = 1\n    GREEN = 2\n",
        "assert Color.RED == 1\nassert Color(2) is Color.GREEN or Color(2) == Color.GREEN\n",
        "assert Color.RED.name == 'RED'\nassert [c.name for c in Color] == ['RED', 'GREEN']\n",
        ("'int' object has no attribute 'name'", "an object of Color crosses as int"),
    ),
    "float with an attribute": (
        """
        class Quantity(float):
            unit = ""
        def parse(text):
            q = Quantity(1.5); q.unit = "kg"; return q
        """,
        "assert parse('1.5kg') == 1.5\n",
        "assert parse('1.5kg').unit == 'kg'\n",
        ("'float' object has no attribute 'unit'", "an object of Quantity crosses as float"),
    ),
    "int with an operator": (
        """
        class Mod7(int):
            def __add__(self, other): return Mod7((int(self) + int(other)) % 7)
            def root(self): return int(self)
        """,
        "assert Mod7(5).root() == 5\n",
        "m = Mod7(5)\nassert m + 3 == 1\nassert m == 5\n",
        ("the tests use + between a value and", "class Mod7"),
    ),
    "str with equality": (
        """
        class CaseInsensitive(str):
            def __eq__(self, other): return self.lower() == str(other).lower()
            def __ne__(self, other): return not self == other
            def __hash__(self): return hash(self.lower())
        """,
        "assert CaseInsensitive('Hello') == 'Hello'\n",
        "assert CaseInsensitive('Hello') == CaseInsensitive('hello')\n",
        ("an object of CaseInsensitive crosses as str",),
    ),
    "list with operators": (
        """
        class Vector(list):
            def __add__(self, other): return Vector(a + b for a, b in zip(self, other))
            def __mul__(self, k): return Vector(a * k for a in self)
        """,
        "assert list(Vector([1, 2])) == [1, 2]\n",
        "v = Vector([1, 2])\nassert list(v + Vector([3, 4])) == [4, 6] and list(v * 3) == [3, 6]\n",
        ("an object of Vector crosses as list",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_honest_classes_fail_with_words(name):
    candidate, crosses, needs_shared, words = BREAKS[name]
    assert judge(candidate, crosses).code == 0
    judged = judge(candidate, needs_shared)
    assert judged.code == 1
    for want in (*words, SHARED):
        assert want in judged.stderr
    assert shared(candidate, crosses + needs_shared)[:2] == (0, True)


FLAT = {
    "no operator": ("class N(int): pass\ndef f(): return N(3)", "assert f() + 1 == 4", True),
    "in a container": (
        "class S(str): pass\ndef f(): return {S('a'): [S('b')]}",
        "assert f() == {'a': ['b']} and type(f()['a'][0]) is str",
        True,
    ),
    "a lie about its text": (
        "class S(str):\n    def __str__(self): return 'right'\ndef f(): return S('wrong')",
        "assert f() == 'right'",
        False,
    ),
    "made by the tests, with methods": (
        """
        from collections import OrderedDict
        class Cache(OrderedDict):
            def put(self, key, value): self[key] = value; return self
        """,
        "c = Cache(); assert c.put(1, 2).get(1) == 2 and c.get(1) == 2 and len(c) == 1",
        True,
    ),
    "made by the tests": ("class N(int): pass", "assert N(3) == 3 and [N(3)] == [3]", True),
    "named tuples": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\ndef f(): return P(1)",
        "assert f() == (1,) and f().x == 1 and P(2).x == 2 and P(2) == (2,)",
        True,
    ),
    "named tuples with operators": (
        """
        from typing import NamedTuple
        class P(NamedTuple):
            x: int
            def __add__(self, other): return P(self.x + other.x)
            def twice(self): return P(2 * self.x)
        def f(): return P(1)
        """,
        "assert f() == P(1) == (1,) and f().x == 1 and f() + (2,) == (1, 2)",
        True,
    ),
    "C code of a library": (
        "class N(float): __add__ = float.__sub__\ndef f(): return N(3)",
        "assert f() + 1 == 4",
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_subclasses_of_builtin_types(name):
    candidate, tests, passes = FLAT[name]
    judged = judge(candidate, tests)
    assert (judged.code == 0) == passes, judged.stderr


ENDS = {
    "a map": "list(map(stop, [1]))",
    "a call": "try: stop(1)\nexcept StopIteration: raise SystemExit(0)",
    "a method": "list(map(Stops().stop, [1]))",
    "an attribute": "list(map(lambda v: v.attribute, [Stops()]))",
    "a class": "list(map(Stops, [1]))",
    "iter": "list(map(iter, [Stops()]))",
}
STOPS = """
class Stops:
    def __init__(self, *arguments):
        if arguments: raise StopIteration
    def stop(self, _): raise StopIteration
    def __iter__(self): raise StopIteration
    def __next__(self): raise StopIteration
    def __eq__(self, other): raise StopIteration
    @property
    def attribute(self): raise StopIteration
def stop(_): raise StopIteration
"""


@pytest.mark.parametrize("name", ENDS)
def test_only_an_iterator_ends_a_loop(name):
    judged = judge(STOPS, ENDS[name])
    assert judged.code == 1
    assert "the candidate raised StopIteration, which the tests cannot catch" in judged.stderr
    assert SHARED in judged.stderr


def test_an_iterator_ends_its_loop():
    candidate = """\
        def count(n): yield from range(n)
        class Down:
            def __init__(self, n): self.n = n
            def __iter__(self): return self
            def __next__(self):
                if not self.n: raise StopIteration
                self.n -= 1
                return self.n
    """
    tests = """\
        assert [*count(2)] == [0, 1] and list(Down(2)) == [1, 0] and next(count(0), 7) == 7
        numbers = count(1)
        assert next(numbers) == 0
        try: next(numbers)
        except StopIteration: pass
        else: raise AssertionError
        down = Down(1)
        assert next(down) == 0 and next(down, 7) == 7
    """
    judged = judge(candidate, tests)
    assert judged.code == 0, judged.stderr


SOURCES = """
import itertools
state = []
def count(n):
    for i in range(n):
        state.append(i)
        yield i
def endless(): return itertools.count()
def take(numbers, n): return list(itertools.islice(numbers, n))
def twice():
    numbers = iter(range(5))
    return numbers, numbers
def seen(): return list(state)
def groups(text): return itertools.groupby(text)
def guarded():
    try: yield 1
    finally: state.append("closed")
class Reader:
    def __init__(self): self.lines = iter("abc")
    def rest(self): return list(self.lines)
"""
MOVES = {
    "next, then the rest": """
        numbers = count(4)
        assert next(numbers) == 0 and list(numbers) == [1, 2, 3]
    """,
    "nothing before the first": "numbers = count(9)\nassert seen() == []",
    "one after the other": "next(count(9))\nassert seen() == [0]",
    "endless": """
        from itertools import islice
        numbers = endless()
        assert list(zip(numbers, "ab")) == [(0, "a"), (1, "b")]
        assert list(islice(numbers, 40))[-1] == 42 and next(numbers) == 43
    """,
    "passed back": """
        numbers = endless()
        assert next(numbers) == 0 and take(numbers, 3) == [1, 2, 3] and next(numbers) == 4
    """,
    "passed back to its end": """
        numbers = count(4)
        assert take(numbers, 2) == [0, 1] and list(numbers) == [2, 3]
    """,
    "one iterator twice": """
        first, second = twice()
        assert next(first) == 0 and next(second) == 1 and first is second
    """,
    "groups": "assert [(key, list(group)) for key, group in groups('aab')] == [('a', ['a', 'a']), ('b', ['b'])]",
    "an attribute": """
        reader = Reader()
        assert next(reader.lines) == "a" and reader.rest() == ["b", "c"]
    """,
    "closed": """
        numbers = guarded()
        assert next(numbers) == 1
        numbers.close()
        assert seen() == ["closed"]
    """,
    "thrown into": """
        numbers = guarded()
        next(numbers)
        try: numbers.throw(ValueError("mine"))
        except ValueError: pass
        assert seen() == ["closed"]
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_an_iterator_of_the_candidate_moves_as_the_tests_do(name):
    judged = judge(SOURCES, MOVES[name])
    assert judged.code == 0, judged.stderr


STALE = {
    "an iterator of the tests": "mine = iter('abc')\ntake(mine, 1)\nassert next(mine) == 'b'",
    "items that crossed early": "numbers = count(90)\nfor _ in range(50): next(numbers)\nassert len(seen()) == 50",
    "passed back after that": "numbers = count(90)\nfor _ in range(50): next(numbers)\ntake(numbers, 1)\nassert next(numbers) == 51",
    "no end": "from itertools import count as steps\nassert take(steps(), 1) == [0]",
}  # fmt: skip


@pytest.mark.parametrize("name", STALE)
def test_iterators_that_cannot_move_together_are_named(name):
    judged = judge(SOURCES, STALE[name])
    assert judged.code == 1
    assert SHARED in judged.stderr


BLOCK = """
class Block:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): {}
"""
BLOCKS = {
    "returns true": (
        "return True",
        "AssertionError of the tests is swallowed by the with block",
    ),
    "returns an object": ("return self", "is swallowed by the with block of"),
    "raises": ("raise KeyError", "AssertionError of the tests becomes KeyError in the with block"),
    "exits": ("raise SystemExit", "AssertionError of the tests becomes SystemExit in"),
    "raises it again": ("raise error", "AssertionError\n"),
    "returns false": ("return False", "AssertionError\n"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_with_blocks_end_as_the_tests_say(name):
    end, words = BLOCKS[name]
    tests = "try:\n    with Block(): assert False\nexcept (KeyError, SystemExit): pass\n"
    judged = judge(BLOCK.format(end), tests)
    assert judged.code == 1
    assert words in judged.stderr


def test_with_blocks_of_the_candidate():
    tests = """\
        with Block() as block: pass
        try:
            with Block(): raise KeyError("own")
        except KeyError as error: assert error.args == ("own",)
        else: raise AssertionError
    """
    assert judge(BLOCK.format("return None"), tests).code == 0


CATCHING = """
def call(function):
    try: function()
    except Exception as error: return type(error).__name__
def again(function):
    for _ in range(3):
        try: return function()
        except ValueError: pass
"""


def test_callbacks_may_raise_what_is_no_assertion():
    tests = """\
        calls = []
        def flaky():
            calls.append(1)
            if len(calls) < 3: raise ValueError
            return 7
        assert again(flaky) == 7 and call(lambda: 1 / 0) == "ZeroDivisionError"
    """
    assert judge(CATCHING, tests).code == 0


def test_exceptions_of_the_tests_are_raised_within_their_call_only():
    candidate = """\
        kept = []
        def keep(function):
            try: function()
            except Exception as error: kept.append(error)
        def again(): raise kept[0]
    """
    tests = """\
        class Own(Exception): pass
        def fail(): raise Own
        keep(fail)
        try: again()
        except Exception as error: pass
    """
    judged = judge(candidate, tests)
    assert judged.code == 1
    assert "raised an exception of the tests after its call" in judged.stderr


def test_assertions_in_callbacks_are_not_caught():
    tests = "def check(): assert False\nassert call(check) == 'AssertionError'\n"
    judged = judge(CATCHING, tests)
    assert judged.code == 1
    assert "in check\nAssertionError" in judged.stderr


def test_assertions_in_callbacks_reach_the_tests():
    candidate = "def call(function): return function()\n"
    tests = """\
        def check(): assert False
        for _ in range(2):
            try: call(check)
            except AssertionError: pass
            else: raise SystemExit
    """
    judged = judge(candidate, tests)
    assert judged.code == 0, judged.stderr


def test_no_set_and_no_dictionary_has_objects_as_keys():
    candidate = """\
        class Node: pass
        def nodes(): return {Node(): 1}
        def points(): return {Node()}
    """
    for name in ("nodes", "points"):
        judged = judge(candidate, f"try: {name}()\nexcept Exception: pass\n")
        assert judged.code == 1
        assert "compare a value: the tests use hash() on an object of" in judged.stderr
