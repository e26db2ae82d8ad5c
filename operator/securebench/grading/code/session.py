"""The tests' side of the connection. Whatever the worker sends is checked here.

A request gets an identity that nobody can guess; the only messages that may follow are the answer
to it and, before that, calls of the functions that the tests passed. Everything else is a
violation, after which no test can pass.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from os import urandom
from typing import Any, ClassVar

from .frames import BrokenError, CannotCrossError, Channel, MalformedError
from .handles import TEXT, HandleType, handle, handle_type
from .judging import INCOMPLETE, TRACEBACK
from .marshalling import Marshaller, Raw
from .output import FLAT, STREAMS
from .plain import is_error, safe_module, type_name
from .samples import Sample

IDENTITY_BYTES = 16
ENDINGS = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions by which Python ends loops and generators; only an iterator may raise one."""

FLAT_NAMES, FLAT_CHARACTERS = 10, 100
"""So many classes that cross as a builtin type are named, and so long names."""

SHARED = "; a pack whose tests need this may set tests.isolation: shared"

_VALUES: dict[object, int] = {"return": 1, "raise": 2, "refuse": 1, "call": 3}
"""Kinds of messages from the worker, and how many values each has."""


def new_identity() -> str:
    """Return an identity that the worker cannot guess; the module secrets takes 10 ms to load.

    The name of the function is bound before tests may replace that of the module.
    """
    return urandom(IDENTITY_BYTES).hex()


