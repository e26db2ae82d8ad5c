"""The tests' side of the connection. Whatever the worker sends is checked here.

A request gets an identity that nobody can guess; the only messages that may follow are the answer
to it and, before that, calls of the functions that the tests passed. Everything else is a
violation, after which no test can pass.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from os import urandom
from types import FunctionType, MethodType
from typing import Any, ClassVar

from .frames import BrokenError, CannotCrossError, Channel, MalformedError
from .handles import TEXT, HandleType, handle, handle_type, is_handle
from .judging import INCOMPLETE, TEST_FILE, TRACEBACK
from .marshalling import OBJECTS as MOST_OBJECTS
from .marshalling import Marshaller, Raw, Snapshot, Table
from .output import NOTE, STREAMS
from .plain import (
    CONTROL,
    TYPES,
    contents,
    fill,
    is_error,
    name_of,
    named,
    named_error,
    safe_module,
)
from .samples import Sample

IDENTITY_BYTES = 16

ITEMS = 100_000
"""So many items of an iterator of the tests cross."""

SINGLE, MOST_MORE = 32, 10_000
"""So many items of an iterator of the candidate cross one by one, as the tests want them; then as
many again as have crossed, up to a bound."""

WATCHED = 1000
"""So many containers that were attributes are looked at again when the tests fail."""

NOTES, NOTE_CHARACTERS = 10, 300
"""So many notes of the candidate's side are kept, and so much of each."""

SHARED = "; a pack whose tests need this may set tests.isolation: shared"

VALUES, OBJECTS = "values", "objects"
"""What the verdict of tests in their own process rests on."""


def new_identity() -> str:
    """Return an identity that the worker cannot guess; the module secrets takes 10 ms to load.

    The name of the function is bound before tests may replace that of the module.
    """
    return urandom(IDENTITY_BYTES).hex()


