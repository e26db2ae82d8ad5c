"""The candidate's side: imports its module and does what the tests ask of it.

``worker.main([SOCKET, FOLDER])`` listens on a socket, takes the candidate's source from the first
connection that brings one, and serves that connection to its end. With more arguments the tests may
make calls again, see ``fresh``. Nothing here is trusted once the candidate's module has begun to
run; whatever it sends is checked on the other side.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import EnumMeta
from typing import Any

from .faults import ORIGIN, TRACEBACK_CHARACTERS, read_error, told, write_error
from .frames import Channel, EndOfStreamError, MalformedError, TooLongError
from .heap import CannotCrossError, Heap, Raw
from .loading import load
from .objects import OPERATIONS, Exports, flattened, has_methods, module_name
from .output import STREAMS, Printed, stream
from .plain import FLAT, MODULE, type_name
from .protocols import adds_operators

PACKAGE = __package__ or "securebench_code"
EXTRA_DEPTH = 2000
"""Python frames beyond the candidate's own limit, for reading and writing nested values."""


NAME_CHARACTERS = 2 * 1024 * 1024
"""Greater module-level values do not cross."""


class Worker:
    """One connection.

    Args:
        channel: To the tests.
        folder: Where the candidate's file is written.
    """

    def __init__(self, channel: Channel, folder: str) -> None:
        self._channel = channel
        self._folder = folder
        self._exports = Exports()
        self._heap = Heap(self)
        self._callbacks: dict[int, Any] = {}
        self._callback_numbers: dict[int, int] = {}
        self._requests: list[str] = []
        self._flat: set[type] = set()
        self._lock = threading.RLock()
        self._printed = Printed(self._send_printed)

    def serve(self) -> bool:
        """Do what the tests ask until they are gone; return whether there was a candidate."""
        while True:
            try:
                frame = self._channel.receive()
            except EndOfStreamError:
                return MODULE in sys.modules
            self._serve(frame)

    def reference(self, value: object) -> Raw:
        """See Objects."""
        number = self._callback_numbers.get(id(value))
        if number is not None:
            return ["k", number]
        return self._exports.reference(value)

    def outward(self, value: object) -> Raw:
        """See Objects."""
        raw = module_name(value)
        if raw is not None:
            return raw
        if isinstance(value, BaseException):
            parts = write_error(value, self._heap, nearest=False)
            is_known = type_name(type(value)) is not None
            return ["x", None if is_known else self._exports.add(value), *parts]
        flat = flattened(value)
        if flat is not value:
            self._tell_flat(type(value), type(flat))
            return self._heap.encode(flat)
        return self._exports.described(value, self._heap)

    def is_flat(self, kind: type) -> bool:
        """See Objects."""
        if adds_operators(kind):
            return False
        if has_methods(kind):
            self._tell_flat(kind, tuple)
        return True

    def _tell_flat(self, kind: type, base: type) -> None:
        if kind not in self._flat:
            self._flat.add(kind)
            self._printed.add(FLAT, f"{kind.__name__} crosses as {base.__name__}\n")

    def inward(self, tag: str, parts: Sequence[Raw]) -> object:
        """See Objects."""
        if tag in ("o", "c"):
            return self._exports.get(parts[0])
        if tag == "m":
            return getattr(self._exports.get(parts[0]), parts[1])
        if tag == "x":
            error = read_error(parts, self._heap)
            setattr(error, ORIGIN, parts[-1])
            return error
        if tag in ("k", "g"):
            number, name, doc = parts
            if number not in self._callbacks:
                made: Any = _TestIterator(self, number) if tag == "g" else self._callback(number)
                if tag == "k":
                    made.__name__ = made.__qualname__ = name
                    made.__doc__ = doc
                self._callbacks[number] = made
                self._callback_numbers[id(made)] = number
            return self._callbacks[number]
        raise MalformedError(tag)

    def ask(self, kind: str, number: int, arguments: Sequence[object], names: Any) -> object:
        """Have the tests call a function of theirs, or take the next item of an iterator."""
        with self._lock:
            if not self._requests:
                raise RuntimeError("the tests' functions can be called during a call only")
            asked = self._requests[-1]
            heap = self._heap
            place = heap.briefs()
            changes = heap.changes()
            with heap.brief():
                values = [heap.encode(list(arguments)), heap.encode(dict(names))]
            self._channel.send([asked, kind, changes, self._printed.take(), number, *values])
            while True:
                frame = self._channel.receive()
                if frame[0] == asked and frame[1] in ("return", "raise"):
                    break
                self._serve(frame)
            heap.apply(frame[2])
            with heap.brief():
                result = heap.decode(frame[3])
            heap.forget(place)
            heap.mark()
        if frame[1] == "raise":
            raise result
        return result

    def _callback(self, number: int) -> Callable[..., object]:
        def callback(*arguments: object, **names: object) -> object:
            return self.ask("call", number, arguments, names)

        return callback

    def _serve(self, frame: list[Any]) -> None:
        asked, operation, changes, *raw = frame
        place = self._heap.briefs()
        self._requests.append(asked)
        try:
            answer = self._answer(operation, changes, raw)
        except (CannotCrossError, RecursionError, MemoryError) as error:
            answer = ["refuse", [], str(error) or type(error).__name__]
        with self._lock:
            self._send([asked, answer[0], answer[1], self._printed.take(), *answer[2:]])
            self._requests.pop()
            if self._requests:
                self._heap.forget(place)
            else:
                self._heap.clear()

    def _send(self, frame: list[Any]) -> None:
        try:
            self._channel.send(frame)
        except TooLongError as error:
            self._channel.send([frame[0], "refuse", [], [], f"a result of {error}"])

    def _send_printed(self) -> bool:
        with self._lock:
            if self._requests:
                self._channel.send([self._requests[-1], "print", [], self._printed.take()])
            return bool(self._requests)

    def _answer(self, operation: str, changes: Raw, raw: list[Raw]) -> list[Any]:
        heap = self._heap
        with _Deeper():
            heap.apply(changes)
            with heap.brief():
                values = [heap.decode(item) for item in raw]
        heap.mark()
        try:
            result = self._do(operation, values)
        except BaseException as error:  # noqa: BLE001  # all of it belongs to the tests
            if operation == "import" and isinstance(error, SystemExit):
                return ["exit", []]
            with _Deeper():
                return self._raised(error)
        with _Deeper():
            changed = heap.changes()
            if operation == "import":
                return ["return", changed, list(self._names())]
            with heap.brief():
                return ["return", changed, self._result(operation, values, result)]

    def _raised(self, error: BaseException) -> list[Any]:
        trace = told(error, PACKAGE)
        changed = self._heap.changes()
        with self._heap.brief():
            return ["raise", changed, self.outward(error), trace[-TRACEBACK_CHARACTERS:]]

    def _result(self, operation: str, values: list[Any], result: object) -> Raw:
        """Return the form of a result: who calls a class with methods wants an object of it."""
        kind = type(result)
        is_made = operation == "call" and values[0] is kind and not isinstance(kind, EnumMeta)
        is_new = is_made and not isinstance(result, BaseException) and has_methods(kind)
        if is_new and self.reference(result) is None:
            return self._exports.described(result, self._heap)
        return self._heap.encode(result)

    def _do(self, operation: str, values: list[Any]) -> object:
        if operation == "import":
            self._import(values[0])
            return None
        return OPERATIONS[operation](*values)

    def _import(self, source: bytes) -> None:
        for name in STREAMS:
            setattr(sys, name, stream(name, self._printed))
        load(source, self._folder)

    def _names(self) -> Iterator[list[Raw]]:
        """Yield the top-level names, each as if it crossed alone."""
        for name, value in list(vars(sys.modules[MODULE]).items()):
            if type(name) is not str or name.startswith("__"):
                continue
            self._heap.clear()
            try:
                raw = self._heap.encode(value)
                problem = "too large" if len(repr(raw)) > NAME_CHARACTERS else ""
            except (CannotCrossError, RecursionError) as error:
                problem = str(error) or type(error).__name__
            yield [name, ["!", problem] if problem else raw]


