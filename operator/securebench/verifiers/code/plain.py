"""Values of the standard library that cross as data, beside the builtin types.

A value becomes a list of plainer values and is built anew, always as exactly its own type.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

MODULE = "securebench_candidate"
"""Name of the candidate's module on both sides."""

FLAT = "flat"
"""Beside the streams: says which classes of the candidate cross as a builtin type."""

SAFE_MODULES = frozenset(
    (
        *("abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal"),
        *("enum", "fractions", "functools", "hashlib", "heapq", "itertools", "json", "math"),
        *("numbers", "operator", "random", "re", "statistics", "string", "textwrap", "typing"),
    )
)
"""Modules that stand for themselves on both sides. They can do nothing to the process."""

ERROR_MODULES = SAFE_MODULES | {"binascii", "queue", "struct", "unicodedata", "zlib"}
"""Modules whose exception classes stand for themselves on both sides.

Not asyncio: its CancelledError ends tasks of the tests without a word.
"""

BUILTIN_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray),
        *(list, tuple, set, frozenset, dict, range, slice, object, type),
    )
}
DATA_TYPES = {
    "collections": ("deque", "OrderedDict", "Counter", "defaultdict"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
}


def type_name(kind: type) -> list[str] | None:
    """Return module and name of a type that stands for itself on both sides, else None."""
    module, name = kind.__module__, kind.__qualname__
    known = isinstance(module, str) and isinstance(name, str)
    return [module, name] if known and named_type(module, name) is kind else None


def named_type(module: object, name: object) -> type | None:
    """Return the type that a name stands for; None when it stands for none."""
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if module == "builtins":
        found = BUILTIN_TYPES.get(name) or vars(builtins).get(name)
        is_known = name in BUILTIN_TYPES or is_error(found)
        return found if is_known else None
    is_data = name in DATA_TYPES.get(module, ())
    root = module.partition(".")[0]
    if not is_data and root not in ERROR_MODULES:
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if is_data or is_error(found) else None


def is_error(kind: object) -> bool:
    """Tell whether something is an exception class."""
    return isinstance(kind, type) and issubclass(kind, BaseException)


def safe_module(name: object) -> ModuleType | None:
    """Return a module that stands for itself on both sides, or None."""
    if isinstance(name, str) and name in SAFE_MODULES:
        return importlib.import_module(name)
    return None


class Form(NamedTuple):
    """How values of a type are taken apart; its constructor puts them together."""

    parts: Callable[..., Sequence[object] | None]
    build: Callable[..., object]


def _numbers(*names: str) -> Callable[[object], Sequence[object] | None]:
    return lambda value: [getattr(value, name) for name in names]


def _timed(*names: str) -> Callable[[object], Sequence[object] | None]:
    """Return the parts of a time without a zone; others are no plain data."""

    def parts(value: object) -> Sequence[object] | None:
        if getattr(value, "tzinfo", None) is not None:
            return None
        return [getattr(value, name) for name in names]

    return parts


def _with_fold(kind: type, *parts: object) -> object:
    *head, fold = parts
    return kind(*head, fold=fold)


def _new(kind: type, *parts: object) -> object:
    return kind(*parts)


_CLOCK = ("hour", "minute", "second", "microsecond", "fold")
FORMS: dict[tuple[str, str], Form] = {
    ("decimal", "Decimal"): Form(lambda value: [str(value)], _new),
    ("fractions", "Fraction"): Form(_numbers("numerator", "denominator"), _new),
    ("datetime", "date"): Form(_numbers("year", "month", "day"), _new),
    ("datetime", "timedelta"): Form(_numbers("days", "seconds", "microseconds"), _new),
    ("datetime", "time"): Form(_timed(*_CLOCK), _with_fold),
    ("datetime", "datetime"): Form(_timed("year", "month", "day", *_CLOCK), _with_fold),
}


def taken_apart(value: object) -> tuple[str, str, Sequence[object]] | None:
    """Return module, type and parts of a value of one of these types, else None."""
    kind: type[object] = type(value)
    form = FORMS.get((kind.__module__, kind.__qualname__))
    if form is None or named_type(kind.__module__, kind.__qualname__) is not kind:
        return None
    parts = form.parts(value)
    return None if parts is None else (kind.__module__, kind.__qualname__, parts)


def put_together(module: object, name: object, parts: Sequence[object]) -> object:
    """Build a value from its parts.

    Raises:
        LookupError: No such type.
        ValueError, TypeError, ArithmeticError: No such value.
    """
    kind = named_type(module, name)
    form = FORMS[str(module), str(name)]
    if kind is None:
        raise LookupError(name)
    return form.build(kind, *parts)
