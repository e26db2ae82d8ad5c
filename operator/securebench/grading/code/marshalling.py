"""Values as JSON, numbered alike on both sides of a connection.

Scalars stand for themselves, the rest are arrays whose first item is a tag. Data is numbered as it
crosses, so sharing, identity and cycles survive. A side that hands over control also sends the new
contents of the mutable containers that its code changed.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from .frames import CannotCrossError, Channel, MalformedError
from .plain import FORMS, TAGS, contents, fill, is_error, named_type, type_name

Raw = Any
"""What JSON can hold."""

INTEGER_LIMIT = 1 << 63
"""Greater numbers are written in hexadecimal: decimal takes quadratic time."""
OBJECTS = 1_000_000
"""So many objects may stay known to the other side."""


class Marshaller:
    """One side of a connection; subclasses say how objects cross that are no data.

    Both sides give the same numbers to what crosses: to data up to the end of the call, to objects,
    where one side has a stand-in for the other's, for good.

    Attributes:
        channel: To the other side.
        readers: What reads an array, by its tag, beside ``FORMS``.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._count = 0
        self._data: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._marks: dict[int, list[Any]] = {}
        self._passing: list[range] = []

    def send(self, head: Callable[[], list[Raw]], values: Iterable[object]) -> None:
        """Send control: a head, the changes, values. CannotCrossError, and nothing is sent."""
        start = self._count
        try:
            changes = list(self._changes())
            place = self._count
            packed = [self.encode(value) for value in values]
            self.channel.send([*head(), changes, *packed])
        except (CannotCrossError, RecursionError, MemoryError) as error:
            for table in (self._data, self._objects):
                self._drop(table, range(start, self._count))
            self._count = start
            what = error if isinstance(error, CannotCrossError) else "a value too deep or too large"
            raise CannotCrossError(what) from None
        self._passing.append(range(place, self._count))

    def unpack(self, changes: Raw, packed: Iterable[Raw]) -> list[Any]:
        """Take over control and return values; any exception where ``send`` did not make this."""
        for number, *items in changes:
            fill(self._read_known(number), [self.decode(item) for item in items])
        place = self._count
        values = [self.decode(item) for item in packed]
        self._passing.append(range(place, self._count))
        pairs = ((number, contents(value)) for number, value in self._data.items())
        self._marks = {number: items for number, items in pairs if items is not None}
        return values

    def place(self) -> int:
        """Return a place for ``forget``; 0 outside of every call."""
        return len(self._passing)

    def forget(self, place: int) -> None:
        """Forget the data that crossed since a place: that call is over.

        What came as new contents of older containers stays, up to the end of the outermost call.
        """
        for numbers in self._passing[place:] if place else [list(self._data)]:
            self._drop(self._data, numbers)
        del self._passing[place:]

    def encode(self, value: Any) -> Raw:
        """Return a value as JSON; CannotCrossError where something in it has no form there."""
        kind = type(value)
        if kind is int and -INTEGER_LIMIT < value < INTEGER_LIMIT:
            return value
        if value is None or kind is float or kind is bool:
            return value
        if kind is str and not _has_surrogates(value):
            return value
        number = self._numbers.get(id(value))
        if number is not None:
            return ["@", number]
        tag = TAGS.get(kind, "")
        parts = FORMS[tag].parts(value) if tag else None
        if parts is None:
            name = type_name(value) if isinstance(value, type) else None
            return self.outward(value) if name is None else ["n", *name]
        raw = [tag, *map(self.encode, parts)]
        self.add(value)
        return [*raw, *map(self.encode, contents(value) or ())]

    def decode(self, raw: Raw) -> Any:
        """Build a value anew, of exact types only; any exception where this is none."""
        if type(raw) is not list:
            if type(raw) is dict:
                raise MalformedError("an object")
            return raw
        tag, *parts = raw
        if tag not in FORMS:
            if tag not in self.readers:
                raise MalformedError(f"tag {tag[:20]!r}")
            return self.readers[tag](self, *parts)
        form = FORMS[tag]
        value = self.add(form.build(*map(self.decode, parts[: form.head])))
        if form.head is not None:
            fill(value, [self.decode(item) for item in parts[form.head :]])
        return value

    def add(self, value: Any, *, stays: bool = False) -> Any:
        """Give the next number to data, or to an object that stays known, and return it."""
        if len(self._objects) > OBJECTS:
            raise MalformedError("too many objects")
        (self._objects if stays else self._data)[self._count] = value
        self._numbers[id(value)] = self._count
        self._count += 1
        return value

    def is_known(self, value: object) -> bool:
        """Tell whether the other side knows an object."""
        return id(value) in self._numbers

    def outward(self, value: Any) -> Raw:
        """Return the array for an object that the other side does not know yet."""
        raise CannotCrossError(repr(value))

    def new_error(self, kind: Any, _text: str, arguments: Sequence[object]) -> BaseException:
        """Return an exception of a class, however its constructor takes arguments."""
        try:
            error: BaseException = kind(*arguments)
        except Exception:  # noqa: BLE001  # of any constructor
            error = kind.__new__(kind)
            error.args = tuple(arguments)
        return error

    def write_named_tuple(self, value: Any) -> Raw:
        """Return the array for a tuple with fields; its class stays on this side."""
        items = [self.encode(item) for item in tuple.__iter__(value)]
        self.add(value)
        return ["nt", type(value).__name__, ",".join(type(value)._fields), *items]

    def write_error(self, error: BaseException, kind: type, *, stays: bool) -> Raw:
        """Return the array for an exception; ``kind`` is a class that the other side knows."""
        try:
            text = str(error)
        except Exception:  # noqa: BLE001  # the candidate's class may do anything
            text = ""
        taken: Any = error.__reduce__()[1] if type_name(type(error)) else error.args
        raw = ["x", stays, self.encode(kind), self.encode(text), [*map(self.encode, taken)]]
        if stays:
            self.add(error, stays=True)
        return [*raw, self.encode(error.__cause__)]

    def _changes(self) -> Iterator[Raw]:
        marks, self._marks = self._marks, {}
        for number, old in marks.items():
            new = contents(self._data.get(number))
            if new is not None and not (len(old) == len(new) and all(map(operator.is_, old, new))):
                yield [number, *map(self.encode, new)]

    def _drop(self, table: dict[int, Any], numbers: Iterable[int]) -> None:
        for number in numbers:
            found = table.pop(number, None)
            if self._numbers.get(id(found)) == number:
                del self._numbers[id(found)]

    def _read_known(self, number: Raw) -> Any:
        for table in (self._data, self._objects):
            if type(number) is int and number in table:
                return table[number]
        raise MalformedError("a reference to nothing")

    def _read_type(self, *name: Raw) -> type:
        found = named_type(*name)
        if found is None:
            raise MalformedError("an unknown type")
        return found

    def _read_named_tuple(self, name: Raw, fields: Raw, *items: Raw) -> Any:
        kind = collections.namedtuple(name, fields.split(","))  # type: ignore[misc]  # noqa: PYI024
        return self.add(kind(*map(self.decode, items)))

    def _read_error(self, stays: Raw, kind: Raw, text: Raw, arguments: Raw, cause: Raw) -> Any:
        found, said = self.decode(kind), self.decode(text)
        if not is_error(found) or not isinstance(said, str):
            raise MalformedError("an exception without class or text")
        error = self.new_error(found, said, [self.decode(item) for item in arguments])
        if stays:
            self.add(error, stays=True)
        error.__cause__ = self.decode(cause)
        return error

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        "@": _read_known,
        "n": _read_type,
        "nt": _read_named_tuple,
        "x": _read_error,
    }


def _has_surrogates(value: str) -> bool:
    """Tell whether JSON would change a text: it joins two surrogates to one character."""
    try:
        return not (value.isascii() or value.encode())
    except UnicodeEncodeError:
        return True