class Session(Marshaller):
    """One connection to the candidate.

    Args:
        channel: To the worker.
        sample: Gets calls of the tests, or None.
    """

    def __init__(self, channel: Channel, sample: Sample | None = None) -> None:
        super().__init__(channel)
        self.sample = sample
        self._lock = threading.RLock()
        self._asserted: list[BaseException] = []
        self._passed: dict[int, object] = {}
        self._is_reading = False
        self.flat: dict[str, None] = {}
        self.violation: str | None = None

    def cannot(self, what: str) -> CannotCrossError:
        """Note that something cannot cross; the tests fail even if they catch the exception."""
        self.violation = self.violation or what + SHARED
        return CannotCrossError(what + SHARED)

    def import_candidate(self, source: bytes) -> list[tuple[str, Any]]:
        """Import the candidate's module and return its top-level names with their values."""
        found = self.request("import", source)
        if type(found) is not list or not found:
            raise self._tampered("an import of nothing")
        module, *names = found
        if not all(type(name) is str and name.isidentifier() for name in names):
            raise self._tampered("an odd name")
        return [(name, self.request("name", module, name)) for name in names if name[:2] != "__"]

    def request(self, operation: str, *operands: object) -> Any:
        """Ask the worker for something and return its answer, or raise what the candidate raised.

        Raises:
            CannotCrossError: An operand or the answer has no form on the other side.
            BrokenError: The candidate is gone or breaks the protocol.
        """
        make = partial(self._request, operation, operands)
        if self.sample is None or operation != "call" or self.place() > 0:
            return make()
        return self.sample.watch(make, *operands)

    def _request(self, operation: str, operands: Sequence[object]) -> Any:
        with self._lock:
            if self._is_reading:
                raise MalformedError("a value that has to be asked for while it is read")
            asserted, place = len(self._asserted), self.place()
            try:
                kind, values = self._answer(operation, operands)
            finally:
                self.forget(place)
            error = None if kind == "return" else self._failure(operation, kind, *values)
            self._require_assertions(asserted, error)
            if error is not None:
                raise error
            return values[0]

    def _answer(self, operation: str, operands: Sequence[object]) -> tuple[str, list[Any]]:
        identity = new_identity()
        try:
            self._send(identity, operation, operands)
        except CannotCrossError as error:
            raise self.cannot(str(error)) from None
        kind, values = self._received(identity)
        while kind == "call":
            self._call_back(identity, *values)
            kind, values = self._received(identity)
        return kind, values

    def _call_back(self, identity: str, function: Any, arguments: Any, names: Any) -> None:
        """Call a function of the tests for the candidate, or take the next item of an iterator."""
        place = self.place() - 1
        if id(function) not in self._passed or (type(arguments), type(names)) != (list, dict):
            raise self._tampered("a call of nothing")
        try:
            result = function(*arguments, **names) if callable(function) else next(function)
            answer = "return"
        except Exception as error:  # noqa: BLE001  # it belongs to the candidate
            result, answer = error, "raise"
            if isinstance(error, AssertionError):
                self._asserted.append(error)
        try:
            self._send(identity, answer, [result])
        except CannotCrossError as error:
            refusal = self.cannot(f"the result of a test's function: {error}")
            self._send(identity, "raise", [refusal])
        self.forget(place)

    def _failure(
        self, operation: str, kind: str, error: object, trace: object = None
    ) -> BaseException:
        """Return the exception for an answer that is no result."""
        if kind == "refuse":
            return self.cannot(f"the answer to {operation} cannot cross: {str(error)[:500]}")
        if not isinstance(error, BaseException):
            return self._tampered("an exception that is none")
        if isinstance(error, ENDINGS) and operation != "next":
            name = type(error).__name__
            error = RuntimeError(f"the candidate raised {name} where it would end a loop{SHARED}")
        if isinstance(trace, str):
            with contextlib.suppress(AttributeError, TypeError):
                error.__dict__[TRACEBACK] = trace
        return error

    def _require_assertions(self, place: int, error: BaseException | None) -> None:
        """Fail the tests where the candidate caught an assertion of theirs, noted since a place."""
        for failed in self._asserted[place:]:
            if failed is not error:
                raise self.cannot(
                    "the candidate caught an AssertionError of a test's function"
                ) from failed
        del self._asserted[place:]

    def _send(self, identity: str, kind: str, values: Sequence[object]) -> None:
        try:
            self.send(lambda: [identity, kind], values)
        except OSError:
            raise self._broken(INCOMPLETE) from None

    def _received(self, identity: str) -> tuple[str, list[Any]]:
        """Return kind and values of the next message; what is wrong with it is a violation."""
        try:
            frame: list[Any] = self.channel.receive()
        except OSError:
            raise self._broken(INCOMPLETE) from None
        except MalformedError as error:
            raise self._tampered(error) from None
        self._is_reading = True
        try:
            sent, kind, printed, changes, *packed = frame
            if sent != identity or len(packed) != _VALUES[kind]:
                raise MalformedError("an answer to no question")  # noqa: TRY301
            self._print(printed)
            return kind, self.unpack(changes, packed)
        except CannotCrossError:
            raise
        except Exception as error:  # noqa: BLE001  # values that cannot be built
            is_told = isinstance(error, MalformedError)
            raise self._tampered(error if is_told else type(error).__name__) from None
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
            if stream not in (*STREAMS, FLAT) or not isinstance(text, str):
                raise MalformedError("odd output")
            if stream != FLAT:
                getattr(sys, stream).write(text.encode("utf-8", "replace").decode("utf-8"))
            elif len(self.flat) < FLAT_NAMES:
                self.flat[text[:FLAT_CHARACTERS]] = None

    def outward(self, value: Any) -> Raw:
        """See Marshaller."""
        kind = type(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.write_named_tuple(value)
        if isinstance(value, BaseException):
            bases = kind.__mro__
            known = (base for base in bases if type_name(base) or isinstance(base, HandleType))
            return self.write_error(value, next(known), stays=True)
        if not callable(value) and not hasattr(kind, "__next__"):
            raise CannotCrossError(
                f"an object of the tests' type {kind.__module__}.{kind.__qualname__}"
                f" cannot be passed to the candidate: {value!r:.200}"
            )
        name = getattr(value, "__name__", kind.__name__)
        texts = [item if isinstance(item, str) else None for item in (name, value.__doc__)]
        raw = ["k" if callable(value) else "g", *map(self.encode, texts)]
        self._passed[id(value)] = self.add(value, stays=True)
        return raw

    def new_error(self, kind: Any, text: str, arguments: Sequence[object]) -> BaseException:
        """See Marshaller; a class of the candidate's is not called."""
        if not isinstance(kind, HandleType):
            return super().new_error(kind, text, arguments)
        mirrored: Any = kind
        error: BaseException = mirrored.__new__(mirrored)
        error.args = tuple(arguments)
        error.__dict__[TEXT] = text
        return error

    def _read_object(self, kind: Raw) -> object:
        found = self.decode(kind)
        if not isinstance(found, HandleType) or is_error(found):
            raise MalformedError("an object without a class")
        return self.add(handle(found), stays=True)

    def _read_class(self, name: Raw, bases: Raw, specials: Raw) -> object:
        if not all(isinstance(special, str) for special in specials):
            raise MalformedError("odd names of methods")
        said, found = self.decode(name), [self.decode(base) for base in bases]
        return self.add(handle_type(self, said, found, specials), stays=True)

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        **Marshaller.readers,
        "o": _read_object,
        "C": _read_class,
        "mod": lambda _side, name: safe_module(name),
    }
