"""What stands for itself in candidate and tests: data, and names of Python's own modules."""

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

NAMED_MODULES = SAFE_MODULES | {"binascii", "builtins", "queue", "struct", "unicodedata", "zlib"}
"""Modules whose exceptions the tests catch by name, and whose functions they pass by name.

Not asyncio: its CancelledError ends tasks of the tests without a word.
"""

CONTROL = frozenset(
    ("AssertionError", "GeneratorExit", "KeyboardInterrupt", "StopAsyncIteration", "StopIteration")
) | {"BaseExceptionGroup", "ExceptionGroup", "SystemExit"}
"""Exceptions by which tests fail, and by which Python ends loops and programs: none of the
candidate's is one of these."""


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


def _moment(value: Any) -> Sequence[object] | None:
    """Of a zone with fixed offset: the others differ from one image to the next."""
    is_plain = value.tzinfo is None or type(value.tzinfo) is dt.timezone
    return [value.isoformat(), value.fold] if is_plain else None


def _time(kind: Any) -> Callable[[Any, Any], object]:
    return lambda text, fold: kind.fromisoformat(text).replace(fold=fold)


def _fraction(*parts: Any) -> Fraction:
    """Of numbers only: a text may ask for a power that takes hours."""
    return Fraction(*map(operator.index, parts))


def _factory(value: Any) -> Sequence[object] | None:
    """Return the name of the factory; with one that makes no plain data it is no data either."""
    name = getattr(value.default_factory, "__name__", "")
    return [name] if FACTORIES.get(name) is value.default_factory else None


def _dictionary(name: str) -> object:
    return collections.defaultdict(FACTORIES[name])


FACTORIES: dict[str, Any] = {
    "": None, "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set,
}  # fmt: skip
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
    "vk": Form(type({}.keys()), tuple, lambda *items: dict.fromkeys(items).keys()),
    "vv": Form(type({}.values()), tuple, lambda *items: dict(enumerate(items)).values()),
    "vi": Form(type({}.items()), tuple, lambda *items: dict(items).items()),
    "D": Form(Decimal, lambda value: [str(value)], Decimal),
    "F": Form(Fraction, _read("numerator", "denominator"), _fraction),
    "td": Form(dt.timedelta, _DAYS, dt.timedelta),
    "da": Form(dt.date, lambda value: [value.isoformat()], dt.date.fromisoformat),
    "dt": Form(dt.datetime, _moment, _time(dt.datetime)),
    "ti": Form(dt.time, _moment, _time(dt.time)),
    "l": Form(list, _read(), list, 0),
    "d": Form(dict, _read(), dict, 0),
    "s": Form(set, _read(), set, 0),
    "B": Form(bytearray, _read(), bytearray, 0),
    "od": Form(collections.OrderedDict, _read(), collections.OrderedDict, 0),
    "ct": Form(collections.Counter, _read(), collections.Counter, 0),
    "dq": Form(collections.deque, _read("maxlen"), lambda size: collections.deque(maxlen=size), 1),
    "dd": Form(collections.defaultdict, _factory, _dictionary, 1),
}
"""By tag. Numbers and texts are here for what JSON cannot hold."""

TAGS = {form.kind: tag for tag, form in FORMS.items()}
TYPES = frozenset((*TAGS, bool, float, type(None)))
"""Types of values."""
MUTABLE = frozenset(form.kind for form in FORMS.values() if form.head is not None)


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


def named(module: object, name: object) -> Any:
    """Return what a module of ``NAMED_MODULES`` has by a name, with dots, or None."""
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if module.partition(".")[0] not in NAMED_MODULES:
        return None
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def name_of(value: Any) -> list[str] | None:
    """Return module and name by which ``named`` finds a value, else None."""
    module = getattr(value, "__module__", None) or "builtins"
    owner = getattr(value, "__objclass__", None)
    name = getattr(value, "__qualname__", None)
    module = owner.__module__ if isinstance(owner, type) else module
    for known in (module, "builtins", "operator", "functools"):
        if value is not None and named(known, name) is value:
            return [known, str(name)]
    return None


def named_error(module: object, name: object) -> type[Exception] | None:
    """Return the exception class of Python's own by whose name the tests catch, or None."""
    found = named(module, name)
    is_caught = is_error(found) and issubclass(found, Exception) and found.__name__ not in CONTROL
    return found if is_caught else None


def is_error(kind: object) -> bool:
    """Tell whether something is an exception class."""
    return isinstance(kind, type) and issubclass(kind, BaseException)


def safe_module(name: object) -> ModuleType | None:
    """Return a module that stands for itself on both sides, or None."""
    if isinstance(name, str) and name in SAFE_MODULES:
        return importlib.import_module(name)
    return None
