"""Rules for the fields of rows: one definition gives the check, its message and the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from securebench.benchmark.resources import Lane
from securebench.core.spelling import meant, near_words

TEXT_SCHEMA: Mapping[str, object] = {"type": "string", "pattern": "\\S"}

Problems = Iterator[str]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What a value must be.

    Args:
        schema: The rule as JSON Schema.
        problems: Yields one message per defect; the argument is the value's name. Messages
            name keys and positions, never values.
    """

    schema: Mapping[str, object]
    problems: Callable[[str, object], Problems]


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an object."""

    name: str
    rule: FieldRule
    required: bool = False
    lane: Lane = Lane.PUBLIC


@dataclass(frozen=True, slots=True)
class FieldSection:
    """An object with known keys.

    Args:
        name: As messages show it.
        fields: In the order of the contract.
        closed: Whether other keys are refused; a message then names the nearest known one.
    """

    name: str
    fields: Sequence[Field] = field(default=())
    closed: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The known keys."""
        return frozenset(known.name for known in self.fields)

    def problems(self, value: Mapping[str, object]) -> Problems:
        """Yield a message per defect: missing and wrong keys first, then unknown ones."""
        yield from self.problems_at(self.name, value)

    def problems_at(self, name: str, value: Mapping[str, object]) -> Problems:
        """Yield the messages of ``problems`` under another name."""
        unknown = sorted(value.keys() - self.names) if self.closed else []
        misspelt = set(near_words(unknown, self.names).values())
        for known in self.fields:
            if known.name in value:
                yield from known.rule.problems(f"{name}.{known.name}", value[known.name])
            elif known.required and known.name not in misspelt:
                yield f"{name}.{known.name} is required"
        if unknown:
            yield f"{name} has unknown field(s): {', '.join(unknown)}{meant(unknown, self.names)}"

    def schema(self) -> dict[str, object]:
        """Return the section as JSON Schema."""
        return {
            "type": "object",
            "properties": {known.name: dict(known.rule.schema) for known in self.fields},
            "required": sorted(known.name for known in self.fields if known.required),
            "additionalProperties": not self.closed,
        }


def is_text(value: object) -> bool:
    """Return whether the value is a string with a non-blank character."""
    return isinstance(value, str) and bool(value.strip())


def is_number(value: object) -> bool:
    """Return whether the value is a finite int or float and no bool."""
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def is_positive(value: object) -> bool:
    """Return whether the value is a number above 0."""
    return is_number(value) and isinstance(value, int | float) and value > 0


def is_non_negative(value: object) -> bool:
    """Return whether the value is a number and at least 0."""
    return is_number(value) and isinstance(value, int | float) and value >= 0


def first_limit(limits: Iterable[object], default: float) -> float:
    """Return the first number of some limits in seconds, or the default."""
    for limit in limits:
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return default


def is_text_list(value: object) -> bool:
    """Return whether the value is a non-empty list of non-empty strings."""
    return isinstance(value, list) and bool(value) and all(map(is_text, value))


def simple(schema: Mapping[str, object], holds: Callable[[object], bool], wanted: str) -> FieldRule:
    """Return a rule with one message: ``<name> must be <wanted>``."""

    def problems(name: str, value: object) -> Problems:
        if not holds(value):
            yield f"{name} must be {wanted}"

    return FieldRule(schema, problems)


def object_rule(section: FieldSection) -> FieldRule:
    """Return the rule that a value is an object with the keys of a section."""

    def problems(name: str, value: object) -> Problems:
        if isinstance(value, Mapping):
            yield from section.problems_at(name, value)
        else:
            yield f"{name} must be an object"

    return FieldRule(section.schema(), problems)


def text_items(items: object, name: str, wanted: str = "a non-empty string") -> Problems:
    """Yield a message for every item of a list that is no non-empty string."""
    if isinstance(items, list):
        for index, item in enumerate(items):
            if not is_text(item):
                yield f"{name}[{index}] must be {wanted}"


def _pattern_list_problems(name: str, value: object) -> Problems:
    if not isinstance(value, list):
        yield f"{name} must be an array"
    yield from text_items(value, name)


TEXT = simple(TEXT_SCHEMA, is_text, "a non-empty string")
STRING = simple({"type": "string"}, lambda value: isinstance(value, str), "a string")
OBJECT = simple({"type": "object"}, lambda value: isinstance(value, Mapping), "an object")
ANYTHING = FieldRule({}, lambda _name, _value: iter(()))
TEXT_OR_OBJECT = simple(
    {"anyOf": [TEXT_SCHEMA, {"type": "object"}]},
    lambda value: is_text(value) or isinstance(value, Mapping),
    "a non-empty string or an object",
)
NON_NEGATIVE = simple({"type": "number", "minimum": 0}, is_non_negative, "a non-negative number")
POSITIVE = simple({"type": "number", "exclusiveMinimum": 0}, is_positive, "a positive number")
COMMAND = simple(
    {"anyOf": [TEXT_SCHEMA, {"type": "array", "minItems": 1, "items": TEXT_SCHEMA}]},
    lambda value: is_text(value) or is_text_list(value),
    "a non-empty string or a non-empty array of non-empty strings",
)
PATTERNS = FieldRule({"type": "array", "items": TEXT_SCHEMA}, _pattern_list_problems)
