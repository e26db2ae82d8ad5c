"""Values as JSON, numbered alike on both sides of a connection.

Scalars stand for themselves, the rest are arrays whose first item is a tag. Data is numbered as it
crosses, so sharing, identity and cycles survive. A side that hands over control also sends the new
contents of the mutable containers that its code changed.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .forms import CONTAINER_TAGS, CONTAINERS, FORM_TAGS, FORMS, contents, fill
from .frames import CannotCrossError, MalformedError
from .plain import is_error, named_type, type_name

Raw = Any
"""What JSON can hold."""

INTEGER_LIMIT = 1 << 63
"""Greater numbers are written in hexadecimal: decimal takes quadratic time."""
OBJECTS = 1_000_000
"""So many objects may be known to the other side."""


class Numbered:
    """Objects by number and by identity; they stay alive."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}

    def put(self, number: int, value: Any) -> int:
        """Keep an object and return its number."""
        self.objects[number] = value
        self._numbers[id(value)] = number
        return number

    def add(self, value: Any) -> int:
        """Keep an object under the next number and return that."""
        return self.put(len(self.objects), value)

    def get(self, number: object) -> Any:
        """Return an object; MalformedError where there is none."""
        if type(number) is not int or number not in self.objects:
            raise MalformedError("a reference to nothing")
        return self.objects[number]

    def number_of(self, value: object) -> int | None:
        """Return the number of an object, None where it is not known."""
        return self._numbers.get(id(value))

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget exported objects that the other side no longer holds."""
        for number in numbers:
            found = self.objects.pop(number, None)
            if self._numbers.get(id(found)) == number:
                del self._numbers[id(found)]


class Marshaller:
    """One side of a connection; subclasses say how objects cross that are no data.

    Attributes:
        exports: Objects of this side that the other one knows.
        stand_ins: What stands here for objects of the other side, by their numbers there.
    """

    def __init__(self) -> None:
        self.exports, self.stand_ins, self._data = Numbered(), Numbered(), Numbered()
        self._count = 0
        self._marks: dict[int, list[Any]] = {}
        self._passing: list[range] = []

    def pack(self, values: Iterable[object]) -> list[Raw]:
        """Return what goes over with control, or raise CannotCrossError: changes, then values."""
        try:
            changes = list(self._changes())
            start = self._count
            packed = [self.encode(value) for value in values]
        except RecursionError:
            raise CannotCrossError("a value that is nested too deeply") from None
        self._passing.append(range(start, self._count))
        return [changes, *packed]

    def unpack(self, changes: Raw, packed: Iterable[Raw]) -> list[Any]:
        """Take over control and return values; any exception where ``pack`` did not make this."""
        for number, *items in changes:
            fill(self._data.get(number), [self.decode(item) for item in items])
        start = self._count
        values = [self.decode(item) for item in packed]
        self._passing.append(range(start, self._count))
        pairs = ((number, contents(value)) for number, value in self._data.objects.items())
        self._marks = {number: items for number, items in pairs if items is not None}
        return values

    def place(self) -> int:
        """Return a place for ``forget``; 0 outside of every call."""
        return len(self._passing)

    def forget(self, place: int) -> None:
        """Forget the data that crossed since a place: that call is over.

        What came as new contents of older containers stays, up to the end of the outermost call.
        """
        for numbers in self._passing[place:]:
            self._data.drop(numbers)
        del self._passing[place:]
        if place == 0:
            self._data, self._count = Numbered(), 0

    def encode(self, value: Any) -> Raw:
        """Return a value as JSON; CannotCrossError where something in it has no form there."""
        kind = type(value)
        if kind is int and -INTEGER_LIMIT < value < INTEGER_LIMIT:
            return value
        if value is None or kind is float or kind is bool:
            return value
        if kind is str and not _has_surrogates(value):
            return value
        number = self._data.number_of(value)
        if number is not None:
            return ["@", number]
        if kind in CONTAINER_TAGS:
            tag = CONTAINER_TAGS[kind]
            head = [self.encode(getattr(value, name)) for name in CONTAINERS[tag].attributes]
            self._register(value)
            return [tag, *head, *map(self.encode, contents(value) or ())]
        parts = FORMS[FORM_TAGS[kind]].parts(value) if kind in FORM_TAGS else None
        if parts is None:
            return self._reference(value)
        raw = [FORM_TAGS[kind], *map(self.encode, parts)]
        self._register(value)
        return raw

    def decode(self, raw: Raw) -> Any:
        """Build a value anew, of exact types only; any exception where this is none."""
        if type(raw) is not list:
            if type(raw) is dict:
                raise MalformedError("an object")
            return raw
        tag, *parts = raw
        if tag in FORMS:
            return self._register(FORMS[tag].build(*map(self.decode, parts)))
        if tag in CONTAINERS:
            _, make, attributes = CONTAINERS[tag]
            value = self._register(make(*map(self.decode, parts[: len(attributes)])))
            fill(value, [self.decode(item) for item in parts[len(attributes) :]])
            return value
        read = _REFERENCES.get(tag)
        return read(self, *parts) if read else self.inward(tag, *parts)

    def outward(self, value: Any) -> Raw:
        """Return the array for an object that the other side does not know yet."""
        raise CannotCrossError(repr(value))

    def inward(self, tag: str, *_parts: Raw) -> object:
        """Return what stands for an object of the other side, from its ``outward``."""
        raise MalformedError(f"tag {tag[:20]!r}")

    def new_error(self, kind: Any, _text: str, arguments: Sequence[object]) -> BaseException:
        """Return an exception of a class, however its constructor takes arguments."""
        try:
            error: BaseException = kind(*arguments)
        except Exception:  # noqa: BLE001  # of any constructor
            error = kind.__new__(kind)
            error.args = tuple(arguments)
        return error

    def add_stand_in(self, number: Raw, value: Any) -> Any:
        """Keep what stands for an object of the other side, and return it."""
        known = self.stand_ins.objects
        if type(number) is not int or number in known or len(known) > OBJECTS:
            raise MalformedError("an object is described twice, or there are too many")
        self.stand_ins.put(number, value)
        return value

    def write_named_tuple(self, value: Any) -> Raw:
        """Return the array for a tuple with fields; its class stays on this side."""
        items = [self.encode(item) for item in tuple.__iter__(value)]
        self._register(value)
        return ["nt", type(value).__name__, ",".join(type(value)._fields), *items]

    def write_error(self, error: BaseException, number: int | None, kind: type) -> Raw:
        """Return the array for an exception.

        Args:
            error: The exception.
            number: Where it is among the exports, None where the other side need not know it.
            kind: Its class, or one of its bases that stands for itself on both sides.
        """
        try:
            text = str(error)
        except Exception:  # noqa: BLE001  # the candidate's class may do anything
            text = ""
        is_own = type_name(type(error)) is None
        taken: Any = error.args if is_own else error.__reduce__()[1]
        head = ["x", number, self.encode(kind), self.encode(text)]
        return [*head, [*map(self._told, taken)], self.encode(error.__cause__)]

    def _told(self, value: object) -> Raw:
        try:
            return self.encode(value)
        except CannotCrossError:
            return self.encode(repr(value))

    def _reference(self, value: Any) -> Raw:
        for tag, known in (("your", self.stand_ins), ("my", self.exports)):
            number = known.number_of(value)
            if number is not None:
                return [tag, number]
        name = type_name(value) if isinstance(value, type) else None
        return self.outward(value) if name is None else ["n", *name]

    def _register(self, value: Any) -> Any:
        self._data.put(self._count, value)
        self._count += 1
        return value

    def _changes(self) -> Iterator[Raw]:
        marks, self._marks = self._marks, {}
        for number, old in marks.items():
            new = contents(self._data.objects.get(number))
            if new is not None and not (len(old) == len(new) and all(map(operator.is_, old, new))):
                yield [number, *map(self.encode, new)]

    def _read_named_tuple(self, name: Raw, fields: Raw, *items: Raw) -> Any:
        kind = collections.namedtuple(name, fields.split(","))  # type: ignore[misc]  # noqa: PYI024
        return self._register(kind(*map(self.decode, items)))

    def _read_error(self, number: Raw, kind: Raw, text: Raw, arguments: Raw, cause: Raw) -> Any:
        found, said = self.decode(kind), self.decode(text)
        if not is_error(found) or not isinstance(said, str):
            raise MalformedError("an exception without class or text")
        error = self.new_error(found, said, [self.decode(item) for item in arguments])
        if number is not None:
            self.add_stand_in(number, error)
        error.__cause__ = self.decode(cause)
        return error


def _named(_side: Marshaller, *name: Raw) -> type:
    found = named_type(*name)
    if found is None:
        raise MalformedError("an unknown type")
    return found


_REFERENCES: dict[str, Callable[..., Any]] = {
    "@": lambda side, number: side._data.get(number),  # noqa: SLF001
    "my": lambda side, number: side.stand_ins.get(number),
    "your": lambda side, number: side.exports.get(number),
    "n": _named,
    "nt": Marshaller._read_named_tuple,  # noqa: SLF001
    "x": Marshaller._read_error,  # noqa: SLF001
}


def _has_surrogates(value: str) -> bool:
    """Tell whether JSON would change a text: it joins two surrogates to one character."""
    try:
        return not (value.isascii() or value.encode())
    except UnicodeEncodeError:
        return True
