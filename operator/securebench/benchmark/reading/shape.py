"""Values checked by JSON Schema: each defect has a path and the words that people read.

Schemas are ours; values may be hostile. They are no deeper than ``plain.MAX_DEPTH``, and no
message shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from securebench.errors import InvariantViolationError
from securebench.json_values import MISSPELT, Schema, is_number
from securebench.text import did_you_mean, near_words

MAX_DEFECTS = 100
"""Of one value; a hostile list has millions."""

UNKNOWN: Final = "additionalProperties"
REQUIRED: Final = "required"

_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?", re.ASCII)

_TYPES: Final[Mapping[str, str]] = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


class SchemaDefect(NamedTuple):
    """What is wrong at one place.

    Attributes:
        path: Keys and positions from the root; of a missing, misspelt or unknown key its own, of
            several unknown ones the first.
        keyword: Keyword of JSON Schema, or ``MISSPELT``.
        words: What is to be said behind the place's name; of unknown keys "field(s): a, b" with
            the nearest known ones; of a misspelt key the known one alone.
    """

    path: tuple[str | int, ...]
    keyword: str
    words: str

    @property
    def key(self) -> tuple[str, ...]:
        """The path as lines of YAML are found."""
        return tuple(map(str, self.path))

    def said_of(self, name: str, *, unknown: str = "has unknown") -> str:
        """Return the message about a value of that name.

        Args:
            name: Name of the value.
            unknown: What goes before "field(s)" where keys are unknown.
        """
        path = self.path[:-1] if self.keyword in {MISSPELT, UNKNOWN} else self.path
        parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        place = "".join((name, *parts))
        if self.keyword == MISSPELT:
            return f"{place}: unknown key {self.path[-1]!r}, did you mean {self.words!r}?"
        return f"{place} {f'{unknown} ' if self.keyword == UNKNOWN else ''}{self.words}"


class Shape:
    """A schema with the validator that is made of it once."""

    def __init__(self, schema: Schema) -> None:
        _require_enforced(schema)
        self.schema = schema
        self._validator: Validator = _Validator(schema)

    def defects(self, value: object) -> list[SchemaDefect]:
        """Return what is wrong with a value, each once, in the order of the schema."""
        errors = islice(self._validator.iter_errors(cast("Any", value)), MAX_DEFECTS)
        return list(dict.fromkeys(map(_defect, errors)))

    def problems(self, name: str, value: object) -> Iterator[str]:
        """Yield a message per defect."""
        for defect in self.defects(value):
            yield defect.said_of(name)


def _require_enforced(schema: object) -> None:
    """Refuse what would be published and not checked: a schema of keys without a name."""
    if isinstance(schema, Mapping):
        if not isinstance(schema.get(UNKNOWN, True), bool):
            raise InvariantViolationError(f"{UNKNOWN} of a schema must be true or false")
        schema = list(schema.values())
    if isinstance(schema, list | tuple):
        for part in schema:
            _require_enforced(part)


def _defect(error: ValidationError) -> SchemaDefect:
    keyword = str(error.validator)
    own = keyword in {UNKNOWN, REQUIRED, MISSPELT}
    words = error.message if own else _words(cast("Schema", error.schema), error.instance)
    return SchemaDefect(tuple(error.absolute_path), keyword, words)


def _words(schema: Schema, value: object) -> str:
    """Return what a value must be, with the remedy where its form alone is wrong."""
    wanted = _wanted(schema)
    if (
        "enum" in schema
        and "description" not in schema
        and isinstance(value, str)
        and not value.strip()
    ):
        return f"must be a non-empty string, {wanted}"
    return f"must be {wanted}{_remedy(_kinds(schema), value)}"


def _remedy(kinds: Collection[str], value: object) -> str:
    """Return what to write where a value has the right content in the wrong form."""
    if isinstance(value, bool) and "string" in kinds:
        return ": it is a boolean; put it in quotes"
    if is_number(value) and "string" in kinds and "number" not in kinds:
        return ": put it in quotes"
    is_numeric = bool({"integer", "number"} & {*kinds}) and "string" not in kinds
    if is_numeric and isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return ": write the number without quotes"
    if isinstance(value, Mapping) and "array" in kinds:
        return ": write one item per line, each after '- '"
    return ""


def _kinds(schema: Schema) -> list[str]:
    kind = schema.get("type", [])
    return [str(each) for each in kind] if isinstance(kind, list) else [str(kind)]


def _wanted(schema: Schema) -> str:
    if "description" in schema:
        return str(schema["description"])
    if "const" in schema:
        return repr(schema["const"])
    known = schema.get("enum")
    if isinstance(known, Sequence):
        return f"one of {', '.join(map(str, known))}"
    kind = schema.get("type")
    return _TYPES[str(kind[0] if isinstance(kind, list) else kind)]


def _properties(
    validator: Validator, properties: Mapping[str, Schema], value: object, _schema: Schema
) -> Iterator[ValidationError]:
    if isinstance(value, Mapping):
        for name, schema in properties.items():
            if name in value:
                yield from _below(validator, schema, ((name, value[name]),))


def _items(
    validator: Validator, schema: Schema, value: object, _schema: Schema
) -> Iterator[ValidationError]:
    if isinstance(value, list | tuple):
        yield from _below(validator, schema, enumerate(value))


_made: dict[int, Validator] = {}
"""Validators of parts by the identity of their schema, which they keep alive."""


def _below(
    validator: Validator, schema: Schema, children: Iterable[tuple[str | int, object]]
) -> Iterator[ValidationError]:
    """Yield the errors of children; jsonschema's own way makes a validator for each of them."""
    below = _made.get(id(schema)) or _made.setdefault(id(schema), validator.evolve(schema=schema))
    for place, child in children:
        for error in below.iter_errors(cast("Any", child)):
            error.path.appendleft(place)
            yield error