class Session(Marshaller):
    """One connection to the candidate.

    Attributes:
        sample: Gets calls of the tests, or None.
        basis: What the tests have rested on so far.
        candidate: What of the text that was handed in is imported.
        is_fenced: Whether that is a fenced block of it.
        violation: Why the tests cannot pass any more, or None.
    """

    def __init__(self, channel: Channel, sample: Sample | None = None) -> None:
        super().__init__(channel)
        self.sample = sample
        self.basis = VALUES
        self.candidate = b""
        self.is_fenced = False
        self.violation: str | None = None
        self._lock = threading.RLock()
        self._depth = 0
        self._is_reading = False
        self._sent: set[int] = set()
        self._again: list[object] = []
        self._asserted: AssertionError | None = None
        self._notes: dict[str, None] = {}
        self._watched: list[tuple[str, Snapshot]] = []

    def cannot(self, what: str) -> CannotCrossError:
        """Note that something cannot cross; the tests fail even if they catch the exception."""
        self.violation = self.violation or what + SHARED
        return CannotCrossError(what + SHARED)

    def rests_on_objects(self) -> None:
        """Note that an object of the candidate stands between the tests and what they compare."""
        self.basis = OBJECTS

    def attribute(self, value: Any, name: str) -> Any:
        """Return an attribute; a container is a copy, which the tests may take for the original."""
        if contents(value) is not None and len(self._watched) < WATCHED:
            text = f"the tests change a {type(value).__name__} that is the attribute {name}"
            self._watched.append((text, Snapshot(_containers(value))))
        return value

    def again(self, number: int, value: Any) -> Any:
        """Return a stand-in of its own: whether two are one object is the candidate's to say."""
        if isinstance(value, _Source):
            return value.items
        if isinstance(value, HandleType) or not is_handle(value):
            return value
        kind: Any = type(value)
        made = _copied_error(value) if isinstance(value, BaseException) else handle(kind)
        if len(self._again) >= MOST_OBJECTS:
            raise CannotCrossError("too many objects")
        self._again.append(made)
        self._numbers[id(made)] = ["!", number]
        return made

    def notes(self) -> Iterator[str]:
        """Yield what may be behind a failure: where two processes differ from one."""
        for text in self._notes:
            yield ascii(text)[1:-1]
        changed = (text for text, snapshot in self._watched if snapshot.changes())
        yield from dict.fromkeys(f"{text}: they have a copy of it" for text in changed)

    def choose(self, text: bytes) -> str:
        """Have the worker decide, before any of it runs, what of a text is the candidate.

        Returns:
            What is to be said of that, or nothing.
        """
        chosen = self.request("choose", text)
        if type(chosen) is not tuple or [*map(type, chosen)] != [bytes, str, bool]:
            raise self._tampered("a choice of nothing")
        self.candidate, told, self.is_fenced = chosen
        return str(told)

    def import_candidate(self, source: bytes) -> list[tuple[str, Any]]:
        """Import the candidate's module and return its top-level names with their values."""
        found = self.request("import", source)
        if type(found) is not list or not found:
            raise self._tampered("an import of nothing")
        module, *names = found
        if not all(type(name) is str and name.isidentifier() for name in names):
            raise self._tampered("an odd name")
        made = [(name, self.request("name", module, name)) for name in names if name[:2] != "__"]
        self.basis = VALUES
        return made

    def request(self, operation: str, *operands: object, in_place: bool = False) -> Any:
        """Ask the worker for something and return its answer, or raise what the candidate raised.

        Args:
            operation: What is asked for.
            operands: Values and stand-ins.
            in_place: Whether nothing is done with the result, so that a change of an argument is
                what the call is for.

        Raises:
            CannotCrossError: An operand or the answer has no form on the other side.
            BrokenError: The candidate is gone or breaks the protocol.
        """
        make = partial(self._request, operation, operands, in_place=in_place)
        if self.sample is None or operation != "call" or self._depth > 0:
            return make()
        return self.sample.watch(make, *operands, in_place=in_place)

    def _request(self, operation: str, operands: Sequence[object], *, in_place: bool) -> Any:
        with self._lock:
            if self._is_reading:
                raise MalformedError("a value that has to be asked for while it is read")
            self._depth += 1
            try:
                kind, values = self._answer(operation, operands, in_place=in_place)
                error = None if kind == "return" else self._failure(operation, kind, *values)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._sent.clear()
            if self._asserted is not None and self._depth == 0:
                asserted, self._asserted = self._asserted, None
                raise asserted  # also where the candidate caught it
            if error is not None:
                raise error
            return values[0]

    def _answer(
        self, operation: str, operands: Sequence[object], *, in_place: bool
    ) -> tuple[str, list[Any]]:
        identity = new_identity()
        try:
            packed, table = self.pack(operands)
        except CannotCrossError as error:
            raise self.cannot(str(error)) from None
        self._send([identity, operation, *packed])
        while True:
            kind, values, sent, changes = self._received(identity, table)
            if kind != "call":
                if changes and kind != "return":
                    raise self._tampered("a change beside an exception")
                if in_place:
                    self._apply(changes, table)
                elif changes:
                    self._notes["an argument was changed by a call whose result is used"] = None
                return kind, values
            self._call_back(identity, values, sent)

    def _apply(self, changes: list[Any], table: Table) -> None:
        """Give containers that were passed the contents that the candidate's copies have now."""
        try:
            for place, items in changes:
                if type(place) is not int or place < 0:
                    raise MalformedError("a place of nothing")  # noqa: TRY301
                fill(table[place], items)
        except Exception as error:  # noqa: BLE001  # of any form
            is_told = isinstance(error, MalformedError)
            raise self._tampered(error if is_told else "a place of nothing") from None

    def _call_back(self, identity: str, values: list[Any], table: Table) -> None:
        """Call a function of the tests for the candidate."""
        function, arguments, names = values
        is_passed = self._numbers.get(id(function), "!")[0] == "@"
        if not is_passed or (type(arguments), type(names)) != (list, dict):
            raise self._tampered("a call of nothing")
        snapshot = Snapshot(table)
        try:
            result, answer = function(*arguments, **names), "return"
        except Exception as error:  # noqa: BLE001  # it belongs to the candidate
            result, answer = error, "raise"
            if isinstance(error, AssertionError):
                self._asserted = self._asserted or error
        changed = snapshot.changes() if result is None else []
        try:
            self._reply(identity, answer, result, changed, table)
        except CannotCrossError as error:
            refusal = self.cannot(f"the result of a test's function: {error}")
            self._reply(identity, "raise", refusal, [], table)

    def _reply(
        self, identity: str, kind: str, result: object, changed: list[Any], table: Table
    ) -> None:
        packed, _ = self.pack([result])
        changes, _ = self.pack([[[place, items] for place, items in changed]], table)
        self._send([identity, kind, packed, changes])

    def _failure(
        self, operation: str, kind: str, error: object = None, trace: object = None
    ) -> BaseException:
        """Return the exception for an answer that is no result."""
        if kind == "refuse":
            return self.cannot(f"the answer to {operation} cannot cross: {str(error)[:500]}")
        if kind == "stop":
            return StopIteration() if operation == "next" else self._tampered("an end of nothing")
        if not isinstance(error, BaseException):
            return self._tampered("an exception that is none")
        name = type(error).__name__
        if name in CONTROL:
            text = f"the candidate raised {name}, which the tests cannot catch by this name"
            self._notes[text] = None
        if not isinstance(type(error), HandleType) and not self._is_sent(error):
            return self.cannot("the candidate raised an exception of the tests after its call")
        if isinstance(trace, str):
            error.__dict__[TRACEBACK] = trace
        return error

    def _is_sent(self, error: BaseException) -> bool:
        """Tell whether an exception of the tests went to the candidate within this call."""
        mark, number = self._numbers.get(id(error), ("", -1))
        return mark == "@" and number in self._sent

    def _send(self, frame: list[Raw]) -> None:
        try:
            self.channel.send(frame)
        except CannotCrossError as error:
            raise self.cannot(str(error)) from None
        except OSError:
            raise self._broken(INCOMPLETE) from None

    def _received(self, identity: str, asked: Table) -> tuple[str, list[Any], Table, list[Any]]:
        """Return kind, values, their data and the changes that the next message brings."""
        try:
            frame: list[Any] = self.channel.receive()
        except OSError:
            raise self._broken(INCOMPLETE) from None
        except MalformedError as error:
            raise self._tampered(error) from None
        self._is_reading = True
        try:
            sent, kind, printed, packed, told = frame
            if sent != identity or len(packed) != _VALUES[kind]:
                raise MalformedError("an answer to no question")  # noqa: TRY301
            self._print(printed)
            values, table = self.unpack(packed)
            (changes,), _ = self.unpack(told, asked)
        except CannotCrossError:
            raise
        except Exception as error:  # noqa: BLE001  # values that cannot be built
            is_told = isinstance(error, MalformedError)
            raise self._tampered(error if is_told else type(error).__name__) from None
        else:
            return kind, values, table, changes
        finally:
            self._is_reading = False

    def _tampered(self, what: object) -> BrokenError:
        return self._broken(f"the candidate broke the protocol: {what}")

    def _broken(self, what: str) -> BrokenError:
        self.violation = self.violation or what
        return BrokenError(what)

    def _print(self, texts: Raw) -> None:
        """Print what the candidate printed, wherever the tests want it now."""
        for stream, text in texts:
            if stream not in (*STREAMS, NOTE) or not isinstance(text, str):
                raise MalformedError("odd output")
            if stream != NOTE:
                getattr(sys, stream).write(text.encode("utf-8", "replace").decode("utf-8"))
            elif len(self._notes) < NOTES:
                self._notes[text[:NOTE_CHARACTERS]] = None

    def outward(self, value: Any) -> Raw:
        """See Marshaller: what the tests pass that is no data."""
        kind = type(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.write_named_tuple(value)
        if isinstance(value, BaseException):
            number = self.own(value)
            self._sent.add(number)
            return ["X", number, *(name_of(kind) or ["", kind.__name__]), self.encode(_text(value))]
        name = name_of(value)
        if name is not None:
            return ["n", *name]
        if _is_of_tests(value):
            texts = (value.__name__, value.__doc__)
            number = self.own(value)
            return ["k", number, *(self.encode(text) for text in texts)]
        if hasattr(kind, "__next__") and not hasattr(kind, "read"):
            items = list(islice(value, ITEMS + 1))
            if len(items) <= ITEMS:
                self._notes["an iterator that was passed is used up, whatever was taken of it"] = (
                    None
                )
                return ["g", self.encode(items)]
            what = f"an iterator with more than {ITEMS} items"
            raise CannotCrossError(f"{what} cannot be passed to the candidate")
        raise CannotCrossError(
            f"an object of the tests' type {kind.__module__}.{kind.__qualname__}"
            f" cannot be passed to the candidate: {value!r:.200}"
        )

    def _read_object(self, number: Raw, kind: Raw) -> object:
        found = self.decode(kind)
        if not isinstance(found, HandleType) or is_error(found):
            raise MalformedError("an object without a class")
        if not any("__call__" in vars(base) for base in found.__mro__):
            self.rests_on_objects()
        return self.stand_in(number, handle(found))

    def _read_class(self, number: Raw, name: Raw, bases: Raw, specials: Raw, error: Raw) -> object:
        said, found = self.decode(name), [self.decode(base) for base in bases]
        if not isinstance(said, str) or not all(isinstance(base, HandleType) for base in found):
            raise MalformedError("an odd class")
        root = None if error is None else named_error(*error) or Exception
        return self.stand_in(number, handle_type(self, said, found, specials, root))

    def _read_error(self, number: Raw, kind: Raw, text: Raw, arguments: Raw, cause: Raw) -> Any:
        found, said = self.decode(kind), self.decode(text)
        if not (isinstance(found, HandleType) and is_error(found) and isinstance(said, str)):
            raise MalformedError("an exception without class or text")
        error = _new_error(found, [self.decode(item) for item in arguments])
        error.__dict__[TEXT] = said
        self.stand_in(number, error)
        error.__cause__ = self.decode(cause)
        return error

    def _read_iterator(self, number: Raw) -> Iterator[object]:
        source: _Source = self.stand_in(number, _Source())
        source.items = self._items(source)
        self._numbers[id(source.items)] = self._numbers[id(source)]
        return source.items

    def _items(self, source: _Source) -> Iterator[object]:
        """Yield the items of an iterator of the candidate, which moves on as the tests do."""
        crossed = 0
        rest: object = True
        while rest is True:
            wanted = min(crossed, MOST_MORE) if crossed >= SINGLE else 1
            items, rest = self._more(source, wanted)
            crossed += len(items)
            if len(items) > 1:  # what is here the candidate no longer has
                del self._numbers[id(source.items)]
                self._notes["items crossed before the tests asked for them"] = None
            try:
                for item in items:
                    if (yield item) is not None:
                        what = "the tests send a value to a generator of the candidate"
                        raise self.cannot(what)  # noqa: TRY301  # the generator closes then too
            except BaseException:  # what the tests throw into it, or its end
                self.request("close", source)
                raise
            self._numbers[id(source.items)] = self._numbers[id(source)]
        if isinstance(rest, BaseException):
            raise rest

    def _more(self, source: _Source, wanted: int) -> tuple[list[object], object]:
        found = self.request("more", source, wanted)
        if type(found) is not tuple or len(found) != 2 or type(found[0]) is not list:  # noqa: PLR2004
            raise self._tampered("items of nothing")
        return found

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        **Marshaller.readers,
        "o": _read_object,
        "C": _read_class,
        "x": _read_error,
        "g": _read_iterator,
        "mod": lambda _side, name: safe_module(name),
        "n": lambda _side, module, name: _type(module, name),
    }


