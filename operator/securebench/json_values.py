"""Typed access to values of untrusted JSON, and JSON Schemas for what authors write.

Schemas are only data; ``benchmark.reading.shape`` validates. A ``description`` ends the sentence
"<name> must be ..."; without one ``enum``, ``const`` or ``type`` ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import float_info
from typing import Final


def object_in(value: object) -> Mapping[str, object]:
    """Return a value where it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text_in(value: object) -> str:
    """Return a value where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def object_at(values: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return the object at a key, else an empty one."""
    return object_in(values.get(key))


def text_at(values: Mapping[str, object], key: str) -> str:
    """Return the text at a key, else an empty one."""
    return text_in(values.get(key))


def objects_at(values: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    """Return the items of the list at a key, an empty object for each that is none."""
    value = values.get(key)
    return [object_in(item) for item in value] if isinstance(value, list) else []


def number_at(values: Mapping[str, object], key: str) -> float | None:
    """Return the number at a key, else None."""
    return as_number(values.get(key))


def as_number(value: object) -> float | None:
    """Return a number, or None for anything else and for an integer that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


Schema = Mapping[str, object]

TEXT: Final[Schema] = {"type": "string", "pattern": "\\S", "description": "a non-empty string"}

STRING: Final[Schema] = {"type": "string"}

OBJECT: Final[Schema] = {"type": "object"}

BOOLEAN: Final[Schema] = {"type": "boolean"}

ANYTHING: Final[Schema] = {}

TEXT_OR_OBJECT: Final[Schema] = {
    "type": ["string", "object"],
    "pattern": "\\S",
    "description": "a non-empty string or an object",
}

TEXT_OR_NUMBER: Final[Schema] = {
    "type": ["string", "number"],
    "pattern": "\\S",
    "description": "a non-empty string or a number",
}

NON_NEGATIVE: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "description": "a non-negative number",
}

MAX_SECONDS: Final = 31_536_000
"""A year. Twice it and more still fits the deadline of a Pod, which has 32 bits."""

SECONDS: Final[Schema] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": MAX_SECONDS,
    "description": f"a positive number of seconds, at most {MAX_SECONDS}",
}

COMMAND: Final[Schema] = {
    "type": ["string", "array"],
    "pattern": "\\S",
    "minItems": 1,
    "items": TEXT,
    "description": "a non-empty string or a non-empty array of non-empty strings",
}

PATTERNS: Final[Schema] = {"type": "array", "items": TEXT}

MISSPELT: Final = "x-misspelt-keys"
"""Keyword of an open object: false refuses unknown keys that are near a known one not there."""

NO_DEFAULT: Final = object()


def described(schema: Schema, about: str, example: object, default: object = NO_DEFAULT) -> Schema:
    """Return a schema with what authors read about it, in editors and in the reference.

    Args:
        schema: What a value must be; its ``description`` belongs to messages.
        about: What the value means; Markdown.
        example: A value that holds.
        default: What holds where the key is missing.
    """
    told = {} if default is NO_DEFAULT else {"default": default}
    return {**schema, "markdownDescription": about, "examples": [example], **told}


def object_of(properties: Mapping[str, Schema], *required: str) -> Schema:
    """Return the schema of an object with known keys only."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def nullable(schema: Schema) -> Schema:
    """Return a schema of one type with null beside it."""
    return {**schema, "type": [schema["type"], "null"]}


def non_empty_list(items: Schema) -> Schema:
    """Return the schema of a list with at least one item."""
    return {"type": "array", "minItems": 1, "items": items, "description": "a non-empty array"}


def is_text(value: object) -> bool:
    """Return whether the value is a string with a non-blank character."""
    return isinstance(value, str) and bool(value.strip())


def is_number(value: object) -> bool:
    """Return whether the value is a number that a float can hold, and no bool."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= float_info.max
    )


def is_positive(value: object) -> bool:
    """Return whether the value is a number above 0."""
    return is_number(value) and isinstance(value, int | float) and value > 0


def is_time_limit(value: object) -> bool:
    """Return whether the value is what ``SECONDS`` accepts."""
    return is_positive(value) and isinstance(value, int | float) and value <= MAX_SECONDS


def first_limit(limits: Iterable[object], default: float) -> float:
    """Return the first number of some limits in seconds, or the default."""
    for limit in limits:
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return default
