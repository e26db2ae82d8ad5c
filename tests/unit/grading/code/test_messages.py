"""What a runner says, the values it rebuilds, and the Python that its code needs."""

import ast
import collections
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.grading.code import frames, marshalling, plain
from securebench.grading.code.marshalling import Marshaller
from support.code_pair import FOLDER, judge

pytestmark = pytest.mark.timeout(20)


class Kept:
    """A channel that keeps the message."""

    def send(self, frame):
        self.frame = frame


def side():
    return Marshaller(Kept())


def passed(one, value, other):
    """Return what arrives on the other side when control goes over with a value."""
    one.send(list, [value])
    changes, *packed = one.channel.frame
    (got,) = other.unpack(changes, packed)
    return got


def crossed(value):
    return side().decode(side().encode(value))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**60), max_value=10**60)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters())
    | st.text(st.characters(categories=["Cs"]))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.datetimes()
    | st.timedeltas()
)
KEYS = st.recursive(
    SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=4
)
VALUES = st.recursive(
    SCALARS | st.binary().map(bytearray) | st.sets(KEYS, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(VALUES)
def test_values_cross_exactly(value):
    assert same(crossed(value), value)


def same(one, other):
    return stable(one) == stable(other)


def stable(value):
    """Return a value as text that shows types and does not depend on the order of sets."""
    if isinstance(value, dict):
        return f"dict{[(stable(key), stable(item)) for key, item in value.items()]}"
    if isinstance(value, list | tuple | set | frozenset):
        items = list(map(stable, value))
        is_set = isinstance(value, set | frozenset)
        return f"{type(value).__name__}{sorted(items) if is_set else items}"
    return f"{type(value).__name__} {value!r}"


MALFORMED = {
    "object": {"a": 1},
    "no tag": [],
    "tag no text": [1],
    "unknown tag": ["zz"],
    "no such container": ["@", 3],
    "negative container": ["@", -1],
    "boolean container": ["@", True],
    "itself": ["t", ["@", 0]],
    "unknown type": ["n", "os", "system"],
    "builtin function": ["n", "builtins", "eval"],
    "data by a module's name": ["n", "subprocess", "Popen"],
    "a fraction from a text": ["F", "1E999999999", 1],
    "an object of the other side": ["o", ["n", "builtins", "int"]],
    "a function of the other side": ["k", "f", None],
    "an exception of no class": ["x", False, ["n", "builtins", "int"], "", [], None],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_value_is_refused(name):
    with pytest.raises((frames.MalformedError, TypeError, ValueError)):
        side().decode(MALFORMED[name])


def test_changes_reach_only_what_can_change():
    one = side()
    one.decode(["t", 1])
    with pytest.raises(frames.MalformedError, match="that cannot change"):
        one.unpack([[0, 2]], [])
    with pytest.raises(frames.MalformedError, match="a reference to nothing"):
        one.unpack([[7, 2]], [])


def test_cycles_through_tuples_stay_cycles():
    value = ([],)
    value[0].append(value)
    (items,) = crossed(value)
    assert items[0][0] is items


def test_changes_cross_by_identity():
    one, other = side(), side()
    sent = {"list": [1], "deque": collections.deque([1], 3), "bytes": bytearray(b"a")}
    got = passed(one, sent, other)
    got["list"].append(got["deque"])
    got["deque"].extend([2, 3, 4])
    got["bytes"] += b"b"
    assert passed(other, got["list"], one) is sent["list"]
    assert sent["list"][1] is sent["deque"]
    assert (list(sent["deque"]), bytes(sent["bytes"])) == ([2, 3, 4], b"ab")


def test_what_was_not_sent_has_no_number():
    """Both sides number alike also after a message that could not be sent."""
    one, other = side(), side()
    kept = passed(one, ["a"], other)
    with pytest.raises(frames.CannotCrossError):
        one.send(list, [["b"], object()])
    assert passed(one, [["c"]], other) == [["c"]]
    assert passed(other, kept, one) == ["a"]


def test_known_objects_are_bounded(monkeypatch):
    monkeypatch.setattr(marshalling, "OBJECTS", 3)
    one = side()
    for _ in range(4):
        one.add(object(), stays=True)
    with pytest.raises(frames.MalformedError, match="too many objects"):
        one.add(object(), stays=True)


def test_only_harmless_names_stand_for_themselves():
    assert plain.named_type("builtins", "int") is int
    assert plain.named_type("json.decoder", "JSONDecodeError") is not None
    for module, name in [("builtins", "exec"), ("os", "PathLike"), ("os", "system"), (1, 2)]:
        assert plain.named_type(module, name) is None
    assert plain.safe_module("os") is None


BAD_FRAMES = {
    "too long": b"\xff\xff\xff\xff",
    "no JSON": b"\x00\x00\x00\x01{",
    "no array": b"\x00\x00\x00\x02{}",
    "no ASCII": b"\x00\x00\x00\x04[\xc3\xa9]",
    "trailing": b"\x00\x00\x00\x04[] 1",
    "deep": (200_000).to_bytes(4, "big") + b"[" * 200_000,
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_bad_messages(name):
    one, other = socket.socketpair()
    sender = threading.Thread(target=one.sendall, args=(BAD_FRAMES[name],))
    sender.start()
    with pytest.raises(frames.MalformedError):
        frames.Channel(other).receive()
    sender.join()
    one.close()
    other.close()


MESSAGES = {
    "exit at import": ("import sys; sys.exit(0)", "", "candidate attempted to exit during import"),
    "error at import": ("1/0", "", "ZeroDivisionError"),
    "error's place": ("def f(): return 1/0", "f()", "candidate.py"),
    "syntax": ("def", "", "SyntaxError"),
    "hard exit at import": ("import os; os._exit(0)", "", "hidden tests did not complete"),
    "hard exit": ("import os\ndef f(): os._exit(0)", "f()", "hidden tests did not complete"),
    "exit of the tests": ("", "raise SystemExit(0)", "hidden tests did not complete"),
    "object": ("def f(x): return x", "class A: pass\nf(A())", "type __securebench_tests__.A"),
    "plain": (
        "class A:\n  def __eq__(s, o): return True\ndef f(): return A()",
        "f() == 1",
        "non-plain value: the tests use == with a plain value (int) on an object of",
    ),
    "derived": ("class A: pass", "class B(A): pass", "derive class B from the candidate's class A"),
    "pickled": (
        "class A: pass\ndef f(): return A()",
        "import pickle\npickle.dumps(f())",
        "the tests use pickle on an object of the candidate's class A",
    ),
    "patched": (
        "def f(): pass",
        "import securebench_candidate as c\nc.f = None",
        "the tests change f of the candidate's module",
    ),
    "unpatched": (
        "def f(): pass",
        "import securebench_candidate as c\ndel c.f",
        "the tests change f of the candidate's module",
    ),
    "coroutine": (
        "async def f(): return 1",
        "import asyncio\ntry: asyncio.run(f())\nexcept Exception: pass",
        "a coroutine, which needs an event loop; a pack whose tests need this may set",
    ),
    "too large": ("def f(): return 'x' * 2**25", "f()", "the answer to call cannot cross"),
    "shared": ("def f(x): pass", "f(object())", "tests.isolation: shared"),
    "builtin": ("def len(x): return 0", "", "len does not replace Python's own"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name):
    candidate, tests, want = MESSAGES[name]
    judged = judge(candidate, tests)
    assert (judged.code == 0) == (name == "builtin")
    assert want in judged.stderr


SEND = """\
import json, os, socket, struct, sys
def serving():
    frame = sys._getframe()
    while "asked" not in frame.f_locals: frame = frame.f_back
    return frame.f_locals
def number_of(value): return serving()["self"]._numbers[id(value)]
def send(*words):
    data = json.dumps([serving()["asked"], *words]).encode()
    for number in range(3, 30):
        try:
            found = socket.socket(fileno=os.dup(number))
            found.getpeername()
            found.sendall(struct.pack(">I", len(data)) + data)
        except OSError: pass
"""
ITERABLE = '["C", "K", [], ["__iter__"]]'
VIOLATIONS = {
    "an import of nothing": "send('return', [], [], 5)",
    "an odd name": "send('return', [], [], ['l', None, 'a b'])",
    "a call of nothing": "def f(): send('call', [], [], 99, ['l'], ['d'])",
    "a reference to nothing": "def f(): send('return', [], [], ['@', 99])",
    "an object without a class": "def f(): send('return', [], [], ['o', 5])",
    "an exception without class": "def f(): send('return', [], [], ['x', True, 5, '', [], None])",
    "an exception that is none": "def f(): send('raise', [], [], 5, '')",
    "an answer to no question": "def f(): send('return', [], [], 1, 2)",
    "has to be asked for while": f"def f(): send('return', [], [], ['vi', ['o', {ITERABLE}]])",
    "odd output": "def f(): send('return', [['screen', 'x']], [], 1)",
    "that cannot change": "def f(_): send('return', [], [[number_of(_), 9]], 1)",
}


@pytest.mark.parametrize("words", VIOLATIONS)
def test_violations_are_named(words):
    argument = "('x',)" if "f(_)" in VIOLATIONS[words] else ""
    judged = judge(SEND + VIOLATIONS[words], f"try: f({argument})\nexcept Exception: pass\n")
    assert judged.code == 1
    assert "the candidate broke the protocol" in judged.stderr
    assert words in judged.stderr


def test_a_name_that_is_too_large_is_an_object():
    candidate = "TABLE = 'x' * 2**24\ndef f(): return len(TABLE)\n"
    judged = judge(candidate, "assert f() == len(TABLE) == 2**24 and next(iter(TABLE)) == 'x'")
    assert judged.code == 0, judged.stderr
    assert "the tests use [] on" in judge(candidate, "TABLE[0]").stderr


def test_what_a_refused_answer_held_is_described_again():
    candidate = "TABLE = [lambda: 7, 'x' * 2**24]\nf = TABLE[0]\n"
    judged = judge(candidate, "assert f() == 7 and list(TABLE)[0] is f")
    assert judged.code == 1
    assert "the answer to next cannot cross" in judged.stderr
    assert judge(candidate, "assert f() == 7 and next(iter(TABLE)) is f").code == 0


def test_what_is_printed_is_bounded():
    candidate = "def f(): print('x' * 2**22); return 42\ndef g(): print('g')\n"
    judged = judge(candidate, "assert f() == 42\ng()\n")
    assert judged.code == 0, judged.stderr
    assert 2**18 < len(judged.stdout) < 2**21
    assert judged.stdout.endswith("xg\n")


@pytest.mark.parametrize("path", sorted((FOLDER / "code").glob("*.py")), ids=lambda path: path.name)
def test_python_3_8_reads_it(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(not (node.module or "").startswith("securebench") for node in imported)
    subscripts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    annotations = [
        inner
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if isinstance(getattr(node, field, None), ast.expr)
        for inner in ast.walk(getattr(node, field))
    ]
    evaluated = [node for node in subscripts if node not in annotations]
    generic = {"list", "dict", "set", "tuple", "type", "frozenset", "Callable", "Sequence"}
    assert not [node for node in evaluated if getattr(node.value, "id", "") in generic]
