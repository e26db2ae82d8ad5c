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

from .faults import TRACEBACK
from .frames import BrokenError, Channel, EndOfStreamError, MalformedError, TooLongError
from .heap import CannotCrossError, Raw
from .imports import Imports
from .judging import INCOMPLETE
from .output import STREAMS
from .plain import FLAT
from .samples import Sample

IDENTITY_BYTES = 16
ENDINGS = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions by which Python ends loops and generators; only an iterator may raise one."""

FLAT_NAMES, FLAT_CHARACTERS = 10, 100
"""So many classes that cross as a builtin type are named, and so long names."""

SHARED = "; a pack whose tests need this may set tests.isolation: shared"


class Session:
    """One connection to the candidate.

    Args:
        channel: To the worker.
        sample: Gets calls of the tests, or None.
    """

    def __init__(self, channel: Channel, sample: Sample | None = None) -> None:
        self._channel = channel
        self.sample = sample
        self._imports = Imports(self)
        self._heap = self._imports.heap
        self._lock = threading.RLock()
        self._depth = 0
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
                    lambda: [self._imports.name(*item) for item in frame[4]]
                )
                return names
            raise self._failure("import", frame)

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
                return [self._imports.function(number), *map(heap.decode, raw)]

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


_LENGTHS = {"return": 5, "raise": 6, "refuse": 5, "exit": 4, "call": 7, "next": 7, "print": 4}
"""Kinds of messages from the worker with their lengths."""
