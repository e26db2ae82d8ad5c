"""Values as JSON, copied whole with each message.

Scalars stand for themselves, the rest are arrays whose first item is a tag. Data is numbered within
its message, so that what is shared or cyclic stays so; it has no identity beyond that. Objects of
one side, for which the other has a stand-in, are numbered for good by the side that owns them.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .frames import CannotCrossError, Channel, MalformedError
from .plain import FORMS, TAGS, contents, fill

Raw = Any
"""What JSON can hold."""

INTEGER_LIMIT = 1 << 63
"""Greater numbers are written in hexadecimal: decimal takes quadratic time."""
OBJECTS = 1_000_000
"""So many objects may stay known to the other side."""

Table = Any
"""The data of a message, a list: what crosses later names it by its place."""


class Marshaller:
    """One side of a connection; subclasses say how objects cross that are no data.

    Attributes:
        channel: To the other side.
        readers: What reads an array, by its tag, beside ``FORMS``.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._mine: dict[int, Any] = {}
        self._theirs: dict[int, Any] = {}
        self._numbers: dict[int, list[Raw]] = {}
        self._table: Table = []
        self._answered: Table = []
        self._places: dict[int, int] = {}

    def pack(self, values: Sequence[object], changed: Table | None = None) -> tuple[Raw, Table]:
        """Return values as JSON, with their data.

        Args:
            values: What crosses.
            changed: Data of the message that is answered, which the values may hold.

        Raises:
            CannotCrossError: Something in it has no form on the other side; nothing is sent then.
        """
        before = self._table, self._places
        self._table = []
        self._places = {id(value): -1 - place for place, value in enumerate(changed or ())}
        try:
            return [self.encode(value) for value in values], self._table
        except (RecursionError, MemoryError):
            raise CannotCrossError("a value too deep or too large") from None
        finally:
            self._table, self._places = before

    def unpack(self, packed: Raw, changed: Table | None = None) -> tuple[list[Any], Table]:
        """Return values and their data; any exception where ``pack`` did not make this."""
        before = self._table, self._answered
        self._table, self._answered = [], changed or []
        try:
            return [self.decode(item) for item in packed], self._table
        finally:
            self._table, self._answered = before

    def encode(self, value: Any) -> Raw:
        """Return a value as JSON; CannotCrossError where something in it has no form there."""
        kind = type(value)
        if kind is int and -INTEGER_LIMIT < value < INTEGER_LIMIT:
            return value
        if value is None or kind is float or kind is bool:
            return value
        if kind is str and not _has_surrogates(value):
            return value
        known = self._numbers.get(id(value))
        if known is not None:
            return known
        place = self._places.get(id(value))
        if place is not None:
            return ["=", place]
        tag = TAGS.get(kind, "")
        parts = FORMS[tag].parts(value) if tag else None
        if parts is None:
            return self.outward(value)
        raw = [tag, *map(self.encode, parts)]
        self._add(value)
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
        value = self._add(form.build(*map(self.decode, parts[: form.head])))
        if form.head is not None:
            fill(value, [self.decode(item) for item in parts[form.head :]])
        return value

    def own(self, value: object) -> int:
        """Return the number of an object of this side, which stays alive from now on."""
        if len(self._mine) >= OBJECTS:
            raise CannotCrossError("too many objects")
        number = len(self._mine)
        self._mine[number] = value
        self._numbers[id(value)] = ["@", number]
        return number

    def disown(self, known: int) -> None:
        """Forget the objects behind the first so many: the message with them was not sent."""
        while len(self._mine) > known:
            _, value = self._mine.popitem()
            del self._numbers[id(value)]

    def stand_in(self, number: Raw, value: Any) -> Any:
        """Note what stands for an object of the other side, and return it."""
        if type(number) is not int or number in self._theirs or len(self._theirs) >= OBJECTS:
            raise MalformedError("an odd number of an object")
        self._theirs[number] = value
        self._numbers[id(value)] = ["!", number]
        return value

    def again(self, _number: int, value: Any) -> Any:
        """Return what stands for an object that has crossed before."""
        return value

    def is_known(self, value: object) -> bool:
        """Tell whether the other side has a stand-in for an object, or owns it."""
        return id(value) in self._numbers

    def outward(self, value: Any) -> Raw:
        """Return the array for an object that the other side does not know yet."""
        raise CannotCrossError(repr(value))

    def write_named_tuple(self, value: Any) -> Raw:
        """Return the array for a tuple with fields; its class stays on this side."""
        items = [self.encode(item) for item in tuple.__iter__(value)]
        self._add(value)
        return ["nt", type(value).__name__, ",".join(type(value)._fields), *items]

    def _add(self, value: Any) -> Any:
        self._places[id(value)] = len(self._table)
        self._table.append(value)
        return value

    def _read_place(self, place: Raw) -> Any:
        return self._table[place] if place >= 0 else self._answered[-1 - place]

    def _read_theirs(self, number: Raw) -> Any:
        return self.again(number, self._theirs[number])

    def _read_mine(self, number: Raw) -> Any:
        return self._mine[number]

    def _read_named_tuple(self, name: Raw, fields: Raw, *items: Raw) -> Any:
        kind = collections.namedtuple(name, fields.split(","))  # type: ignore[misc]  # noqa: PYI024
        return self._add(kind(*map(self.decode, items)))

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        "=": _read_place,
        "@": _read_theirs,
        "!": _read_mine,
        "nt": _read_named_tuple,
    }


class Snapshot:
    """The contents of data as it crossed, to see afterwards what has changed of it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        pairs = ((place, contents(value)) for place, value in enumerate(table))
        self._before = {place: items for place, items in pairs if items is not None}

    def changes(self) -> list[tuple[int, list[Any]]]:
        """Return place and new items of each mutable container that has others now."""
        found = []
        for place, old in self._before.items():
            new = contents(self._table[place]) or []
            if len(old) != len(new) or not all(map(operator.is_, old, new)):
                found.append((place, new))
        return found


def _has_surrogates(value: str) -> bool:
    """Tell whether JSON would change a text: it joins two surrogates to one character."""
    try:
        return not (value.isascii() or value.encode())
    except UnicodeEncodeError:
        return True
