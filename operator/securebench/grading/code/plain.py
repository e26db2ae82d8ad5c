"""What stands for itself in candidate and tests: data, named types and exceptions, safe modules."""

from __future__ import annotations

import binascii
import collections
import datetime as dt
import importlib
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

from .frames import MalformedError

MODULE = "securebench_candidate"
"""Name of the candidate's module on both sides."""

SAFE_MODULES = frozenset(
    (
        *("abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal"),
        *("enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math"),
        *("numbers", "operator", "random", "re", "statistics", "string", "textwrap", "typing"),
    )
)
"""Modules that stand for themselves on both sides. They can do nothing to the process."""

ERROR_MODULES = SAFE_MODULES | {"binascii", "builtins", "queue", "struct", "unicodedata", "zlib"}
"""Modules whose exception classes stand for themselves on both sides.

Not asyncio: its CancelledError ends tasks of the tests without a word.
"""


class Form(NamedTuple):
    """How values of one exact type are taken apart and put together.

    Attributes:
        kind: The type.
        parts: Returns what ``build`` takes, values again; None means that this value is no data.
        build: Makes the value; of a mutable container an empty one, its items follow the parts.
        head: How many parts a mutable container has, None for everything else.
    """

    kind: type
    parts: Callable[[Any], Any]
    build: Callable[..., object]
    head: int | None = None


def _read(*names: str) -> Callable[[Any], Sequence[object]]:
    return lambda value: [getattr(value, name) for name in names]


def _without_zone(value: Any) -> Sequence[object] | None:
    return None if value.tzinfo is not None else [value.isoformat(), value.fold]


def _time(kind: Any) -> Callable[[Any, Any], object]:
    return lambda text, fold: kind.fromisoformat(text).replace(fold=fold)


def _fraction(*parts: Any) -> Fraction:
    """Of numbers only: a text may ask for a power that takes hours."""
    return Fraction(*map(operator.index, parts))


_BOUNDS = _read("start", "stop", "step")
_DAYS = _read("days", "seconds", "microseconds")
FORMS: dict[str, Form] = {
    "t": Form(tuple, tuple, lambda *items: items),
    "f": Form(frozenset, tuple, lambda *items: frozenset(items)),
    "i": Form(int, lambda value: [format(value, "x")], lambda text: int(text, 16)),
    "u": Form(
        str,
        lambda value: [value.encode("utf-8", "surrogatepass").hex()],
        lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    ),
    "b": Form(bytes, lambda value: [binascii.b2a_base64(value).decode()], binascii.a2b_base64),
    "j": Form(complex, _read("real", "imag"), complex),
    "r": Form(range, _BOUNDS, range),
    "sl": Form(slice, _BOUNDS, slice),
    "e": Form(type(...), _read(), lambda: ...),
    "ni": Form(type(NotImplemented), _read(), lambda: NotImplemented),
    "vk": Form(type({}.keys()), tuple, lambda *items: dict.fromkeys(items).keys()),
    "vv": Form(type({}.values()), tuple, lambda *items: dict(enumerate(items)).values()),
    "vi": Form(type({}.items()), tuple, lambda *items: dict(items).items()),
    "D": Form(Decimal, lambda value: [str(value)], Decimal),
    "F": Form(Fraction, _read("numerator", "denominator"), _fraction),
    "td": Form(dt.timedelta, _DAYS, dt.timedelta),
    "da": Form(dt.date, lambda value: [value.isoformat()], dt.date.fromisoformat),
    "dt": Form(dt.datetime, _without_zone, _time(dt.datetime)),
    "ti": Form(dt.time, _without_zone, _time(dt.time)),
    "l": Form(list, _read(), list, 0),
    "d": Form(dict, _read(), dict, 0),
    "s": Form(set, _read(), set, 0),
    "B": Form(bytearray, _read(), bytearray, 0),
    "od": Form(collections.OrderedDict, _read(), collections.OrderedDict, 0),
    "ct": Form(collections.Counter, _read(), collections.Counter, 0),
    "dq": Form(collections.deque, _read("maxlen"), lambda size: collections.deque(maxlen=size), 1),
    "dd": Form(collections.defaultdict, _read("default_factory"), collections.defaultdict, 1),
}
"""By tag. Numbers and texts are here for what JSON cannot hold."""

TAGS = {form.kind: tag for tag, form in FORMS.items()}
MUTABLE = frozenset(form.kind for form in FORMS.values() if form.head is not None)
TYPES = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (*TAGS, bool, float, object, type, dt.timezone)
}
"""Types that stand for themselves beside exception classes."""


def contents(value: Any) -> list[Any] | None:
    """Return the items of a mutable container, None for everything else."""
    if type(value) not in MUTABLE:
        return None
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


def fill(target: Any, items: list[Any]) -> None:
    """Replace the contents of a mutable container."""
    if type(target) not in MUTABLE:
        raise MalformedError("new contents for a value that cannot change")
    target.clear()
    if isinstance(target, dict):
        half = len(items) // 2
        for key, item in zip(items[:half], items[half:]):  # noqa: B905  # Python 3.8
            target[key] = item
    else:
        (target.update if isinstance(target, set) else target.extend)(items)


def type_name(kind: type) -> list[str] | None:
    """Return module and name of a type that stands for itself on both sides, else None."""
    module, name = kind.__module__, kind.__qualname__
    return [module, name] if named_type(module, name) is kind else None


def named_type(module: object, name: object) -> type | None:
    """Return the type that a name stands for; None when it stands for none."""
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if (module, name) in TYPES:
        return TYPES[module, name]
    if module.partition(".")[0] not in ERROR_MODULES:
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and is_error(found) else None


def is_error(kind: object) -> bool:
    """Tell whether something is an exception class."""
    return isinstance(kind, type) and issubclass(kind, BaseException)


def safe_module(name: object) -> ModuleType | None:
    """Return a module that stands for itself on both sides, or None."""
    if isinstance(name, str) and name in SAFE_MODULES:
        return importlib.import_module(name)
    return None
