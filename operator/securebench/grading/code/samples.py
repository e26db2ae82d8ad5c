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

_MAPPINGS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_ROWS = (list, tuple, collections.deque)
_SETS = (set, frozenset)
_SCALARS = (
    *(type(None), bool, float, complex, str, bytes, bytearray, Decimal, Fraction),
    *(dt.date, dt.datetime, dt.time, dt.timedelta),
)


class NotPlainError(Exception):
    """A value that is not compared with that of another worker."""


class HandleError(NotPlainError):
    """The value is an object of the candidate."""


class Call(NamedTuple):
    """A call and what came of it.

    Attributes:
        name: Of the function.
        arguments: Copies made before the call, by position; None where none can be made.
        names: Copies made before the call, by name.
        outcome: See outcome_of; None where nothing can be compared.
    """

    name: str
    arguments: list[Any] | None
    names: dict[str, Any]
    outcome: str | None

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
    """Calls drawn alike from all, however many there will be; no candidate can tell which.

    Args:
        size: At most so many.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen = 0
        self._calls: list[Call] = []
        self._random = random.SystemRandom()
        self._lock = threading.Lock()
        self._functions: dict[int, str] = {}

    def know(self, names: dict[str, Any]) -> None:
        """Take the candidate's top-level names, whose values stay alive."""
        self._functions = {id(value): name for name, value in names.items()}

    def calls(self) -> list[Call]:
        """Return the calls that were drawn, in no order."""
        self._random.shuffle(self._calls)
        return self._calls

    def watch(self, make: Callable[[], Any], function: object, *arguments: Any) -> Any:
        """Make a call, return its result and perhaps draw it.

        What the tests bring and no other worker can get, functions and iterators for instance,
        keeps a call from being drawn; what the candidate brings does not.

        Args:
            make: Makes the call.
            function: The handle that is called.
            arguments: By position as a list, by name as a dictionary.

        Raises:
            BaseException: What the call raised.
        """
        name = self._functions.get(id(function))
        place = None if name is None else self._place()
        if name is None or place is None:
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
                self._draw(place, _ended(name, copies, result, raised, arguments))
        return result

    def _place(self) -> int | None:
        """Return where the next call goes, None where it is not drawn."""
        with self._lock:
            if self._seen < self._size:
                return self._seen
            self._seen += 1
            place = self._random.randrange(self._seen)
        return place if place < self._size else None

    def _draw(self, place: int, call: Call) -> None:
        with self._lock:
            if len(self._calls) < self._size:
                self._calls.append(call)
                self._seen = max(self._seen, len(self._calls))
            else:
                self._calls[place] = call


def _ended(name: str, copies: Any, *ended: Any) -> Call:
    try:
        outcome = None if copies[0] is None else outcome_of(*ended)
    except NotPlainError:
        outcome = None
    return Call(name, copies[0], copies[1], outcome)


def outcome_of(result: object, error: BaseException | None, arguments: object) -> str:
    """Return what came of a call; equal texts mean the same.

    Args:
        result: What was returned.
        error: What was raised, or None.
        arguments: As the call left them.

    Raises:
        NotPlainError: There is more to it than plain data.
    """
    kind = None if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    return f"{kind} {form_of(result)} {form_of(arguments)}"


def form_of(value: object) -> str:
    """Return a text that equal plain values share, and no others; NaN equals NaN.

    Raises:
        NotPlainError: It is no plain value, or too large.
    """
    try:
        return _form(value, iter(range(ITEMS)))
    except RecursionError:
        raise NotPlainError from None


def _form(value: Any, left: Iterator[int]) -> str:
    kind = type(value)
    if is_handle(value):
        raise HandleError
    if next(left, None) is None:
        raise NotPlainError
    if kind in _SCALARS:
        return f"{kind.__name__}:{value!r}"
    if kind is int:
        return hex(value)
    if kind in _MAPPINGS:
        items = [f"{_form(key, left)}={_form(item, left)}" for key, item in value.items()]
    elif kind in (*_ROWS, *_SETS) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        items = [_form(item, left) for item in value]
    else:
        raise NotPlainError
    is_ordered = kind not in (*_MAPPINGS, *_SETS) or kind is collections.OrderedDict
    return f"{kind.__name__}[{','.join(items if is_ordered else sorted(items))}]"
