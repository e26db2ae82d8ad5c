"""A sample of the tests' calls, to be made again in fresh workers.

A call can be drawn where the tests call a top-level name of the candidate. Made again where nothing
of the first calls is left, it must do the same: a candidate that carries knowledge from one call to
the next does not. Where the candidate brings in what is no plain data, nothing can be compared.
"""

from __future__ import annotations

import collections
import copy
import datetime as dt
import random
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from .handles import HandleType, is_handle

ITEMS = 100_000
"""Calls with more items in arguments or result are not drawn."""

TOLD_CHARACTERS = 200

_SCALARS = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, Decimal, Fraction),
    *(dt.date, dt.datetime, dt.time, dt.timedelta),
)
_UNORDERED = (dict, collections.Counter, collections.defaultdict, set, frozenset)
_PLAIN = {*_SCALARS, *_UNORDERED, collections.OrderedDict, list, tuple, collections.deque}


class NotPlainError(Exception):
    """A value that is not compared with that of another worker."""


class HandleError(NotPlainError):
    """The value is an object of the candidate."""


class Call(NamedTuple):
    """A call of a function, with its arguments as they were before, and what came of it.

    Attributes:
        arguments: By position; None where they cannot be copied.
        names: By name.
        outcome: See outcome_of; None where nothing can be compared.
        in_place: Whether it was made for what it does to its arguments.
    """

    name: str
    arguments: list[Any] | None
    names: dict[str, Any]
    outcome: str | None
    in_place: bool = False

    def told(self) -> str:
        """Return the call in one line of bounded length."""
        if self.arguments is None:
            return f"{self.name}(...)"
        try:
            values = [repr(value) for value in self.arguments]
            values += [f"{name}={value!r}" for name, value in self.names.items()]
        except ValueError:
            values = ["..."]  # an integer with more digits than Python writes
        text = ", ".join(values)
        rest = "..." if len(text) > TOLD_CHARACTERS else ""
        return f"{self.name}({text[:TOLD_CHARACTERS]}{rest})"


class Sample:
    """At most ``size`` calls, drawn by lot from all; no candidate can tell which."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._drawn: list[tuple[float, Call]] = []
        self._random = random.SystemRandom()
        self._lock = threading.Lock()
        self._functions: dict[int, str] = {}

    def know(self, names: dict[str, Any]) -> None:
        """Take the candidate's top-level names, whose values stay alive."""
        self._functions = {id(value): name for name, value in names.items()}

    def calls(self) -> list[Call]:
        """Return the calls that were drawn, in the order of their lots."""
        return [call for _, call in self._drawn]

    def watch(
        self, make: Callable[[], Any], function: object, *arguments: Any, in_place: bool
    ) -> Any:
        """Make a call, return its result, or raise what it raised, and perhaps draw it.

        What the tests bring and no other worker can get, functions and iterators for instance,
        keeps a call from being drawn; what the candidate brings does not. Arguments are two: those
        by position as a list, those by name as a dictionary.
        """
        name, lot = self._functions.get(id(function)), self._random.random()
        if name is None or (len(self._drawn) == self._size and lot > self._drawn[-1][0]):
            return make()
        try:
            form_of(arguments)
            copies: Any = copy.deepcopy(arguments)
        except HandleError:
            copies = (None, {})
        except NotPlainError:
            return make()
        result, raised = None, None
        try:
            result = make()
        except BaseException as error:
            raised = error
            raise
        finally:
            if raised or not (isinstance(function, HandleType) and is_handle(result)):
                call = _ended(name, copies, result, raised, arguments)
                self._draw(lot, call._replace(in_place=in_place))
        return result

    def _draw(self, lot: float, call: Call) -> None:
        """Keep the calls with the lowest lots."""
        with self._lock:
            drawn = [*self._drawn, (lot, call)]
            self._drawn = sorted(drawn, key=lambda item: item[0])[: self._size]


def _ended(name: str, copies: Any, *ended: Any) -> Call:
    try:
        outcome = None if copies[0] is None else outcome_of(*ended)
    except NotPlainError:
        outcome = None
    return Call(name, copies[0], copies[1], outcome)


def outcome_of(result: object, error: BaseException | None, arguments: object) -> str:
    """Return what came of a call, with the arguments as it left them; see form_of."""
    kind = None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return f"{kind} {form_of(result)} {form_of(arguments)}"


def form_of(value: object) -> str:
    """Return a text that equal plain values share, and no others; else raise NotPlainError.

    NaN equals NaN. What is too large is not plain, either.
    """
    try:
        return _form(value, iter(range(ITEMS)))
    except RecursionError:
        raise NotPlainError from None


def _form(value: Any, left: Iterator[int]) -> str:
    kind = type(value)
    if is_handle(value):
        raise HandleError
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if next(left, None) is None or not (kind in _PLAIN or is_named_tuple):
        raise NotPlainError
    if kind in _SCALARS:
        return hex(value) if kind is int else f"{kind.__name__}:{value!r}"
    if isinstance(value, dict):
        items = [f"{_form(key, left)}={_form(item, left)}" for key, item in value.items()]
    else:
        items = [_form(item, left) for item in value]
    return f"{kind.__name__}[{','.join(sorted(items) if kind in _UNORDERED else items)}]"