class _Source:
    """Stands for an iterator of the candidate.

    Attributes:
        items: What the tests have of it.
    """

    items: Iterator[object]


_VALUES: dict[object, int] = {"return": 1, "raise": 2, "refuse": 1, "stop": 0, "call": 3}
"""Kinds of messages from the worker, and how many values each has."""


def _is_of_tests(value: Any) -> bool:
    """Tell whether a function or method is one that the test source defines."""
    function = value.__func__ if isinstance(value, MethodType) else value
    return isinstance(function, FunctionType) and function.__code__.co_filename == TEST_FILE


def _type(module: Raw, name: Raw) -> Any:
    found = named(module, name)
    if found not in TYPES and named_error(module, name) is None:
        raise MalformedError("an unknown type")
    return found


def _containers(value: Any) -> list[Any]:
    """Return a container and those in it, up to a bound."""
    found, left = [value], [value]
    while left and len(found) < WATCHED:
        inner = [item for item in contents(left.pop()) or () if contents(item) is not None]
        found += inner
        left += inner
    return found


def _copied_error(error: BaseException) -> BaseException:
    copy = _new_error(type(error), error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def _text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(error)
    return ""


def _new_error(kind: Any, arguments: Sequence[object]) -> BaseException:
    """Return an exception of a stand-in class, however the class below takes arguments."""
    root = next(base for base in kind.__mro__ if not isinstance(base, HandleType))
    try:
        error: BaseException = root.__new__(kind, *arguments)
        root.__init__(error, *arguments)
    except Exception:  # noqa: BLE001  # of any constructor
        error = root.__new__(kind)
        error.args = tuple(arguments)
    return error
