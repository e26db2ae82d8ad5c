"""What the tests know of the candidate: its objects and classes, and what they gave to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .faults import read_error, write_error
from .frames import MalformedError
from .handles import (
    LINK,
    TEXT,
    HandleType,
    Kind,
    Link,
    Method,
    Peer,
    handle,
    handle_type,
    link_of,
)
from .heap import CannotCrossError, Heap, Raw
from .plain import is_error, safe_module
from .protocols import ALLOWED, REFUSED

OBJECTS = 1_000_000
"""So many objects of the candidate may be known to the tests."""


class Unavailable:
    """A name of the candidate whose value does not cross; using it fails.

    Args:
        peer: Where that is noted.
        what: Name and reason.
    """

    def __init__(self, peer: Peer, what: str) -> None:
        self.__dict__["_securebench"] = (peer, what)

    def _fail(self, *_operands: object, **_names: object) -> Any:
        peer, what = self.__dict__["_securebench"]
        raise peer.cannot(what)

    __getattr__ = __setattr__ = __str__ = __ne__ = _fail
    __hash__ = object.__hash__


for _name in (*ALLOWED, *REFUSED):
    setattr(Unavailable, _name, Unavailable._fail)  # noqa: SLF001


class Imports:
    """Handles by their numbers, and the tests' functions by theirs.

    Args:
        peer: The candidate's side.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.heap = Heap(self)
        self._classes: dict[int, HandleType] = {}
        self._objects: dict[int, Any] = {}
        self._callables: list[Any] = []
        self._callable_numbers: dict[int, int] = {}
        self._raised: list[BaseException] = []

    def function(self, number: Raw) -> Any:
        """Return a function or iterator of the tests by its number."""
        return self._callables[_index(number)]

    def name(self, name: object, raw: Raw) -> tuple[str, Any]:
        """Return a top-level name of the candidate with its value."""
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
            raise MalformedError("an odd name")
        self.heap.clear()
        if isinstance(raw, list) and raw[:1] == ["!"]:
            what = f"the candidate's {name} cannot cross: {str(raw[1])[:500]}"
            return name, Unavailable(self._peer, what)
        return name, self.heap.decode(raw)

    def reference(self, value: object) -> Raw:
        """See Objects."""
        link = link_of(value.__self__ if isinstance(value, Method) else value)
        if link is None:
            return None
        if isinstance(value, Method):
            return ["m", link.number, value.__name__]
        return ["c" if isinstance(value, HandleType) else "o", link.number]

    def is_flat(self, _kind: type) -> bool:
        """See Objects."""
        return True

    def outward(self, value: object) -> Raw:
        """See Objects."""
        if isinstance(value, BaseException):
            self._raised.append(value)
            parts = write_error(value, self.heap, nearest=not isinstance(type(value), HandleType))
            return ["x", *parts[:-1], len(self._raised) - 1]
        if isinstance(value, Unavailable):
            value._fail()  # noqa: SLF001
        if callable(value):
            tag = "k"
        elif hasattr(type(value), "__next__"):
            tag = "g"
        else:
            kind = type(value)
            raise CannotCrossError(
                f"an object of the tests' type {kind.__module__}.{kind.__qualname__}"
                f" cannot be passed to the candidate: {value!r:.200}"
            )
        name = getattr(value, "__name__", type(value).__name__)
        doc = getattr(value, "__doc__", None)
        texts = [item if isinstance(item, str) else None for item in (name, doc)]
        return [tag, self._callable_number(value), texts[0] or "function", texts[1]]

    def inward(self, tag: str, parts: Sequence[Raw]) -> object:
        """See Objects."""
        if tag == "o":
            return self._object(*parts)
        if tag == "c":
            return self._classes[parts[0]]
        if tag == "C":
            return self._class(*parts)
        if tag == "k":
            return self.function(parts[0])
        if tag == "x":
            return self._error(parts[0], parts[1:])
        if tag == "mod":
            module = safe_module(parts[0])
            if module is not None:
                return module
        raise MalformedError(f"tag {tag[:20]!r}")

    def _callable_number(self, value: object) -> int:
        number = self._callable_numbers.get(id(value))
        if number is None:
            number = len(self._callables)
            self._callables.append(value)
            self._callable_numbers[id(value)] = number
        return number

    def _object(self, number: Raw, kind: Raw = None) -> Any:
        known = self._objects.get(_index(number))
        if known is not None or kind is None:
            if known is None:
                raise MalformedError("an unknown object")
            return known
        found = self.heap.decode(kind)
        if not isinstance(found, HandleType) or is_error(found) or len(self._objects) > OBJECTS:
            raise MalformedError("an object without a class")
        self._objects[number] = handle(found, number)
        return self._objects[number]

    def _class(self, number: Raw, *parts: Raw) -> HandleType:
        name, doc, bases, specials, methods = parts
        if _index(number) in self._classes or len(self._classes) > OBJECTS:
            raise MalformedError("a class is described twice")
        texts = [*specials, *methods]
        if not all(isinstance(text, str) for text in texts):
            raise MalformedError("odd names of methods")
        name, doc, *decoded = map(self.heap.decode, (name, doc, *bases))
        kind = Kind(Link(self._peer, number), frozenset(specials), frozenset(methods))
        made = self._classes[number] = handle_type(kind, name, doc, decoded)
        return made

    def _error(self, number: Raw, parts: Sequence[Raw]) -> BaseException:
        origin = parts[-1]
        if origin is not None:
            return self._raised[_index(origin)]
        error = self._built_error(parts)
        if isinstance(type(error), HandleType):
            error.__dict__[LINK] = Link(self._peer, _index(number))
            self._objects[number] = error
        return error

    def _built_error(self, parts: Sequence[Raw]) -> BaseException:
        kind = self.heap.decode(parts[0])
        if not isinstance(kind, HandleType):
            return read_error(parts, self.heap)
        if not is_error(kind) or not isinstance(self.heap.decode(parts[1]), str):
            raise MalformedError("an exception without class or text")
        mirrored: Any = kind
        error: BaseException = mirrored.__new__(mirrored)
        error.args = tuple(self.heap.decode(item) for item in parts[2])
        error.__dict__[TEXT] = self.heap.decode(parts[1])
        return error


def _index(value: object) -> int:
    if type(value) is not int or value < 0:
        raise MalformedError("an odd number")
    return value
