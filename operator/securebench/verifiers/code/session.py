"""The tests' side of the connection. Whatever the worker sends is checked here.

A request gets an identity that nobody can guess; the only messages that may follow are the answer
to it and, before that, calls of the functions that the tests passed. Everything else is a
violation, after which no test can pass.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .faults import TRACEBACK, read_error, write_error
from .frames import BrokenError, Channel, EndOfStreamError, MalformedError, TooLongError
from .handles import LINK, TEXT, HandleType, Kind, Link, Method, handle, handle_type, link_of
from .heap import CannotCrossError, Heap, Raw
from .judging import INCOMPLETE
from .output import STREAMS
from .plain import FLAT, is_error, safe_module
from .protocols import ALLOWED, REFUSED
from .samples import Sample

IDENTITY_BYTES = 16
OBJECTS = 1_000_000
"""So many objects of the candidate may be known to the tests."""

ENDINGS = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions by which Python ends loops and generators; only an iterator may raise one."""

FLAT_NAMES, FLAT_CHARACTERS = 10, 100
"""So many classes that cross as a builtin type are named, and so long names."""

SHARED = "; a pack whose tests need this may set tests.isolation: shared"


class Unavailable:
    """A name of the candidate whose value does not cross; using it fails.

    Args:
        session: Where that is noted.
        what: Name and reason.
    """

    def __init__(self, session: Session, what: str) -> None:
        self.__dict__["_securebench"] = (session, what)

    def _fail(self, *_operands: object, **_names: object) -> Any:
        session, what = self.__dict__["_securebench"]
        raise session.cannot(what)

    __getattr__ = __setattr__ = __str__ = __ne__ = _fail
    __hash__ = object.__hash__


for _name in (*ALLOWED, *REFUSED):
    setattr(Unavailable, _name, Unavailable._fail)  # noqa: SLF001


