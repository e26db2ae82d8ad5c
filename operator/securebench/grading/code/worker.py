"""The candidate's side: imports its module and does what the tests ask of it.

Nothing here is trusted once the candidate's module has begun to run; whatever it sends is checked
on the other side.
"""

from __future__ import annotations

import contextlib
import operator
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, ModuleType
from typing import Any, ClassVar

from .fences import candidate_in
from .frames import CannotCrossError, Channel, MalformedError
from .handles import ABILITIES
from .judging import load
from .marshalling import Marshaller, Raw, Snapshot, Table
from .output import NOTE, STREAMS, Printed
from .plain import (
    SAFE_MODULES,
    TAGS,
    TYPES,
    contents,
    fill,
    is_error,
    name_of,
    named,
    named_error,
)

EXTRA_DEPTH = 2000
"""Python frames beyond the candidate's own limit, for reading and writing nested values."""

TRACEBACK_CHARACTERS = 8192

NO_SOCKETS = "where calls are repeated, this node gives the candidate no network of its own"

REBUILT = (int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)


class AsObject:
    """Marks a value that crosses as an object, although it might as data."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Items:
    """Marks an iterator, whatever its class: the tests ask for its items."""

    def __init__(self, source: Iterator[object]) -> None:
        self.source = source


class Worker(Marshaller):
    """One connection to the tests.

    Args:
        channel: It.
        folder: Where the candidate's file is written.
        note: What may be behind a failure from the beginning on.
    """

    def __init__(self, channel: Channel, folder: str, note: str = "") -> None:
        super().__init__(channel)
        self._folder = folder
        self._requests: list[str] = []
        self._lock = threading.RLock()
        self._printed = Printed()
        self._operation = self._bound = ""
        if note:
            self._note(note)

    def serve(self) -> None:
        """Do what the tests ask until they are gone, or break the protocol."""
        with contextlib.suppress(MalformedError, OSError):
            while True:
                self._serve(*self.channel.receive())

    def ask(self, asked_of: object, arguments: Sequence[object], names: dict[str, Any]) -> object:
        """Have the tests call a function of theirs."""
        with self._lock:
            if not self._requests:
                raise RuntimeError("the tests' functions can be called during a call only")
            asked = self._requests[-1]
            table = self._send("call", [asked_of, list(arguments), names])
            while True:
                frame: list[Any] = self.channel.receive()
                if frame[0] == asked and frame[1] in ("return", "raise"):
                    break
                self._serve(*frame)
            (result,), _ = self.unpack(frame[2])
            (changes,), _ = self.unpack(frame[3], table)
            for place, items in changes:
                fill(table[place], items)
        if frame[1] == "raise":
            raise result
        return result

    def _serve(self, asked: Any, operation: Any, *packed: Raw) -> None:
        self._requests.append(asked)
        self._operation = operation
        with _deeper():
            values, table = self.unpack(packed)
        self._bound = values[1] if operation == "name" else ""
        snapshot = Snapshot(table)
        try:
            result = self._done(operation, values)
            kind, answer = "return", [result]
        except StopIteration as error:
            kind, answer = ("stop", []) if operation == "next" else ("raise", [error, _told(error)])
        except BaseException as error:  # noqa: BLE001  # all of it belongs to the tests
            kind, answer = "raise", [error, _told(error)]
        changed = self._changes(operation, kind, values, answer, snapshot)
        with self._lock:
            try:
                self._send(kind, answer, changed, table)
            except CannotCrossError as error:
                if operation == "name":  # not every name is used
                    self._send("return", [AsObject(answer[0])])
                else:
                    self._send("refuse", [str(error)])
            self._requests.pop()

    def _changes(
        self, operation: str, kind: str, values: list[Any], answer: list[Any], snapshot: Snapshot
    ) -> list[Any]:
        """Return what comes back of changed arguments: nothing beside an exception."""
        if operation != "call":
            return []
        changed = snapshot.changes()
        if kind == "return":
            if contents(answer[0]) is not None and any(answer[0] is each for each in values[1]):
                self._note("an argument that is returned is a copy")
            return [[place, items] for place, items in changed]
        if changed:
            self._note("an argument that was changed beside an exception stays as it was")
        return []

    def _send(
        self,
        kind: str,
        values: list[Any],
        changed: Sequence[Any] = (),
        answered: Table | None = None,
    ) -> Table:
        known = len(self._mine)
        try:
            with _deeper():
                packed, table = self.pack(values)
                told, _ = self.pack([list(changed)], answered)
                self.channel.send([self._requests[-1], kind, self._printed.take(), packed, told])
        except CannotCrossError:
            self.disown(known)
            raise
        return table

    def _note(self, text: str) -> None:
        self._printed.add(NOTE, text)

    def _done(self, operation: str, values: list[Any]) -> object:
        """Do something and return the result: a call of a class gives an object."""
        if operation == "import":
            return self._import(*values)
        result = OPERATIONS[operation](*values)
        is_made = operation == "call" and isinstance(values[0], type)
        return AsObject(result) if is_made and not self._is_value(result) else result

    def _is_value(self, made: object) -> bool:
        """Tell whether a call of a class gives a value: of a container with methods it does not."""
        kind = type(made)
        is_value = isinstance(made, (*REBUILT, bool, BaseException, type)) or kind in TAGS
        is_named = isinstance(made, tuple) and hasattr(kind, "_fields")
        is_plain = is_value and (is_named or kind in TAGS or not _has_methods(kind))
        return made is None or is_plain or self.is_known(made) or _is_iterator(made)

    def _import(self, source: bytes) -> list[object]:
        for name in STREAMS:
            setattr(sys, name, self._printed.stream(name))
        module = load(source, self._folder)
        return [module, *(name for name in vars(module) if type(name) is str)]

    def outward(self, value: Any) -> Raw:
        """See Marshaller."""
        if isinstance(value, AsObject):
            return self._numbers.get(id(value.value)) or self._object(value.value)
        kind = type(value)
        if kind is Items or _is_iterator(value):
            return ["g", self.own(value)]
        if isinstance(value, type):
            name = name_of(value)
            return ["n", *name] if name and self._is_own(value, name) else self._class(value)
        if isinstance(value, BaseException):
            return self._error(value, kind)
        if isinstance(value, ModuleType) and value.__name__ in SAFE_MODULES:
            return ["mod", value.__name__]
        if isinstance(value, (CoroutineType, AsyncGeneratorType)):
            raise CannotCrossError(f"a {kind.__name__}, which needs an event loop")
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
            return self.encode(value.item())
        base = next((base for base in REBUILT if isinstance(value, base)), None)
        return self._object(value) if base is None else self._as_data(base, value)

    def _is_own(self, value: Any, name: list[str]) -> bool:
        """Tell whether a class is Python's own for the tests, and no name of the candidate's.

        A name that it binds may be a definition that the task asks for, and catches its own
        exceptions only.
        """
        if value in TYPES:
            return self._bound in ("", value.__name__)
        return self._operation == "call" and named_error(*name) is not None

    def _object(self, value: Any) -> Raw:
        kind = self._class(type(value))
        return ["o", self.own(value), kind]

    def _as_data(self, base: Any, value: Any) -> Raw:
        """Return the array for an object of a class that derives from a builtin type."""
        kind = type(value)
        is_named = base is tuple and isinstance(getattr(kind, "_fields", None), tuple)
        if kind.__module__ not in SAFE_MODULES and not (is_named and not _has_methods(kind)):
            self._note(f"an object of {kind.__name__} crosses as {base.__name__}")
        return self.write_named_tuple(value) if is_named else self.encode(_exact(base, value))

    def _class(self, kind: type) -> Raw:
        """Return the array for the class of an object, also where it is one of Python's own."""
        if self.is_known(kind):
            return self.encode(kind)
        bases = [self._class(base) for base in kind.__bases__ if base not in _ROOTS]
        error = [kind.__module__, kind.__qualname__] if is_error(kind) else None
        return ["C", self.own(kind), self.encode(kind.__name__), bases, _specials(kind), error]

    def _read_mine(self, number: Raw) -> Any:
        value = self._mine[number]
        return value.source if type(value) is Items else value

    def _error(self, error: BaseException, kind: type) -> Raw:
        try:
            text = str(error)
        except Exception:  # noqa: BLE001  # the candidate's class may do anything
            text = ""
        raw = ["x", 0, self._class(kind), self.encode(text), *self._facts(error, text)]
        raw[1] = self.own(error)
        cause = error.__cause__
        return [*raw, self.encode(cause)]

    def _facts(self, error: BaseException, text: str) -> list[Raw]:
        taken = error.args if isinstance(error.args, tuple) else ()
        try:
            return [[*map(self.encode, taken)]]
        except CannotCrossError:
            return [[self.encode(text)]]

    def _function(self, number: int, name: str, doc: str | None) -> object:
        def call(*arguments: object, **names: object) -> object:
            return self.ask(call, arguments, names)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = doc
        return self.stand_in(number, call)

    def _tests_error(self, number: int, module: str, name: str, text: str) -> BaseException:
        found = named(module, name)
        if not is_error(found):
            found = type(name.rpartition(".")[2], (Exception,), {})
        try:
            error: BaseException = found(text)
        except Exception:  # noqa: BLE001  # of any constructor
            error = Exception(text)
        self.stand_in(number, error)
        return error

    readers: ClassVar[dict[str, Callable[..., Any]]] = {
        **Marshaller.readers,
        "k": _function,
        "X": _tests_error,
        "!": _read_mine,
        "n": lambda _side, module, name: named(module, name),
        "g": lambda side, items: iter(side.decode(items)),
    }


