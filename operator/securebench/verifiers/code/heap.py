"""The values of one exchange: written as JSON, built anew, kept alike on both sides.

Scalars stand for themselves. Everything else is an array whose first item is a tag. Containers are
numbered in the order in which they cross, on both sides alike, so a container that crosses again is
a reference: sharing, identity and cycles survive. Before a side hands over control it sends the new
contents of the mutable containers that its code changed.
"""

from __future__ import annotations

import binascii
import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from .contents import base64, contents, fill, integer, is_same, text
from .frames import MalformedError
from .plain import named_type, put_together, taken_apart, type_name

Raw = Any
"""What JSON can hold."""


class CannotCrossError(Exception):
    """A value that has no form on the other side. The message is for the pack's author."""


class Objects(Protocol):
    """What a side knows of values that are no data."""

    def reference(self, value: object) -> Raw:
        """Return the array for a value that the other side knows, else None."""

    def is_flat(self, kind: type) -> bool:
        """Tell whether values of a class of named tuples cross as no more than that."""

    def outward(self, value: object) -> Raw:
        """Return the array for a value that is no data, or raise CannotCrossError."""

    def inward(self, tag: str, parts: Sequence[Raw]) -> object:
        """Return the value of an array with a tag that is none of the heap's."""


class _Unfinished:
    """Stands in for an immutable container while its items are read."""


