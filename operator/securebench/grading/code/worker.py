"""The candidate's side: imports its module and does what the tests ask of it.

Nothing here is trusted once the candidate's module has begun to run; whatever it sends is checked
on the other side.
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
from types import (
    AsyncGeneratorType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, ClassVar

from .frames import CannotCrossError, Channel, MalformedError
from .handles import ABILITIES, REFUSED
from .judging import load
from .marshalling import Marshaller, Raw
from .output import FLAT, STREAMS, Printed
from .plain import SAFE_MODULES, type_name

EXTRA_DEPTH = 2000
"""Python frames beyond the candidate's own limit, for reading and writing nested values."""

TRACEBACK_CHARACTERS = 8192
REBUILT = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)

SPECIALS = (*ABILITIES, "__eq__")
OPERATORS = {*REFUSED, *SPECIALS, "__ne__", "__missing__"}
OPERATORS -= {"__class__", "__copy__", "__deepcopy__", "__reduce_ex__"}


class AsObject:
    """Marks a value that crosses as an object, although it might as data."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Worker(Marshaller):
    """One connection to the tests; ``folder`` is where the candidate's file is written."""

    def __init__(self, channel: Channel, folder: str) -> None:
        super().__init__(channel)
        self._folder = folder
        self._requests: list[str] = []
        self._flat: set[type] = set()
        self._lock = threading.RLock()
        self._printed = Printed()

    def serve(self) -> None:
        """Do what the tests ask until they are gone, or break the protocol."""
        with contextlib.suppress(MalformedError, OSError):
            while True:
                self._serve(*self.channel.receive())

    def ask(self, asked_of: object, arguments: Sequence[object], names: dict[str, Any]) -> object:
        """Have the tests call a function of theirs, or take the next item of an iterator."""
        with self._lock:
            if not self._requests:
                raise RuntimeError("the tests' functions can be called during a call only")
            asked, place = self._requests[-1], self.place()
            self._send("call", asked_of, list(arguments), names)
            while True:
                frame: list[Any] = self.channel.receive()
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
            except CannotCrossError as error:
                if operation == "name":  # not every name is used
                    self._send("return", AsObject(answer[1]))
                else:
                    self._send("refuse", str(error))
            self._requests.pop()
            self.forget(place)

    def _send(self, kind: str, *values: object) -> None:
        with _deeper():
            self.send(lambda: [self._requests[-1], kind, self._printed.take()], values)

    def _done(self, operation: str, values: list[Any]) -> object:
        """Do something and return the result: who calls a class with methods wants an object."""
        if operation == "import":
            return self._import(*values)
        result = OPERATIONS[operation](*values)
        kind = type(result)
        is_made = operation == "call" and values[0] is kind and not isinstance(kind, EnumMeta)
        is_new = is_made and not self.is_known(result)
        return AsObject(result) if is_new and _has_methods(kind) else result

    def _import(self, source: bytes) -> list[object]:
        for name in STREAMS:
            setattr(sys, name, self._printed.stream(name))
        module = load(source, self._folder)
        return [module, *(name for name in vars(module) if type(name) is str)]

    def outward(self, value: Any) -> Raw:
        """See Marshaller."""
        kind = type(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BaseException):
            return self.write_error(value, kind, stays=type_name(kind) is None)
        if isinstance(value, ModuleType) and value.__name__ in SAFE_MODULES:
            return ["mod", value.__name__]
        if isinstance(value, (CoroutineType, AsyncGeneratorType)):
            raise CannotCrossError(f"a {kind.__name__}, which needs an event loop")
        base = next((base for base in REBUILT if isinstance(value, base)), None)
        if base is not None and not _adds_operators(kind):
            return self._as_data(base, value)
        if isinstance(value, AsObject):
            value = value.value
        raw = ["o", self._class(type(value))]
        self.add(value, stays=True)
        return raw

    def _as_data(self, base: Any, value: Any) -> Raw:
        """Return the array for an object of a class that only names a builtin type."""
        kind = type(value)
        is_named = base is tuple and isinstance(getattr(kind, "_fields", None), tuple)
        if kind not in self._flat and not (is_named and not _has_methods(kind)):
            self._flat.add(kind)
            self._printed.add(FLAT, f"{kind.__name__} crosses as {base.__name__}")
        return self.write_named_tuple(value) if is_named else self.encode(_exact(base, value))

    def _class(self, kind: type) -> Raw:
        """Return the array for the class of a handle, also where it is one of Python's own."""
        if self.is_known(kind):
            return self.encode(kind)
        raw = ["C", self.encode(kind.__name__)]
        raw.append([self.encode(base) for base in kind.__bases__ if base is not object])
        raw.append(_specials(kind))
        self.add(kind, stays=True)
        return raw

    def _function(self, name: str, doc: str | None) -> object:
        def call(*arguments: object, **names: object) -> object:
            return self.ask(call, arguments, names)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = doc
        return self.add(call, stays=True)

    def _iterator(self, *_texts: Raw) -> object:
        def items() -> Iterator[object]:
            with contextlib.suppress(StopIteration):
                while True:
                    yield self.ask(made, (), {})

        made = items()
        return self.add(made, stays=True)

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        **Marshaller.readers,
        "k": _function,
        "g": _iterator,
    }


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    """Give room for nested values beyond the candidate's recursion limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + EXTRA_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _members(kind: type, *, own: bool = False) -> Iterator[tuple[str, Any]]:
    """Return names and values in a class and its bases, perhaps without those of Python's own."""
    bases = [base for base in kind.__mro__ if not (type_name(base) if own else base is object)]
    return (item for base in bases for item in vars(base).items())