def _required(
    _validator: Validator, names: Sequence[str], value: object, schema: Schema
) -> Iterator[ValidationError]:
    if not isinstance(value, Mapping):
        return
    missing = [name for name in names if name not in value]
    misspelt = _misspelt(value, schema, missing).values() if missing else ()
    for name in missing:
        if name not in misspelt:
            yield ValidationError("is required", path=(name,))


def _no_unknown_keys(
    _validator: Validator, others: object, value: object, schema: Schema
) -> Iterator[ValidationError]:
    if others is False and isinstance(value, Mapping):
        known = _known(schema)
        unknown = [str(key) for key in value if key not in known]
        if unknown:
            first, unknown = unknown[0], sorted(unknown)
            words = f"field(s): {', '.join(unknown)}{did_you_mean(unknown, known)}"
            yield ValidationError(words, path=(first,))


def _no_misspelt_keys(
    _validator: Validator, _others: object, value: object, schema: Schema
) -> Iterator[ValidationError]:
    if isinstance(value, Mapping):
        missing = [name for name in _known(schema) if name not in value]
        for key, word in _misspelt(value, schema, missing).items():
            yield ValidationError(word, path=(key,))


def _misspelt(
    value: Mapping[str, object], schema: Schema, missing: Sequence[str]
) -> Mapping[str, str]:
    """Return the missing keys that unknown ones stand for, where those are refused."""
    if schema.get(UNKNOWN) is not False and MISSPELT not in schema:
        return {}
    known = _known(schema)
    return near_words([str(key) for key in value if key not in known], missing)


def _known(schema: Schema) -> Mapping[str, object]:
    return cast("Mapping[str, object]", schema.get("properties", {}))


_extend: Callable[..., type[Validator]] = extend
_Validator = _extend(
    Draft202012Validator,
    {
        "properties": _properties,
        "items": _items,
        REQUIRED: _required,
        UNKNOWN: _no_unknown_keys,
        MISSPELT: _no_misspelt_keys,
    },
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "array": lambda _checker, value: isinstance(value, list | tuple),
            "integer": lambda _checker, value: type(value) is int,
            "number": lambda _checker, value: is_number(value),
            "object": lambda _checker, value: isinstance(value, Mapping),
        }
    ),
)
"""Draft 2020-12 for values of Python: 1.0 is no integer, as everywhere in packs."""