class Heap:
    """Containers of one exchange.

    Args:
        objects: Writes and reads what is no data.
    """

    def __init__(self, objects: Objects) -> None:
        self._side = objects
        self._count = 0
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        self._marks: dict[int, Sequence[object]] = {}
        self._briefs: list[range] = []

    def clear(self) -> None:
        """Forget everything: the exchange is over."""
        self._count = 0
        self._objects.clear()
        self._numbers.clear()
        self._open.clear()
        self._marks.clear()
        self._briefs.clear()

    @contextlib.contextmanager
    def brief(self) -> Iterator[None]:
        """Note the containers that cross meanwhile: they are forgotten by ``forget``."""
        start = self._count
        yield
        self._briefs.append(range(start, self._count))

    def briefs(self) -> int:
        """Return a place for ``forget``: what is noted up to now stays."""
        return len(self._briefs)

    def forget(self, place: int) -> None:
        """Forget the containers that were noted since a place; a call within a call is over."""
        for numbers in self._briefs[place:]:
            for number in numbers:
                found = self._objects.pop(number, None)
                if self._numbers.get(id(found)) == number:
                    del self._numbers[id(found)]
        del self._briefs[place:]

    def mark(self) -> None:
        """Remember the contents of all containers: code of this side gets control."""
        pairs = ((number, contents(item)) for number, item in self._objects.items())
        self._marks = {number: items for number, items in pairs if items is not None}

    def changes(self) -> list[Raw]:
        """Return the new contents of containers that changed since the mark.

        Raises:
            CannotCrossError: New contents have no form on the other side.
        """
        marks, self._marks = self._marks, {}
        result = []
        for number, before in marks.items():
            now = contents(self._objects.get(number))
            if now is not None and not is_same(before, now):
                result.append([number, *self._items(self._objects[number])])
        return result

    def apply(self, changes: object) -> None:
        """Put new contents into containers.

        Raises:
            MalformedError: There is no such container, or these are no contents.
        """
        if not isinstance(changes, list):
            raise MalformedError("changes that are no array")
        for change in changes:
            number, *items = change
            fill(self._at(number), [self.decode(item) for item in items])

    def encode(self, value: object) -> Raw:
        """Return a value as JSON.

        Raises:
            CannotCrossError: It, or something in it, has no form on the other side.
        """
        kind = type(value)
        if kind is str:
            return text(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return integer(value)
        number = self._numbers.get(id(value))
        if number is not None:
            return self._known(number)
        write = _WRITERS.get(kind)
        if write is not None:
            return write(self, value)
        return self._other(value)

    def decode(self, raw: Raw) -> Any:
        """Build a value anew; the result consists of exact types only.

        Raises:
            MalformedError: This is not the form of a value.
        """
        kind = type(raw)
        if kind is list:
            if not raw or type(raw[0]) is not str:
                raise MalformedError("an array without a tag")
            read = _READERS.get(raw[0])
            if read is not None:
                return read(self, raw)
            return self._side.inward(raw[0], raw[1:])
        if kind is dict:
            raise MalformedError("an object")
        return raw

    def _other(self, value: Any) -> Raw:
        reference = self._side.reference(value)
        if reference is not None:
            return reference
        parts = taken_apart(value)
        if parts is not None:
            return ["v", parts[0], parts[1], *map(self.encode, parts[2])]
        if isinstance(value, type):
            name = type_name(value)
            if name is not None:
                return ["n", *name]
        kind = type(value)
        is_named = isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)
        if is_named and self._side.is_flat(kind):
            fields = ",".join(map(str, kind._fields))
            self._register(value)
            return ["nt", kind.__name__, fields, *map(self.encode, tuple.__iter__(value))]
        return self._side.outward(value)

    def _known(self, number: int) -> Raw:
        if number in self._open:
            raise CannotCrossError("a tuple or frozenset that contains itself")
        return ["@", number]

    def _register(self, value: object) -> int:
        """Number a container and keep it alive, so that its id stays its own."""
        number = self._count
        self._count += 1
        self._objects[number] = value
        self._numbers[id(value)] = number
        return number

    def _at(self, number: object) -> Any:
        if type(number) is not int or number not in self._objects:
            raise MalformedError("a reference to nothing")
        found = self._objects[number]
        if type(found) is _Unfinished:
            raise MalformedError("a reference to an unfinished container")
        return found

    def _items(self, value: Any) -> Iterator[Raw]:
        """Yield the contents of a mutable container as JSON."""
        if isinstance(value, bytearray):
            yield base64(bytes(value))
        elif isinstance(value, dict):
            for key, item in value.items():
                yield self.encode(key)
                yield self.encode(item)
        else:
            yield from map(self.encode, value)

    def _write_mutable(self, value: Any) -> Raw:
        self._register(value)
        return [_TAGS[type(value)], *self._items(value)]

    def _write_fixed(self, value: Any) -> Raw:
        number = self._register(value)
        self._open.add(number)
        result = [_TAGS[type(value)], *map(self.encode, value)]
        self._open.discard(number)
        return result

    def _write_deque(self, value: Any) -> Raw:
        self._register(value)
        return ["dq", value.maxlen, *map(self.encode, value)]

    def _write_defaultdict(self, value: Any) -> Raw:
        factory = self.encode(value.default_factory)
        self._register(value)
        return ["dd", factory, *self._items(value)]

    def _write_view(self, value: Any) -> Raw:
        return [_TAGS[type(value)], *map(self.encode, value)]

    def _write_range(self, value: Any) -> Raw:
        bounds = (value.start, value.stop, value.step)
        return [_TAGS[type(value)], *map(self.encode, bounds)]

    def _read_mutable(self, raw: Raw) -> Any:
        result = _EMPTY[raw[0]]()
        self._register(result)
        fill(result, [self.decode(item) for item in raw[1:]])
        return result

    def _read_fixed(self, raw: Raw) -> Any:
        number = self._register(_Unfinished())
        build = tuple if raw[0] == "t" else frozenset
        return self._finish(number, build(self.decode(item) for item in raw[1:]))

    def _finish(self, number: int, result: object) -> object:
        self._objects[number] = result
        self._numbers[id(result)] = number
        return result

    def _read_named(self, raw: Raw) -> Any:
        _, name, fields, *items = raw
        number = self._register(_Unfinished())
        kind = collections.namedtuple(name, fields.split(","))  # type: ignore[misc]  # noqa: PYI024
        return self._finish(number, kind(*map(self.decode, items)))

    def _read_deque(self, raw: Raw) -> Any:
        result: Any = collections.deque(maxlen=raw[1])
        self._register(result)
        result.extend([self.decode(item) for item in raw[2:]])
        return result

    def _read_defaultdict(self, raw: Raw) -> Any:
        factory = self.decode(raw[1])
        result: Any = collections.defaultdict(factory)
        self._register(result)
        fill(result, [self.decode(item) for item in raw[2:]])
        return result

    def _read_view(self, raw: Raw) -> Any:
        items = [self.decode(item) for item in raw[1:]]
        if raw[0] == "vk":
            return dict.fromkeys(items).keys()
        if raw[0] == "vi":
            return dict(items).items()
        return dict(enumerate(items)).values()

    def _read_range(self, raw: Raw) -> Any:
        build = range if raw[0] == "r" else slice
        return build(*map(self.decode, raw[1:]))

    def _read_type(self, raw: Raw) -> Any:
        found = named_type(*raw[1:])
        if found is None:
            raise MalformedError("an unknown type")
        return found

    def _read_plain(self, raw: Raw) -> Any:
        return put_together(raw[1], raw[2], [self.decode(item) for item in raw[3:]])


