"""Stand-ins, in the tests, for objects and classes of the candidate.

A stand-in asks the worker whatever the tests ask of it. One thing it refuses: to let the candidate
decide how its object compares with a plain value. Tests compare what they got with what they
expect, and an object that equals everything would pass every one of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, cast

from .links import LINK, MARK, MODULE, TEXT, Link, Mark, RemoteMethod, RemoteType, link_of, mark_of
from .plain import is_error
from .specials import BINARY, COMPARISONS, SPECIAL_METHODS

NUMBERS = frozenset({"__abs__", "__round__", "__int__", "__float__", "__complex__", "__index__"})
"""Conversions to numbers."""


def _request(self: object, operation: str, *operands: object) -> Any:
    return link_of(self).session.request(operation, *operands)


def _getattr(self: Any, name: str) -> Any:
    mark = mark_of(type(self))
    if link_of(self) is None:
        raise AttributeError(name)
    if name in mark.methods:
        return RemoteMethod(self, name)
    return _request(self, "getattr", self, name)


def _setattr(self: Any, name: str, value: object) -> None:
    _request(self, "setattr", self, name, value)


def _delattr(self: Any, name: str) -> None:
    _request(self, "delattr", self, name)


def _is_remote(value: object) -> bool:
    return isinstance(value, RemoteMethod) or link_of(value) is not None


def _compare(name: str, operation: str) -> Callable[[Any, object], Any]:
    def compare(self: Any, other: object) -> Any:
        mark = mark_of(type(self))
        if name in ("__eq__", "__ne__") and not mark.has_equality:
            return NotImplemented
        if other is None and name in ("__eq__", "__ne__"):
            return name == "__ne__"
        if _is_remote(other):
            return _request(self, operation, self, other)
        if mark.is_plain:
            return getattr(operator, operation)(_plain(self), other)
        raise _refusal(self, f"compared with a plain value ({type(other).__name__})")

    return compare


def _binary(operation: str, *, reflected: bool) -> Callable[..., Any]:
    def binary(self: Any, other: object, *rest: object) -> Any:
        operands = (other, self) if reflected else (self, other)
        result = _request(self, operation, *operands, *rest)
        if _is_remote(other) and not _knows_expected(self, other):
            return result
        link = link_of(result)
        if link is not None:
            link.knows_expected = True
            return result
        mark = mark_of(type(self))
        if mark.is_plain and operation in _LOCAL:
            left, right = (other, _plain(self)) if reflected else (_plain(self), other)
            return _LOCAL[operation](left, right, *rest)
        raise _refusal(self, f"turned into a plain value by an operator with {other!r:.80}")

    return binary


def _special(name: str, operation: str) -> Callable[..., Any]:
    def special(self: Any, *operands: object) -> Any:
        if name in NUMBERS and link_of(self).knows_expected:
            raise _refusal(self, "turned into a number after an operator with a plain value")
        return _request(self, operation, self, *operands)

    return special


def _knows_expected(*operands: object) -> bool:
    links = map(link_of, operands)
    return any(link is not None and link.knows_expected for link in links)


def _plain(self: object) -> Any:
    return _request(self, "plain", self)


def _refusal(self: object, what: str) -> Exception:
    name = type(self).__name__
    error: Exception = link_of(self).session.cannot(
        f"non-plain value: an object of the candidate's class {name} was {what}"
    )
    return error


def _call(self: Any, *arguments: object, **names: object) -> Any:
    return link_of(self).session.request("call", self, list(arguments), names)


def _next(self: Any) -> Any:
    return _request(self, "next", self)


def _iter(self: Any) -> Any:
    result = _request(self, "iter", self)
    return result if hasattr(type(result), "__next__") else iter(result)


def _exit(self: Any, _kind: object, error: object, _trace: object) -> Any:
    return _request(self, "exit", self, error)


def _boolean(operation: str) -> Callable[..., bool]:
    return lambda self, *operands: bool(_request(self, operation, self, *operands))


def _hash(self: Any) -> int:
    link = link_of(self)
    if link.session.is_reading:
        return int(link.hashed)
    result: int = link.session.request("hash", self)
    return result


class _Awaited:
    """An awaitable that is done at once: the worker runs the coroutine to its end."""

    def __await__(self: Any) -> Any:
        """Return the result without ever waiting."""
        return _request(self, "await", self)
        yield

    def send(self: Any, _value: object) -> Any:
        """Run the coroutine."""
        raise StopIteration(_request(self, "await", self))

    def throw(self: Any, error: Any, *_rest: object) -> Any:
        """Raise what an event loop throws in."""
        raise error

    def close(self) -> None:
        """Do nothing: there is nothing half done."""


_OWN: dict[str, Any] = {
    "__iter__": _iter,
    "__next__": _next,
    "__call__": _call,
    "__exit__": _exit,
    "__bool__": _boolean("bool"),
    "__contains__": _boolean("contains"),
    "__hash__": _hash,
}
_LOCAL: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in BINARY.values() if hasattr(operator, name)},
    "pow": pow,
    "divmod": divmod,
}


def _reduce(self: Any, _protocol: int) -> Any:
    what = f"the tests pickle an object of the candidate's class {type(self).__name__}"
    raise link_of(self).session.cannot(what)


def _common() -> dict[str, Any]:
    """Return what every stand-in has."""
    names: dict[str, Any] = {
        "__getattr__": _getattr,
        "__setattr__": _setattr,
        "__delattr__": _delattr,
        "__eq__": _compare("__eq__", "eq"),
        "__ne__": _compare("__ne__", "ne"),
        "__hash__": lambda self: hash((MODULE, link_of(self).number)),
        "__str__": _special("__str__", "str"),
        "__repr__": _special("__repr__", "repr"),
        "__format__": _special("__format__", "format"),
        "__dir__": _special("__dir__", "dir"),
        "__copy__": _special("__copy__", "copy"),
        "__deepcopy__": lambda self, _memo: _request(self, "deepcopy", self),
        "__reduce_ex__": _reduce,
    }
    for name, operation in COMPARISONS.items():
        names[name] = _compare(name, operation)
    for name, operation in BINARY.items():
        bare = name.strip("_")
        names[name] = _binary(operation, reflected=False)
        names[f"__r{bare}__"] = _binary(operation, reflected=True)
        if bare != "divmod":
            names[f"__i{bare}__"] = _binary(f"i{bare}", reflected=False)
    return names


def remote_class(
    link: Link,
    name: str,
    doc: object,
    bases: Sequence[type],
    known: tuple[list, list],  # type: ignore[type-arg]
) -> RemoteType:
    """Return the stand-in for a class of the candidate.

    Args:
        link: To the class.
        name: Of the class.
        doc: Its text, or None.
        bases: Stand-ins and types that stand for themselves.
        known: Names of its special methods and of its methods.
    """
    specials, methods = known
    mark = Mark(link, specials, methods)
    mark.is_plain = any(not is_error(base) and not isinstance(base, RemoteType) for base in bases)
    mark.is_plain |= any(mark_of(base).is_plain for base in bases if isinstance(base, RemoteType))
    names: dict[str, Any] = {MARK: mark, "__module__": MODULE, "__doc__": _Doc(doc)}
    if any(is_error(base) for base in bases):
        names["__getattr__"] = _getattr
        names["__str__"] = _error_text
    else:
        names.update(_common())
        names.update(_present(specials))
        names["__slots__"] = ()
        bases = [base for base in bases if isinstance(base, RemoteType)] or [Stand]
    return _made(name, tuple(bases), names)


def _made(name: str, bases: tuple[type, ...], names: dict[str, Any]) -> RemoteType:
    """Return a class; bases that do not go together here are left out."""
    try:
        return RemoteType(name, bases, names)
    except TypeError:
        return RemoteType(name, bases[:1], names)


def _present(specials: Sequence[str]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name in specials:
        operation = SPECIAL_METHODS.get(name)
        if name == "!__hash__":
            names["__hash__"] = None
        elif operation is not None and name != "__eq__":
            names[name] = _OWN.get(name) or _special(name, operation)
    if {"send", "throw", "__next__"}.issubset(specials):
        names["__class__"] = property(lambda _self: GeneratorType)
    if "__await__" in specials:
        own = vars(_Awaited)
        names.update({key: own[key] for key in ("__await__", "send", "throw", "close")})
    return names


class _Doc:
    """``__doc__`` of a stand-in: its own, as functions have, and of its class."""

    def __init__(self, doc: object) -> None:
        self._doc = doc

    def __get__(self, value: Any, _owner: type) -> Any:
        """Return the text."""
        if value is None or isinstance(value, BaseException):
            return self._doc
        return _request(value, "getattr", value, "__doc__")


def _error_text(self: Any) -> str:
    text = self.__dict__.get(TEXT)
    return text if isinstance(text, str) else BaseException.__str__(self)


class Stand:
    """What holds the link of a stand-in for an object."""

    __slots__ = (LINK, "__weakref__")


def stand_in(kind: RemoteType, link: Link) -> Any:
    """Return the stand-in for an object."""
    made: Any = object.__new__(cast("Any", kind))
    object.__setattr__(made, LINK, link)
    return made
