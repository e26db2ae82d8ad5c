"""Modules, types and exception classes that stand for themselves in candidate and tests."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import importlib
from typing import TYPE_CHECKING

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

ERROR_MODULES = SAFE_MODULES | {"binascii", "builtins", "queue", "struct", "unicodedata", "zlib"}
"""Modules whose exception classes stand for themselves on both sides.

Not asyncio: its CancelledError ends tasks of the tests without a word.
"""

TYPES: dict[tuple[str, str], type] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, object, type),
        *(list, tuple, set, frozenset, dict, range, slice),
        *(collections.deque, collections.OrderedDict, collections.Counter),
        *(collections.defaultdict, decimal.Decimal, fractions.Fraction, dt.date),
        *(dt.datetime, dt.time, dt.timedelta, dt.timezone),
    )
}


def type_name(kind: type) -> list[str] | None:
    """Return module and name of a type that stands for itself on both sides, else None."""
    module, name = kind.__module__, kind.__qualname__
    return [module, name] if named_type(module, name) is kind else None


def named_type(module: object, name: object) -> type | None:
    """Return the type that a name stands for; None when it stands for none."""
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    found: object = TYPES.get((module, name))
    if found is None and module.partition(".")[0] in ERROR_MODULES:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError:
            return None
        found = found if is_error(found) else None
    return found if isinstance(found, type) else None


def is_error(kind: object) -> bool:
    """Tell whether something is an exception class."""
    return isinstance(kind, type) and issubclass(kind, BaseException)


def safe_module(name: object) -> ModuleType | None:
    """Return a module that stands for itself on both sides, or None."""
    if isinstance(name, str) and name in SAFE_MODULES:
        return importlib.import_module(name)
    return None