_EMPTY: dict[str, Callable[[], object]] = {
    "l": list,
    "d": dict,
    "s": set,
    "B": bytearray,
    "od": collections.OrderedDict,
    "ct": collections.Counter,
}
_TAGS: dict[type, str] = {
    **{kind: tag for tag, kind in _EMPTY.items() if isinstance(kind, type)},
    tuple: "t",
    frozenset: "f",
    range: "r",
    slice: "sl",
    type({}.keys()): "vk",
    type({}.values()): "vv",
    type({}.items()): "vi",
}
_CONSTANTS: dict[str, object] = {"e": Ellipsis, "ni": NotImplemented}

_WRITERS: dict[type, Callable[[Heap, Any], Raw]] = {
    **dict.fromkeys(
        (list, dict, set, bytearray, collections.OrderedDict, collections.Counter),
        Heap._write_mutable,  # noqa: SLF001
    ),
    **dict.fromkeys((tuple, frozenset), Heap._write_fixed),  # noqa: SLF001
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), Heap._write_view),  # noqa: SLF001
    **dict.fromkeys((range, slice), Heap._write_range),  # noqa: SLF001
    collections.deque: Heap._write_deque,  # noqa: SLF001
    collections.defaultdict: Heap._write_defaultdict,  # noqa: SLF001
    bytes: lambda _heap, value: ["b", base64(value)],
    complex: lambda _heap, value: ["j", value.real, value.imag],
    type(Ellipsis): lambda _heap, _value: ["e"],
    type(NotImplemented): lambda _heap, _value: ["ni"],
}
_READERS: dict[str, Callable[[Heap, Any], object]] = {
    **dict.fromkeys(_EMPTY, Heap._read_mutable),  # noqa: SLF001
    **dict.fromkeys(("t", "f"), Heap._read_fixed),  # noqa: SLF001
    **dict.fromkeys(("vk", "vv", "vi"), Heap._read_view),  # noqa: SLF001
    **dict.fromkeys(("r", "sl"), Heap._read_range),  # noqa: SLF001
    "dq": Heap._read_deque,  # noqa: SLF001
    "dd": Heap._read_defaultdict,  # noqa: SLF001
    "nt": Heap._read_named,  # noqa: SLF001
    "n": Heap._read_type,  # noqa: SLF001
    "v": Heap._read_plain,  # noqa: SLF001
    "b": lambda _heap, raw: binascii.a2b_base64(raw[1]),
    "j": lambda _heap, raw: complex(raw[1], raw[2]),
    "u": lambda _heap, raw: bytes.fromhex(raw[1]).decode("utf-8", "surrogatepass"),
    "i": lambda _heap, raw: int(raw[1], 16),
    "@": lambda heap, raw: heap._at(raw[1]),  # noqa: SLF001
    **{tag: (lambda _heap, raw: _CONSTANTS[raw[0]]) for tag in _CONSTANTS},
}
