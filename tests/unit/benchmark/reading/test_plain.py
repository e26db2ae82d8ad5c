"""Values as they stand in files, and the shapes that they must have."""

import json

import pytest

from securebench.benchmark.reading.plain import MAX_DEPTH, PlainProblem, parse_json, parse_yaml
from securebench.benchmark.reading.shape import MAX_DEFECTS, Shape
from securebench.json_values import (
    COMMAND,
    MISSPELT,
    NON_NEGATIVE,
    PATTERNS,
    TEXT,
    TEXT_OR_NUMBER,
    nullable,
    object_of,
)

DEEP = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
)

BAD_YAML = {
    "syntax": ("a: [\n", "invalid YAML", 2),
    "tab": ("a:\n\t- b", "invalid YAML", 2),
    "two documents": ("a: 1\n---\nb: 2", "invalid YAML", 2),
    "duplicate key": ("a: 1\nb: 2\na: 3", "duplicate key 'a'", 3),
    "deep duplicate key": ("a:\n  - b: 1\n    b: 2", "duplicate key 'b'", 3),
    "number as key": ("a: 1\n1: 2", "key must be a string", 2),
    "list as key": ("? [a]\n: 1", "key must be a string", 1),
    "itself": ("a: &x [*x]", "contains itself", 1),
    "bomb": (BOMB, "more than 100000 values", None),
    "not finite": ("a: .nan", "finite", 1),
    "set": ("a: !!set {b}", "only strings", 1),
    "bytes": ("a: !!binary eA==", "only strings", 1),
    "object": ("a: !!python/object:os.x {}", "invalid YAML", 1),
    "control character": ("a: \x01", "unreadable character", None),
    "too deep": (DEEP, "nested", 1),
    "far too deep": ("[" * 5000, "nested too deeply", None),
    "bad number": ("a: !!int x", "unreadable", None),
}


@pytest.mark.parametrize("case", BAD_YAML)
def test_bad_yaml(case):
    text, want_reason, want_line = BAD_YAML[case]
    with pytest.raises(PlainProblem) as caught:
        parse_yaml(text)
    assert want_reason in caught.value.reason
    if want_line is not None:
        assert abs((caught.value.line or 0) - want_line) <= 1


def test_yaml_values_and_lines():
    document = parse_yaml("a: 2024-01-01\nb:\n  - c: 1\n    d: x\n")
    assert document.value == {"a": "2024-01-01", "b": [{"c": 1, "d": "x"}]}
    assert document.lines == {("a",): 1, ("b",): 2, ("b", "0", "c"): 3, ("b", "0", "d"): 4}


def test_yaml_merge_keys_are_understood():
    document = parse_yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  p: 3\n")
    assert document.value == {"a": {"p": 1, "q": 2}, "b": {"p": 3, "q": 2}}


def test_empty_yaml():
    assert parse_yaml("# nothing\n").value is None


BAD_JSON = {
    "syntax": (b'{"a": }', "invalid JSON: Expecting value (column 7)"),
    "byte-order mark": (b"\xef\xbb\xbf{}", "invalid JSON"),
    "not utf-8": (b'"\xff"', "not UTF-8"),
    "duplicate key": (b'{"a": 1, "a": 2}', "same key twice"),
    "nan": (b"[NaN]", "finite"),
    "too large": (b"[1e400]", "finite"),
    "many digits": (b"1" * 5000, "invalid JSON"),
    "too deep": (DEEP.encode(), "nested"),
    "far too deep": (b"[" * 100_000, "nested too deeply"),
    "trailing": (b"{} {}", "Extra data"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(case):
    content, want = BAD_JSON[case]
    with pytest.raises(PlainProblem) as caught:
        parse_json(content)
    assert want in caught.value.reason


def test_json():
    assert parse_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


SECRET = "hidden-canary"
INNER = object_of({"path": TEXT, "mount": nullable(TEXT)}, "path")
OPEN = {
    "type": "object",
    MISSPELT: False,
    "properties": {"id": TEXT, "environment": {"type": ["object", "null"]}},
    "required": ["id"],
}
WHOLE = {"type": "integer"}

CASES = {
    "a text": (TEXT, "x", []),
    "blank": (TEXT, " \u2003", ["it must be a non-empty string"]),
    "a number for a text": (TEXT, 1, ["it must be a non-empty string: put it in quotes"]),
    "null": (nullable(TEXT), None, []),
    "true is no number": (
        TEXT_OR_NUMBER,
        True,
        ["it must be a non-empty string or a number: it is a boolean; put it in quotes"],
    ),
    "a number in quotes": (WHOLE, " 3", ["it must be an integer: write the number without quotes"]),
    "a word for a number": (WHOLE, "x", ["it must be an integer"]),
    "a mapping for a list": (
        PATTERNS,
        {"a": 1},
        ["it must be an array: write one item per line, each after '- '"],
    ),
    "nan": (NON_NEGATIVE, float("nan"), ["it must be a non-negative number"]),
    "infinite": (TEXT_OR_NUMBER, float("inf"), ["it must be a non-empty string or a number"]),
    "beyond a float": (NON_NEGATIVE, 10**400, ["it must be a non-negative number"]),
    "1.0 is no integer": (WHOLE, 1.0, ["it must be an integer"]),
    "true is no integer": (WHOLE, True, ["it must be an integer"]),
    "an integer": (WHOLE, 1, []),
    "item of a list": (COMMAND, ["x", ""], ["it[1] must be a non-empty string"]),
    "tuple": (PATTERNS, ("x",), []),
    "no object": (INNER, [], ["it must be an object"]),
    "missing": (INNER, {}, ["it.path is required"]),
    "unknown": (INNER, {"path": "p", "b": 1, "a": 1}, ["it has unknown field(s): a, b"]),
    "misspelt for a missing one": (
        INNER, {"pathh": "p"}, ["it has unknown field(s): pathh, did you mean 'path'?"]),
    "below": (
        object_of({"assets": {"type": "array", "items": INNER}}),
        {"assets": [{"path": "p"}, {"path": " ", "mont": 1}]},
        ["it.assets[1].path must be a non-empty string",
         "it.assets[1] has unknown field(s): mont, did you mean 'mount'?"]),
    "open": (OPEN, {"id": "a", "note": 1}, []),
    "open, near a missing one": (
        OPEN, {"idd": "a", "environmentt": {}},
        ["it: unknown key 'idd', did you mean 'id'?",
         "it: unknown key 'environmentt', did you mean 'environment'?"]),
    "open, near one that is there": (OPEN, {"id": "a", "idd": 1}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case):
    schema, value, want = CASES[case]
    assert list(Shape(schema).problems("it", value)) == want


@pytest.mark.parametrize("value", [SECRET, [SECRET], {SECRET: 1}, {"path": [SECRET]}, {"path": ""}])
@pytest.mark.parametrize("schema", [INNER, COMMAND, WHOLE, {"enum": ["a"]}, {"const": 1}])
def test_no_message_shows_a_value(schema, value):
    keys = json.dumps(list(value)) if isinstance(value, dict) else ""
    said = "".join(Shape(schema).problems("it", value))
    assert SECRET not in said or SECRET in keys


def test_a_hostile_list_says_so_much_at_most():
    assert len(Shape(PATTERNS).defects([0] * 1_000_000)) == MAX_DEFECTS
