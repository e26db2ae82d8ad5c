import json

import pytest

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
    "true is no number": (TEXT_OR_NUMBER, True, ["it must be a non-empty string or a number"]),
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
