"""Typed access to values of untrusted JSON."""

from __future__ import annotations

from collections.abc import Mapping


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
