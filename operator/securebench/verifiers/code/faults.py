"""Exceptions on their way to the other side."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .frames import MalformedError
from .heap import CannotCrossError
from .plain import is_error, type_name

if TYPE_CHECKING:
    from .heap import Heap, Raw

TRACEBACK_CHARACTERS = 8192
CAUSES = 3
ORIGIN = "_securebench_origin"
"""Attribute of an exception in the worker that a callback of the tests raised: its number there."""

TRACEBACK = "_securebench_traceback"
"""Attribute of an exception in the tests that the candidate raised: where, as text."""


def write_error(
    error: BaseException, heap: Heap, *, nearest: bool, depth: int = CAUSES
) -> list[Raw]:
    """Return an exception as parts: class, text, arguments, cause, origin.

    Args:
        error: The exception.
        heap: Of the exchange.
        nearest: Whether it is written as its nearest base that stands for itself on both sides.
        depth: How many causes follow.
    """
    cause = error.__cause__
    return [
        _class(type(error), heap, nearest=nearest),
        _safe_text(error),
        _arguments(error, heap),
        _cause(cause, heap, nearest=nearest, depth=depth - 1),
        getattr(error, ORIGIN, None),
    ]


def read_error(parts: Sequence[Raw], heap: Heap) -> BaseException:
    """Build an exception anew.

    Raises:
        MalformedError: These are no parts of one.
    """
    kind, text, arguments, cause, _ = parts
    found = heap.decode(kind)
    if not is_error(found) or not isinstance(text, str):
        raise MalformedError("an exception without class or text")
    error = built(found, [heap.decode(item) for item in arguments])
    if cause is not None:
        error.__cause__ = read_error(cause, heap)
    return error


def built(kind: Any, arguments: Sequence[object]) -> BaseException:
    """Return an exception of a class with these arguments, however its constructor takes them."""
    try:
        error: BaseException = kind(*arguments)
    except Exception:  # noqa: BLE001  # of any constructor
        error = kind.__new__(kind)
        error.args = tuple(arguments)
    return error


def told(error: BaseException, package: str) -> str:
    """Return the traceback of an exception from the first frame outside our package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__package__") == package:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001  # the candidate's class may do anything
        text = type(error).__name__
    return text[-TRACEBACK_CHARACTERS:]


def _class(kind: type, heap: Heap, *, nearest: bool) -> Raw:
    for base in kind.__mro__:
        if not nearest or type_name(base) is not None:
            return heap.encode(base)
    return ["n", "builtins", "Exception"]


def _cause(
    cause: BaseException | None, heap: Heap, *, nearest: bool, depth: int
) -> list[Raw] | None:
    if cause is None or depth < 0:
        return None
    return write_error(cause, heap, nearest=nearest, depth=depth)


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # the candidate's class may do anything
        return ""


def _arguments(error: BaseException, heap: Heap) -> list[Raw]:
    arguments: Sequence[object] = error.args
    if type_name(type(error)) is not None:
        try:
            arguments = error.__reduce__()[1]
        except Exception:  # noqa: BLE001  # then the plain arguments do
            arguments = error.args
    result = []
    for item in arguments:
        try:
            result.append(heap.encode(item))
        except CannotCrossError:
            result.append(heap.encode(repr(item)))
    return result
