"""The values that a runner and a worker exchange, and the Python that their code needs."""

import ast
import collections
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.grading.code import frames, marshalling, plain
from securebench.grading.code.marshalling import Marshaller, Snapshot
from support.code_pair import FOLDER, judge

pytestmark = pytest.mark.timeout(20)


def side():
    return Marshaller(None)


def passed(one, value, other):
    """Return what arrives on the other side when control goes over with a value."""
    packed, _ = one.pack([value])
    (got,), _ = other.unpack(packed)
    return got


def crossed(value):
    return passed(side(), value, side())


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
    "no such value": ["=", 3],
    "no value before": ["=", -1],
    "itself": ["t", ["=", 0]],
    "no object of this side": ["!", 3],
    "no object of the other side": ["@", -1],
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
    with pytest.raises((frames.MalformedError, TypeError, ValueError, LookupError)):
        side().unpack([MALFORMED[name]])


def test_cycles_through_tuples_stay_cycles():
    value = ([],)
    value[0].append(value)
    (items,) = crossed(value)
    assert items[0][0] is items


def test_changes_refer_to_what_crossed_before():
    one, other = side(), side()
    sent = [[1], collections.deque([1], 3), bytearray(b"a")]
    packed, table = one.pack([sent])
    (got,), seen = other.unpack(packed)
    snapshot = Snapshot(seen)
    got[0].append(got[1])
    got[1].extend([2, 3, 4])
    got[2] += b"b"
    changes, _ = other.pack([[list(change) for change in snapshot.changes()]], seen)
    (told,), _ = one.unpack(changes, table)
    for place, items in told:
        plain.fill(table[place], items)
    assert sent[0][1] is sent[1]
    assert (list(sent[1]), bytes(sent[2])) == ([2, 3, 4], b"ab")


def test_data_has_no_identity_beyond_its_message():
    one, other, sent = side(), side(), [1]
    assert passed(one, sent, other) == passed(one, sent, other)
    assert passed(one, sent, other) is not passed(one, sent, other)


def test_objects_of_a_message_that_was_not_sent_are_forgotten():
    one, function = side(), object()
    known = one.own(function)
    one.own(object())
    one.disown(known + 1)
    assert one.is_known(function)
    assert one.own(object()) == known + 1


def test_known_objects_are_bounded(monkeypatch):
    monkeypatch.setattr(marshalling, "OBJECTS", 3)
    one, kept = side(), [object() for _ in range(8)]
    for number in range(3):
        one.own(kept[number])
        one.stand_in(number, kept[number + 3])
    with pytest.raises(frames.CannotCrossError, match="too many objects"):
        one.own(kept[6])
    with pytest.raises(frames.MalformedError, match="an odd number"):
        one.stand_in(3, kept[7])


NAMED = {
    ("builtins", "int"): True,
    ("builtins", "str.upper"): True,
    ("json.decoder", "JSONDecodeError"): True,
    ("os", "system"): False,
    ("subprocess", "Popen"): False,
    (1, 2): False,
}


@pytest.mark.parametrize("name", NAMED)
def test_what_has_a_name_on_both_sides(name):
    assert (plain.named(*name) is not None) == NAMED[name]


CAUGHT = {
    ValueError: True,
    KeyError: True,
    Exception: True,
    AssertionError: False,
    SystemExit: False,
    KeyboardInterrupt: False,
    StopIteration: False,
    BaseException: False,
    int: False,
}


@pytest.mark.parametrize("kind", CAUGHT)
def test_which_exceptions_are_caught_by_their_own_name(kind):
    assert (plain.named_error("builtins", kind.__name__) is kind) == CAUGHT[kind]


def test_modules_that_do_something_are_not_safe():
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


def test_a_name_that_is_too_large_is_an_object():
    candidate = "TABLE = 'x' * 2**24\ndef f(): return len(TABLE)\n"
    judged = judge(candidate, "assert f() == len(TABLE) == 2**24 and TABLE[-1] == 'x'")
    assert judged.code == 0, judged.stderr


def test_what_a_refused_answer_held_is_described_again():
    candidate = "TABLE = [lambda: 7, 'x' * 2**24]\nf = TABLE[0]\n"
    judged = judge(candidate, "assert f() == 7 and TABLE[0]() == 7\nTABLE[1]")
    assert judged.code == 1
    assert "the answer to getitem cannot cross" in judged.stderr
    assert judge(candidate, "assert f() == 7 and TABLE[0]() == 7").code == 0


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