def _has_methods(kind: type) -> bool:
    """Tell whether a class has methods for everybody."""
    return any(isinstance(value, FunctionType) and name[0] != "_" for name, value in _members(kind))


def _adds_operators(kind: type) -> bool:
    """Tell whether a class that derives from a builtin type has an operator of its own.

    Those that a library wrote in C, as NumPy's numbers have them, mean what the builtin type's do.
    """
    return any(
        name in OPERATORS and not isinstance(value, WrapperDescriptorType)
        for name, value in _members(kind, own=True)
    )


def _specials(kind: type) -> list[str]:
    own = {name for name, _ in _members(kind)} - {"__class__"}
    own |= {"__iter__"} if "__getitem__" in own else set()
    own |= {"__class__"} if kind is GeneratorType else set()
    return [name for name in SPECIALS if name in own]


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
    kind = None if error is None else type(error)
    return type(value).__exit__(value, kind, error, getattr(error, "__traceback__", None))


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


def worker(arguments: Sequence[str]) -> int:
    """Serve one candidate, which comes with the first connection; return the exit code.

    Args:
        arguments: Path of the socket to make, folder for the candidate's file; where calls are
            made again, how many, and all folders that candidate code can write.
    """
    path, folder, *repeated = arguments
    repeats = int(repeated[0]) if repeated else 0

    def work(connection: socket.socket) -> None:
        Worker(Channel(connection), folder).serve()

    if repeats:
        from . import process_reset  # noqa: PLC0415  # for this alone

        process_reset.prepare()
        process_reset.serve(_listening(path, 1 + repeats), repeats, repeated[1:], work)
    else:
        work(_listening(path, 1).accept()[0])
    return 0


def _listening(path: str, connections: int) -> socket.socket:
    """Return a socket that everybody in the Pod may connect to, so many at once.

    It gets its name when it listens, and nothing else can fail any more: supervise starts the tests
    when the name is there, and what fails by then is no fault of the candidate.
    """
    made = f"{path}.new"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(made)
    os.chmod(made, 0o666)  # noqa: PTH101, S103  # the tests' container has another user
    listener.listen(connections)
    os.rename(made, path)  # noqa: PTH104
    return listener