class _TestIterator:
    """An iterator of the tests."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    def __iter__(self) -> _TestIterator:
        return self

    def __next__(self) -> object:
        return self._worker.ask("next", self._number, (), {})


class _Deeper:
    """Room for nested values beyond the candidate's recursion limit."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(self._limit + EXTRA_DEPTH)

    def __exit__(self, *_error: object) -> None:
        sys.setrecursionlimit(self._limit)


def main(arguments: Sequence[str]) -> int:
    """Serve one candidate; return the exit code, which says nothing about it.

    Args:
        arguments: Path of the socket to make, folder for the candidate's file; where calls are
            made again, how many, and all folders that candidate code can write.
    """
    path, folder, *repeated = arguments
    if repeated:
        from . import fresh  # noqa: PLC0415  # for this alone

        repeats = int(repeated[0])
        waiting = listening(path, 1 + repeats)
        fresh.serve(
            waiting, repeats, repeated[1:], lambda peer: Worker(Channel(peer), folder).serve()
        )
        return 0
    listener = listening(path)
    while True:
        connection, _ = listener.accept()
        channel = Channel(connection)
        try:
            has_served = Worker(channel, folder).serve()
        except (MalformedError, EndOfStreamError):
            return 1
        channel.close()
        if has_served:
            return 0


def listening(path: str, connections: int = 1) -> socket.socket:
    """Return a socket that everybody in the Pod may connect to, so many at once."""
    if os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: PTH101, S103  # the tests' container has another user
    listener.listen(connections)
    return listener
