# candidates and tests as authors write them
"""Objects of the candidate are handles: what the tests can do with them, and what fails loudly."""

import pytest

from securebench.grading.code import handles
from support.code_pair import judge
from unit.grading.code.test_shared import shared

pytestmark = pytest.mark.timeout(30)

SHARED = "; a pack whose tests need this may set tests.isolation: shared"
EVERYTHING = (
    "class Any:\n"
    "    def __getattr__(self, name): return 7\n"
    "    def __init__(self): self.x = 3\n"
    + "".join(f"    def {name}(self, *_): return self\n" for name in sorted(handles.REFUSED))
    + "    def __eq__(self, other): return True\n"
    "    def __hash__(self): return 3\n"
    "def f(): return Any()\n"
)
REFUSED = {
    "-": ("3 - f()", "f() - 3", "abs(f() - 3) < 1", "-f()"),
    "+": ("f() + 3", "3 + f()", "[1] + f()", "sum([f()])", "f() + f()", "+f()", "v += 1"),
    "*": ("2 * f()", "'x' * f()"),
    "/": ("f() / 2",),
    "//": ("f() // 2",),
    "%": ("f() % 2",),
    "**": ("f() ** 2", "pow(f(), 2)"),
    "divmod()": ("divmod(f(), 2)",),
    "@": ("f() @ f()",),
    "<<": ("f() << 1",),
    "&": ("f() & {1}", "{1} & f()"),
    "|": ("f() | 1", "{1: 2} | f()"),
    "~": ("~f()",),
    "<": ("f() < 3", "sorted([f(), f()])"),
    ">": ("f() > 3", "max(3, f())"),
    "<=": ("0 >= f()",),
    "==": ("f() == 3", "3 == f()", "f() == None", "[f()] == [3]", "3 in [f()]", "f() in (1, 2)"),
    "!=": ("f() != 3", "f() != None"),
    "a truth value": ("assert f()", "not f()", "f() or 1", "bool(f())", "any([f()])"),
    "in": ("3 in f()", "'x' not in f()"),
    "[]": ("f()[0]", "v[1] = 2", "del v[1]", "f()[1:]"),
    "reversed()": ("reversed(f())",),
    "hash(), as": ("f() in {1, 2}", "f() in {1: 2}", "{f()}", "hash(f())"),
    "int()": ("int(f())",),
    "float()": ("float(f())", "import math; math.isclose(f(), 3)"),
    "an index": ("range(f())", "[1, 2][f()]", "hex(f())"),
    "abs()": ("abs(f())",),
    "round()": ("round(f(), 2)",),
    "math.floor()": ("import math; math.floor(f())",),
    "bytes()": ("bytes(f())",),
    "format '.2f'": ("f'{f():.2f}'",),
    "copy.copy()": ("import copy; copy.copy(f())",),
    "copy.deepcopy()": ("import copy; copy.deepcopy([f()])",),
    "pickle": ("import pickle; pickle.dumps(f())",),
    "await": (
        "import asyncio\n    async def main(): await f()\n    asyncio.run(main())",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_operators_are_refused_by_name(name):
    for statement in REFUSED[name]:
        caught = f"v = f()\ntry:\n    {statement}\nexcept Exception: pass\n"
        judged = judge(EVERYTHING, caught)
        assert judged.code == 1, statement
        want = f"the tests use {name}"
        assert want in judged.stderr, (statement, judged.stderr)
        assert "on an object of the candidate's class Any" in judged.stderr
        assert SHARED in judged.stderr


HONEST = {
    "attributes": "v = f(); assert v.x == 3 and v.y == 7; v.z = [4]; assert v.z == [4]; del v.z",
    "identity": "v = f(); assert v is v and v is not None and v is not f()",
    "equality of handles": "assert f() == f() and not f() != f() and [f()] == [f()]",
    "class": "assert isinstance(f(), Any) and type(f()) is Any and type(f()).__name__ == 'Any'",
}


@pytest.mark.parametrize("name", HONEST)
def test_handles(name):
    judged = judge(EVERYTHING, HONEST[name])
    assert judged.code == 0, judged.stderr


BREAKS = {
    "IntEnum": (
        "from enum import IntEnum\nclass Color(IntEnum):\n    RED = 1\n    GREEN = 2\n",
        "assert Color.RED == 1\nassert Color(2) is Color.GREEN or Color(2) == Color.GREEN\n",
        "assert Color.RED.name == 'RED'\nassert [c.name for c in Color] == ['RED', 'GREEN']\n",
        ("'int' object has no attribute 'name'", "class Color crosses as int"),
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
        ("'float' object has no attribute 'unit'", "class Quantity crosses as float"),
    ),
    "int with an operator": (
        """
        class Mod7(int):
            def __add__(self, other): return Mod7((int(self) + int(other)) % 7)
            def root(self): return int(self)
        """,
        "assert Mod7(5).root() == 5\n",
        "m = Mod7(5)\nassert m + 3 == 1\nassert m == 5\n",
        ("the tests use + on", "class Mod7"),
    ),
    "str with equality": (
        """
        class CaseInsensitive(str):
            def __eq__(self, other): return self.lower() == str(other).lower()
            def __ne__(self, other): return not self == other
            def __hash__(self): return hash(self.lower())
            def __add__(self, other): return CaseInsensitive(str(self) + other)
        """,
        "assert CaseInsensitive('Hello') == CaseInsensitive('hello')\n",
        "s = CaseInsensitive('Hello')\nassert s == 'hello'\nassert s + '!' == 'HELLO!'\n",
        ("the tests use == with a plain value (str) on", "class CaseInsensitive"),
    ),
    "list with operators": (
        """
        class Vector(list):
            def __add__(self, other): return Vector(a + b for a, b in zip(self, other))
            def __mul__(self, k): return Vector(a * k for a in self)
        """,
        "assert list(Vector([1, 2])) == [1, 2]\n",
        "v = Vector([1, 2])\nassert list(v + Vector([3, 4])) == [4, 6] and list(v * 3) == [3, 6]\n",
        ("the tests use + on", "class Vector"),
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
        "c = Cache(); assert c.put(1, 2) is c and c.get(1) == 2 and len(c) == 1",
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
        "assert f().twice() == P(2) and f().x == 1",
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
    "a comparison": "list(map(Stops().__class__.__eq__, [Stops()], [Stops()]))",
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
    assert "RuntimeError: the candidate raised StopIteration where it would end a loop" in (
        judged.stderr
    )
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
    """
    judged = judge(candidate, tests)
    assert judged.code == 0, judged.stderr


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


def test_assertions_in_callbacks_are_not_caught():
    tests = "def check(): assert False\nassert call(check) == 'AssertionError'\n"
    judged = judge(CATCHING, tests)
    assert judged.code == 1
    assert "the candidate caught an AssertionError of a test's function" in judged.stderr
    assert SHARED in judged.stderr


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


def test_dictionaries_keep_objects_with_identity_only():
    candidate = """\
        class Node: pass
        class Point:
            def __init__(self, x): self.x = x
            def __eq__(self, other): return self.x == other.x
            def __hash__(self): return hash(self.x)
        def nodes():
            node = Node()
            return node, {node: 1}
        def points(): return {Point(1)}
    """
    assert judge(candidate, "node, table = nodes(); assert table == {node: 1}").code == 0
    judged = judge(candidate, "try: points()\nexcept Exception: pass\n")
    assert judged.code == 1
    assert "the tests use hash(), as sets and dictionaries do, on an object of" in judged.stderr
