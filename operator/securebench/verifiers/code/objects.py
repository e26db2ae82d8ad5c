"""The candidate's objects: those that cross as values, and what the tests may ask of the others."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from types import FunctionType, GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any

from .frames import MalformedError
from .plain import SAFE_MODULES, type_name
from .protocols import ALLOWED, adds_operators

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
        return ["o", number, heap.encode(_open_class(type(value)))]

    def _class(self, kind: type, heap: Heap) -> Raw:
        number = self.add(kind)
        bases = [heap.encode(base) for base in kind.__bases__ if base is not object]
        doc = kind.__doc__ if isinstance(kind.__doc__, str) else None
        known = [*map(heap.encode, (kind.__name__, doc)), bases]
        return ["C", number, *known, _specials(kind), methods(kind)[:METHODS]]


def flattened(value: object) -> object:
    """Return a value of a class that only names a builtin type as that type, else the value."""
    for base in REBUILT:
        if isinstance(value, base) and not adds_operators(type(value)):
            return _exact(base, value)
    return value


def methods(kind: type) -> list[str]:
    """Return the names of the methods that a class and its bases define, sorted."""
    own = {
        name
        for base in kind.__mro__
        if base is not object
        for name, value in vars(base).items()
        if isinstance(value, FunctionType) and not name.startswith("__")
    }
    return sorted(own)


def has_methods(kind: type) -> bool:
    """Tell whether a class has methods for everybody."""
    return any(not name.startswith("_") for name in methods(kind))


def module_name(value: object) -> Raw:
    """Return the array for a module that stands for itself in the tests, or None."""
    if isinstance(value, ModuleType) and value.__name__ in SAFE_MODULES:
        return ["mod", value.__name__]
    return None


def _open_class(kind: type) -> type:
    """Return the class to describe: one with a form of its own means the tests' own type."""
    if type_name(kind) is None:
        return kind
    known = _STANDING.get(kind)
    if known is None:
        names = {name: getattr(kind, name) for name in ALLOWED if hasattr(kind, name)}
        known = _STANDING[kind] = type(kind.__name__, (), {**names, "__doc__": kind.__doc__})
    return known


_STANDING: dict[type, type] = {}


def _specials(kind: type) -> list[str]:
    own = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    if "__getitem__" in own:
        own.add("__iter__")
    return [name for name in ALLOWED if name in own] + ["generator"] * (kind is GeneratorType)


def _exact(base: Any, value: Any) -> object:
    """Copy with the base's own methods: those of the subclass have no say."""
    if base is str:
        return "".join(str.__iter__(value))
    if base in (bytes, bytearray):
        return base(memoryview(value))
    if base is dict:
        return dict(zip(dict.keys(value), dict.values(value)))  # noqa: B905  # Python 3.8
    if base in (int, float, complex):
        return base.__pos__(value)
    return base(base.__iter__(value))


def _exit(value: Any, error: Any) -> object:
    trace = None if error is None else error.__traceback__
    return type(value).__exit__(value, None if error is None else type(error), error, trace)


def _awaited(value: Any) -> object:
    async def main() -> object:
        return await value

    return asyncio.run(main())


def _call(function: Any, arguments: list[object], names: dict[str, object]) -> object:
    return function(*arguments, **names)


def _call_method(
    value: Any, name: str, arguments: list[object], names: dict[str, object]
) -> object:
    return getattr(value, name)(*arguments, **names)


OPERATIONS: dict[str, Callable[..., object]] = {
    "hello": lambda: None,
    "call": _call,
    "method": _call_method,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "eq": operator.eq,
    "ne": operator.ne,
    "enter": lambda value: type(value).__enter__(value),
    "exit": _exit,
    "await": _awaited,
}
"""What the tests may ask for."""