class Session:
    """One connection to the candidate.

    Args:
        channel: To the worker.
        sample: Gets calls of the tests, or None.
    """

    def __init__(self, channel: Channel, sample: Sample | None = None) -> None:
        self._channel = channel
        self.sample = sample
        self._heap = Heap(self)
        self._lock = threading.RLock()
        self._depth = 0
        self._classes: dict[int, HandleType] = {}
        self._objects: dict[int, Any] = {}
        self._callables: list[Any] = []
        self._callable_numbers: dict[int, int] = {}
        self._raised: list[BaseException] = []
        self._asserted: list[BaseException] = []
        self.flat: dict[str, None] = {}
        self.violation: str | None = None
        self.is_reading = False

    def cannot(self, what: str) -> CannotCrossError:
        """Note that something cannot cross; the tests fail even if they catch the exception."""
        self.violation = self.violation or what + SHARED
        return CannotCrossError(what + SHARED)

    def request(self, operation: str, *operands: object) -> Any:
        """Ask the worker for something and return its answer.

        Raises:
            CannotCrossError: An operand or the answer has no form on the other side.
            BrokenError: The candidate is gone or breaks the protocol.
            BaseException: What the candidate raised.
        """
        make = partial(self._request, operation, *operands)
        if self.sample is None or operation != "call" or self._depth > 0:
            return make()
        return self.sample.watch(make, *operands)

    def _request(self, operation: str, *operands: object) -> Any:
        with self._lock, self._exchange():
            asserted = len(self._asserted)
            frame = self._asked(operation, operands)
            with self._heap.brief():
                if frame[1] == "return":
                    result, error = self._checked(lambda: self._heap.decode(frame[4])), None
                else:
                    result, error = None, self._failure(operation, frame)
            self._require_assertions(asserted, error)
            if error is not None:
                raise error
            return result

    def _require_assertions(self, place: int, error: BaseException | None) -> None:
        """Fail the tests where the candidate caught an assertion of theirs.

        Args:
            place: Assertions from here on failed in functions that it called.
            error: What it raised after that, or None.
        """
        for failed in self._asserted[place:]:
            if failed is not error:
                raise self.cannot(
                    "the candidate caught an AssertionError of a test's function"
                ) from failed
        del self._asserted[place:]

    def import_candidate(self, source: bytes) -> list[tuple[str, Any]]:
        """Import the candidate's module and return its top-level names with their values.

        Raises:
            SystemExit: The module tried to exit.
        """
        with self._lock, self._exchange():
            frame = self._asked("import", [source])
            if frame[1] == "exit":
                raise SystemExit
            if frame[1] == "return":
                names: list[tuple[str, Any]] = self._checked(
                    lambda: [self._name(*item) for item in frame[4]]
                )
                return names
            raise self._failure("import", frame)

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
            parts = write_error(value, self._heap, nearest=not isinstance(type(value), HandleType))
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
            return self._callables[_index(parts[0])]
        if tag == "x":
            return self._error(parts[0], parts[1:])
        if tag == "mod":
            module = safe_module(parts[0])
            if module is not None:
                return module
        raise MalformedError(f"tag {tag[:20]!r}")

    def _asked(self, operation: str, operands: Sequence[object]) -> list[Any]:
        if self.is_reading:
            raise MalformedError("a value that has to be asked for while it is read")
        identity = secrets.token_hex(IDENTITY_BYTES)
        try:
            changes = self._heap.changes()
            with self._heap.brief():
                values = [self._heap.encode(item) for item in operands]
            self._send([identity, operation, changes, *values])
        except (CannotCrossError, TooLongError) as error:
            raise self.cannot(str(error)) from None
        except RecursionError:
            raise self.cannot("an argument is nested too deeply") from None
        while True:
            frame = self._received(identity)
            if frame[1] in ("call", "next"):
                self._call_back(frame)
            elif frame[1] != "print":
                self._checked(partial(self._heap.apply, frame[2]))
                return frame

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        self._depth += 1
        place = self._heap.briefs()
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth:
                self._heap.forget(place)
                self._heap.mark()
            else:
                self._heap.clear()

    def _send(self, frame: list[Any]) -> None:
        try:
            self._channel.send(frame)
        except EndOfStreamError:
            raise self._broken(INCOMPLETE) from None

    def _received(self, identity: str) -> list[Any]:
        try:
            frame = self._channel.receive()
        except EndOfStreamError:
            raise self._broken(INCOMPLETE) from None
        except MalformedError as error:
            raise self._tampered(error) from None
        # A list: what came may have no hash.
        if len(frame) < 4 or frame[0] != identity or frame[1] not in [*_LENGTHS]:  # noqa: PLR2004
            raise self._tampered("an answer to no question")
        if len(frame) != _LENGTHS[frame[1]]:
            raise self._tampered("an answer of odd length")
        self._checked(lambda: self._print(frame[3]))
        return frame

    def _failure(self, operation: str, frame: list[Any]) -> BaseException:
        if frame[1] == "refuse":
            what = frame[4] if isinstance(frame[4], str) else ""
            return self.cannot(f"the answer to {operation} cannot cross: {what[:500]}")
        if frame[1] != "raise":
            return self._tampered("an odd answer")
        error: object = self._checked(lambda: self._heap.decode(frame[4]))
        if not isinstance(error, BaseException):
            return self._tampered("an exception that is none")
        if isinstance(error, ENDINGS) and operation != "next":
            name = type(error).__name__
            error = RuntimeError(f"the candidate raised {name} where it would end a loop{SHARED}")
        if isinstance(frame[5], str):
            with contextlib.suppress(AttributeError, TypeError):
                error.__dict__[TRACEBACK] = frame[5]
        return error

    def _call_back(self, frame: list[Any]) -> None:
        """Call a function of the tests for the candidate."""
        identity, kind, changes, _, number, *raw = frame
        heap = self._heap
        place = heap.briefs()

        def read() -> list[Any]:
            heap.apply(changes)
            with heap.brief():
                return [self._callables[_index(number)], *map(heap.decode, raw)]

        function, arguments, names = self._checked(read)
        if type(arguments) is not list or type(names) is not dict:
            raise self._tampered("odd arguments")
        heap.mark()
        try:
            result = next(function) if kind == "next" else function(*arguments, **names)
            answer = "return"
        except Exception as error:  # noqa: BLE001  # it belongs to the candidate
            result, answer = error, "raise"
            if isinstance(error, AssertionError):
                self._asserted.append(error)
        try:
            changed = heap.changes()
            with heap.brief():
                raw_result = heap.encode(result)
            self._send([identity, answer, changed, raw_result])
        except (CannotCrossError, TooLongError, RecursionError) as error:
            refusal = self.cannot(f"the result of a test's function: {error}")
            self._send([identity, "raise", [], heap.encode(refusal)])
        heap.forget(place)

    def _checked(self, read: Callable[[], Any]) -> Any:
        """Read what the worker sent; whatever goes wrong is a violation."""
        self.is_reading = True
        try:
            return read()
        except MalformedError as error:
            raise self._tampered(error) from None
        except CannotCrossError:
            raise
        except Exception as error:  # noqa: BLE001  # values that cannot be built
            raise self._tampered(type(error).__name__) from None
        finally:
            self.is_reading = False

    def _tampered(self, what: object) -> BrokenError:
        return self._broken(f"the candidate broke the protocol: {what}")

    def _broken(self, what: str) -> BrokenError:
        self.violation = self.violation or what
        return BrokenError(what)

    def _callable_number(self, value: object) -> int:
        number = self._callable_numbers.get(id(value))
        if number is None:
            number = len(self._callables)
            self._callables.append(value)
            self._callable_numbers[id(value)] = number
        return number

    def _name(self, name: object, raw: Raw) -> tuple[str, Any]:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
            raise MalformedError("an odd name")
        self._heap.clear()
        if isinstance(raw, list) and raw[:1] == ["!"]:
            what = f"the candidate's {name} cannot cross: {str(raw[1])[:500]}"
            return name, Unavailable(self, what)
        return name, self._heap.decode(raw)

    def _print(self, texts: Raw) -> None:
        """Print what the candidate printed, wherever the tests want it now."""
        for stream, text in texts:
            if stream not in (*STREAMS, FLAT) or not isinstance(text, str):
                raise MalformedError("odd output")
            if stream != FLAT:
                getattr(sys, stream).write(text.encode("utf-8", "replace").decode("utf-8"))
            elif len(self.flat) < FLAT_NAMES:
                for line in text.splitlines():
                    self.flat[line[:FLAT_CHARACTERS]] = None

    def _object(self, number: Raw, kind: Raw = None) -> Any:
        known = self._objects.get(_index(number))
        if known is not None or kind is None:
            if known is None:
                raise MalformedError("an unknown object")
            return known
        found = self._heap.decode(kind)
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
        name, doc, *decoded = map(self._heap.decode, (name, doc, *bases))
        kind = Kind(Link(self, number), frozenset(specials), frozenset(methods))
        made = self._classes[number] = handle_type(kind, name, doc, decoded)
        return made

    def _error(self, number: Raw, parts: Sequence[Raw]) -> BaseException:
        origin = parts[-1]
        if origin is not None:
            return self._raised[_index(origin)]
        error = self._built_error(parts)
        if isinstance(type(error), HandleType):
            error.__dict__[LINK] = Link(self, _index(number))
            self._objects[number] = error
        return error

    def _built_error(self, parts: Sequence[Raw]) -> BaseException:
        kind = self._heap.decode(parts[0])
        if not isinstance(kind, HandleType):
            return read_error(parts, self._heap)
        if not is_error(kind) or not isinstance(self._heap.decode(parts[1]), str):
            raise MalformedError("an exception without class or text")
        mirrored: Any = kind
        error: BaseException = mirrored.__new__(mirrored)
        error.args = tuple(self._heap.decode(item) for item in parts[2])
        error.__dict__[TEXT] = self._heap.decode(parts[1])
        return error


_LENGTHS = {"return": 5, "raise": 6, "refuse": 5, "exit": 4, "call": 7, "next": 7, "print": 4}
"""Kinds of messages from the worker with their lengths."""


def _index(value: object) -> int:
    if type(value) is not int or value < 0:
        raise MalformedError("an odd number")
    return value