_ROOTS = (object, BaseException)
"""Bases that every class of objects or of exceptions has."""


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    """Give room for nested values beyond the candidate's recursion limit."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + EXTRA_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Return names and values in a class and its bases."""
    return (item for base in kind.__mro__ if base is not object for item in vars(base).items())


def _has_methods(kind: type) -> bool:
    """Tell whether a class has methods for everybody."""
    return any(isinstance(value, FunctionType) and name[0] != "_" for name, value in _members(kind))


def _is_iterator(value: object) -> bool:
    """Tell whether something is an iterator of Python's own, and nothing besides."""
    kind = type(value)
    return kind is GeneratorType or (
        hasattr(kind, "__next__") and not hasattr(kind, "read") and not kind.__flags__ & _HEAP_TYPE
    )


_HEAP_TYPE = 1 << 9
"""Flag of a class that Python code made."""


def _specials(kind: type) -> list[str]:
    own = {name for name, value in _members(kind) if value is not None}
    own |= {"__iter__"} if "__getitem__" in own else set()
    return [name for name in ABILITIES if name in own]


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


def _binary(special: str, left: Any, right: Any) -> object:
    name = special.strip("_")
    if name == "divmod":
        return divmod(left, right)
    return getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))(left, right)


def _unary(value: Any, special: str, *digits: Any) -> object:
    return getattr(type(value), special)(value, *digits)


