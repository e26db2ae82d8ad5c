"""The candidate's objects that do not cross: what the tests get to know of them."""

from __future__ import annotations

import asyncio
import copy
import math
import operator
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from .frames import MalformedError
from .plain import SAFE_MODULES, type_name
from .specials import SPECIAL_METHODS

if TYPE_CHECKING:
    from .heap import Heap, Raw

METHODS = 1000
"""So many method names of a class are told; the rest is asked for."""

REBUILT = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)


class Exports:
    """Numbers for objects and classes; they stay alive as long as the worker."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: object) -> Raw:
        """Return the number of an object that the tests know, or None."""
        return self._numbers.get(id(value))

    def add(self, value: object) -> int:
        """Return a new number for an object."""
        number = len(self._objects)
        self._objects.append(value)
        self._numbers[id(value)] = number
        return number

    def get(self, number: object) -> Any:
        """Return an object by its number."""
        if type(number) is not int or not 0 <= number < len(self._objects):
            raise MalformedError("no such object")
        return self._objects[number]

    def reference(self, value: object) -> Raw:
        """Return the array for an object that the tests know, else None."""
        number = self._numbers.get(id(value))
        if number is None:
            return None
        return ["c" if isinstance(value, type) else "o", number]

    def described(self, value: object, heap: Heap) -> Raw:
        """Return the array for an object that the tests do not know yet."""
        if isinstance(value, type):
            return self._class(value, heap)
        number = self.add(value)
        return ["o", number, heap.encode(_open_class(type(value))), _hash(value)]

    def _class(self, kind: type, heap: Heap) -> Raw:
        number = self.add(kind)
        bases = [heap.encode(base) for base in kind.__bases__ if base is not object]
        return [
            "C",
            number,
            *map(heap.encode, (kind.__name__, kind.__doc__ if _has_text(kind) else None)),
            bases,
            _specials(kind),
            _methods(kind),
        ]


def rebuilt(value: object) -> object:
    """Return a value of a subclass of a builtin type as exactly that type, else the value."""
    for base in REBUILT:
        if isinstance(value, base):
            return _exact(base, value)
    return value


def module_name(value: object) -> Raw:
    """Return the array for a module that stands for itself in the tests, or None."""
    if isinstance(value, ModuleType) and value.__name__ in SAFE_MODULES:
        return ["mod", value.__name__]
    return None


class _Standing(type):
    """Metaclass of classes that stand for types which otherwise mean the tests' own."""


def _open_class(kind: type) -> type:
    """Return the class to describe: one with a form of its own is of no use as a mirror."""
    if type_name(kind) is None:
        return kind
    known = _STANDING.get(kind)
    if known is None:
        names = {name: getattr(kind, name) for name in _specials(kind) if hasattr(kind, name)}
        known = _Standing(kind.__name__, (), {**names, "__doc__": kind.__doc__})
        _STANDING[kind] = known
    return known


_STANDING: dict[type, type] = {}


def _hash(value: object) -> int | None:
    """Return the hash of an object whose class has one of its own."""
    if type(value).__hash__ in (None, object.__hash__):
        return None
    try:
        return hash(value)
    except Exception:  # noqa: BLE001  # the candidate's class may do anything
        return None


def _has_text(kind: type) -> bool:
    return isinstance(kind.__doc__, str)


def _specials(kind: type) -> list[str]:
    own = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    present = [name for name in (*SPECIAL_METHODS, "send", "throw") if name in own]
    if "__hash__" in present and kind.__hash__ is None:
        present[present.index("__hash__")] = "!__hash__"
    return present


def _methods(kind: type) -> list[str]:
    own = {
        name
        for base in kind.__mro__
        if base is not object
        for name, value in vars(base).items()
        if isinstance(value, FunctionType) and not name.startswith("__")
    }
    return sorted(own)[:METHODS]


def _exact(base: Any, value: Any) -> object:
    """Copy with the base's own methods: those of the subclass have no say."""
    if base is str:
        return str.__str__(value) if type(value) is str else "".join(str.__iter__(value))
    if base in (bytes, bytearray):
        return base(memoryview(value))
    if base is dict:
        return dict(zip(dict.keys(value), dict.values(value)))  # noqa: B905  # Python 3.8
    if base is complex:
        return complex.__pos__(value)
    if base in (int, float):
        return base.__pos__(value)
    return base(base.__iter__(value))


def _exit(value: Any, error: Any) -> object:
    trace = None if error is None else error.__traceback__
    return type(value).__exit__(value, None if error is None else type(error), error, trace)


def _awaited(value: Any) -> object:
    async def main() -> object:
        return await value

    return asyncio.run(main())


def _iterated(value: Any) -> object:
    return iter(value)


def _raise_next(value: Any) -> object:
    return next(value)


def _contains(value: Any, item: object) -> bool:
    return item in value


def _power(base: Any, exponent: Any, *modulus: Any) -> object:
    return pow(base, exponent, *modulus)


_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod"),
    *("matmul", "lshift", "rshift", "and_", "or_", "xor"),
)
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
_UNARY = ["neg", "pos", "abs", "invert", "index"]
_ITEMS = ["getitem", "setitem", "delitem"]

OPERATIONS: dict[str, Callable[..., object]] = {
    **{name: getattr(operator, name) for name in (*_BINARY, *_COMPARISONS, *_UNARY, *_ITEMS)},
    **{f"i{name.rstrip('_')}": getattr(operator, f"i{name.rstrip('_')}") for name in _BINARY},
    "ipow": operator.ipow,
    "pow": _power,
    "divmod": divmod,
    "contains": _contains,
    "len": len,
    "length_hint": operator.length_hint,
    "iter": _iterated,
    "next": _raise_next,
    "reversed": reversed,
    "bool": bool,
    "hash": hash,
    "str": str,
    "repr": repr,
    "format": format,
    "bytes": bytes,
    "int": int,
    "float": float,
    "complex": complex,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "dir": dir,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "plain": rebuilt,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "enter": lambda value: type(value).__enter__(value),
    "exit": _exit,
    "await": _awaited,
}


def called(function: Any, arguments: Sequence[object], names: dict[str, object]) -> object:
    """Call a function or class of the candidate."""
    return function(*arguments, **names)
