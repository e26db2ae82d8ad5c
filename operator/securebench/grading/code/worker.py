"""The candidate's side: imports its module and does what the tests ask of it.

``worker.main([SOCKET, FOLDER])`` listens on a socket, takes the candidate's source from the first
connection that brings one, and serves that connection to its end. With more arguments the tests may
make calls again, see ``process_reset``. Nothing here is trusted once the candidate's module has
begun to run; whatever it sends is checked on the other side.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from enum import EnumMeta
from operator import eq, ne
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, ModuleType
from typing import Any

from .frames import CannotCrossError, Channel, EndOfStreamError, MalformedError
from .judging import load
from .marshalling import Marshaller, Raw
from .output import STREAMS, Printed, stream
from .plain import FLAT, MODULE, SAFE_MODULES, type_name
from .protocols import ALLOWED, adds_operators

EXTRA_DEPTH = 2000
"""Python frames beyond the candidate's own limit, for reading and writing nested values."""

TRACEBACK_CHARACTERS = 8192
REBUILT = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)


class AsObject:
    """Marks a value that crosses as an object, although it might as data."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Worker(Marshaller):
    """One connection.

    Args:
        channel: To the tests.
        folder: Where the candidate's file is written.
    """

    def __init__(self, channel: Channel, folder: str) -> None:
        super().__init__()
        self._channel = channel
        self._folder = folder
        self._requests: list[str] = []
        self._flat: set[type] = set()
        self._lock = threading.RLock()
        self._printed = Printed()

    def serve(self) -> bool:
        """Do what the tests ask until they are gone; return whether there was a candidate."""
        while True:
            try:
                frame = self._channel.receive()
            except EndOfStreamError:
                return MODULE in sys.modules
            self._serve(*frame)

    def ask(self, number: int, arguments: Sequence[object], names: dict[str, object]) -> object:
        """Have the tests call a function of theirs, or take the next item of an iterator."""
        with self._lock:
            if not self._requests:
                raise RuntimeError("the tests' functions can be called during a call only")
            asked, place = self._requests[-1], self.place()
            self._send("call", number, list(arguments), names)
            while True:
                frame: list[Any] = self._channel.receive()
                if frame[0] == asked and frame[1] in ("return", "raise"):
                    break
                self._serve(*frame)
            (result,) = self.unpack(frame[2], frame[3:])
            self.forget(place)
        if frame[1] == "raise":
            raise result
        return result

    def _serve(self, asked: Any, operation: Any, changes: Raw, *packed: Raw) -> None:
        place = self.place()
        self._requests.append(asked)
        with _deeper():
            values = self.unpack(changes, packed)
        try:
            answer: tuple[Any, ...] = ("return", self._done(operation, values))
        except BaseException as error:  # noqa: BLE001  # all of it belongs to the tests
            answer = ("raise", error, _told(error))
        with self._lock:
            try:
                self._send(*answer)
            except (CannotCrossError, MemoryError) as error:
                self._send(*self._instead(operation, answer[1], error))
            self._requests.pop()
            self.forget(place)

    def _instead(self, operation: object, result: object, error: Exception) -> Sequence[Any]:
        """Return the answer in place of one that cannot cross; not every name is used."""
        if operation == "name":
            return "return", AsObject(result)
        return "refuse", str(error) or type(error).__name__

    def _send(self, kind: str, *values: object) -> None:
        known = len(self.exports.objects)
        try:
            with _deeper():
                packed = self.pack(values)
            self._channel.send([self._requests[-1], kind, self._printed.take(), *packed])
        except (CannotCrossError, MemoryError):
            self.exports.drop(range(known, len(self.exports.objects)))
            raise

    def _done(self, operation: str, values: list[Any]) -> object:
        """Do something and return the result: who calls a class with methods wants an object."""
        if operation == "import":
            return self._import(*values)
        result = OPERATIONS[operation](*values)
        kind = type(result)
        is_made = operation == "call" and values[0] is kind and not isinstance(kind, EnumMeta)
        is_new = is_made and self.exports.number_of(result) is None
        return AsObject(result) if is_new and _has_methods(kind) else result

    def _import(self, source: bytes) -> list[object]:
        for name in STREAMS:
            setattr(sys, name, stream(name, self._printed))
        module = load(source, self._folder)
        return [module, *(name for name in vars(module) if type(name) is str)]

    def outward(self, value: Any) -> Raw:
        """See Marshaller."""
        kind = type(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BaseException):
            number = self.exports.add(value) if type_name(kind) is None else None
            return self.write_error(value, number, kind)
        if isinstance(value, ModuleType) and value.__name__ in SAFE_MODULES:
            return ["mod", value.__name__]
        if isinstance(value, (CoroutineType, AsyncGeneratorType)):
            raise CannotCrossError(f"a {kind.__name__}, which needs an event loop")
        if isinstance(value, AsObject):
            return ["o", self.exports.add(value.value), self._class(type(value.value))]
        base = next((base for base in REBUILT if isinstance(value, base)), None)
        if base is None or adds_operators(kind):
            return self.outward(AsObject(value))
        return self._flattened(base, value)

    def _flattened(self, base: type, value: Any) -> Raw:
        """Return the array for an object of a class that only names a builtin type."""
        kind = type(value)
        is_named = base is tuple and isinstance(getattr(kind, "_fields", None), tuple)
        if kind not in self._flat and not (is_named and not _has_methods(kind)):
            self._flat.add(kind)
            self._printed.add(FLAT, f"{kind.__name__} crosses as {base.__name__}")
        return self.write_named_tuple(value) if is_named else self.encode(_exact(base, value))

    def inward(self, tag: str, *parts: Raw) -> object:
        """See Marshaller."""
        number, name, doc = parts
        made: Any = self._iterator(number) if tag == "g" else self._function(number)
        if tag == "k":
            made.__name__ = made.__qualname__ = name
            made.__doc__ = doc
        return self.add_stand_in(number, made)

    def _class(self, kind: type) -> Raw:
        """Return the array for the class of a handle, also where it is one of Python's own."""
        number = self.exports.number_of(kind)
        if number is not None:
            return ["my", number]
        number = self.exports.add(kind)
        bases = [self.encode(base) for base in kind.__bases__ if base is not object]
        return ["C", number, self.encode(kind.__name__), bases, _specials(kind)]

    def _function(self, number: int) -> Callable[..., object]:
        return lambda *arguments, **names: self.ask(number, arguments, names)

    def _iterator(self, number: int) -> Iterator[object]:
        with contextlib.suppress(StopIteration):
            while True:
                yield self.ask(number, (), {})


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    """Give room for nested values beyond the candidate's recursion limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + EXTRA_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _has_methods(kind: type) -> bool:
    """Tell whether a class has methods for everybody."""
    return any(
        isinstance(value, FunctionType) and not name.startswith("_")
        for base in kind.__mro__
        for name, value in vars(base).items()
    )


def _specials(kind: type) -> list[str]:
    own = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    if "__getitem__" in own:
        own.add("__iter__")
    return [name for name in ALLOWED if name in own] + ["generator"] * (kind is GeneratorType)


def _exact(base: Any, value: Any) -> object:
    """Copy with the base's own methods: those of the subclass have no say."""
    if base is str:
        return str.__str__(value)
    if base is dict:
        return dict(dict.items(value))
    if base in (int, float, complex):
        return base.__pos__(value)
    return base(base.__iter__(value))


