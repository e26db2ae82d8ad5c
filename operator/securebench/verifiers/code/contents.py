"""What values are made of: the forms of scalars, the items of mutable containers."""

from __future__ import annotations

import binascii
import collections
from collections.abc import Sequence
from operator import is_
from typing import Any

from .frames import MalformedError

INTEGER_LIMIT = 1 << 63
"""Greater numbers are written in hexadecimal: decimal takes quadratic time."""


def text(value: Any) -> object:
    """Return the form of a text.

    Surrogates have one of their own: JSON would join two of them to one character.
    """
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return ["u", value.encode("utf-8", "surrogatepass").hex()]
    return value


def integer(value: Any) -> object:
    """Return the form of a number."""
    if -INTEGER_LIMIT < value < INTEGER_LIMIT:
        return value
    return ["i", format(value, "x")]


def base64(value: bytes) -> str:
    """Return the form of bytes."""
    return binascii.b2a_base64(value, newline=False).decode("ascii")


def contents(value: Any) -> Sequence[object] | None:
    """Return the items of a mutable container, None for everything else."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, set, collections.deque)):
        return list(value)
    return None


def is_same(before: Sequence[object], now: Sequence[object]) -> bool:
    """Tell whether these are the very same items."""
    if isinstance(before, bytes):
        return before == now
    return len(before) == len(now) and all(map(is_, before, now))


def fill(target: Any, items: list[Any]) -> None:
    """Replace the contents of a mutable container."""
    if isinstance(target, bytearray):
        target[:] = binascii.a2b_base64(items[0])
        return
    if not isinstance(target, (list, dict, set, collections.deque)):
        raise MalformedError("new contents for a value that cannot change")
    target.clear()
    if isinstance(target, dict):
        for key, item in zip(items[::2], items[1::2]):  # noqa: B905  # Python 3.8
            target[key] = item
    elif isinstance(target, set):
        target.update(items)
    else:
        target.extend(items)