def _taken(source: Iterator[object], count: int) -> tuple[list[object], object]:
    """Return the next items, and what follows: an exception, or whether there may be more."""
    items: list[object] = []
    try:
        items.extend(islice(source, count))  # what comes before an exception stays
    except BaseException as error:  # noqa: BLE001  # the tests meet it where it stands
        return items, error
    return items, len(items) == count


def _item(value: Any, key: Any) -> object:
    return value[key]


OPERATIONS: dict[str, Callable[..., object]] = {
    "hello": lambda: None,
    "choose": lambda text: tuple(candidate_in(text)),
    "call": lambda function, arguments, names: function(*arguments, **names),
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "name": lambda module, name: vars(module)[name],
    "iter": lambda value: Items(iter(value)),
    "next": next,
    "more": _taken,
    "close": lambda source: source.close() if hasattr(source, "close") else None,
    "len": len,
    "str": str,
    "repr": repr,
    "format": format,
    "getitem": _item,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "binary": _binary,
    "unary": _unary,
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
    if not repeats:
        Worker(Channel(_listening(path, 1).accept()[0]), folder).serve()
        return 0
    from . import process_reset  # noqa: PLC0415  # for this alone

    isolate = process_reset.prepare()
    note = NO_SOCKETS if isolate is process_reset.forbid else ""

    def work(connection: socket.socket) -> None:
        Worker(Channel(connection), folder, note).serve()

    process_reset.serve(isolate, _listening(path, 1 + repeats), repeats, repeated[1:], work)
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