def _told(error: BaseException) -> str:
    """Return the traceback of an exception from the first frame of the candidate."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__package__") == __package__:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001  # the candidate's class may do anything
        text = type(error).__name__
    return text[-TRACEBACK_CHARACTERS:]


def _exit(value: Any, error: Any) -> object:
    if error is None:
        return type(value).__exit__(value, None, None, None)
    return type(value).__exit__(value, type(error), error, error.__traceback__)


OPERATIONS: dict[str, Callable[..., object]] = {
    "hello": lambda: None,
    "call": lambda function, arguments, names: function(*arguments, **names),
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "name": lambda module, name: vars(module)[name],
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "eq": eq,
    "ne": ne,
    "enter": lambda value: type(value).__enter__(value),
    "exit": _exit,
}
"""What the tests may ask for, beside ``import``."""


def main(arguments: Sequence[str]) -> int:
    """Serve one candidate; return the exit code, which says nothing about it.

    Args:
        arguments: Path of the socket to make, folder for the candidate's file; where calls are
            made again, how many, and all folders that candidate code can write.
    """
    path, folder, *repeated = arguments
    repeats = int(repeated[0]) if repeated else 0
    listener = listening(path, 1 + repeats)

    def work(connection: socket.socket) -> bool:
        return Worker(Channel(connection), folder).serve()

    if repeats:
        from . import process_reset  # noqa: PLC0415  # for this alone

        process_reset.serve(listener, repeats, repeated[1:], work)
        return 0
    has_served = False
    while not has_served:
        connection, _ = listener.accept()
        try:
            has_served = work(connection)
        except (MalformedError, EndOfStreamError):
            return 1
        connection.close()
    return 0


def listening(path: str, connections: int) -> socket.socket:
    """Return a socket that everybody in the Pod may connect to, so many at once."""
    if os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o666)  # noqa: PTH101, S103  # the tests' container has another user
    listener.listen(connections)
    return listener
