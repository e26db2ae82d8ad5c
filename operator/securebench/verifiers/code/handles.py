"""Handles, in the tests, for objects and classes of the candidate.

A handle asks the candidate's side for attributes, calls, the next item of an iteration and a
``with`` block, and whether it equals another handle. It is no value: whatever else the tests do
with it fails them, before the candidate learns of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, NamedTuple, Protocol, cast

from .frames import BrokenError
from .plain import MODULE, is_error
from .protocols import REFUSED

LINK = "_securebench_link_"
"""Name, in handles, of what ties them to the candidate's object."""

KIND = "_securebench_kind_"
"""Name, in classes of handles, of what is known of the candidate's class."""

TEXT = "_securebench_text_"
"""Name, in exceptions of the candidate's classes, of their text."""

GENERATOR = "generator"
"""Stands among the special methods of generators."""


class Peer(Protocol):
    """The candidate's side, as handles need it."""

    def request(self, operation: str, *operands: object) -> Any:
        """Ask for something and return the answer."""

    def cannot(self, what: str) -> Exception:
        """Return the exception for what handles cannot do; the tests have failed."""


class Link(NamedTuple):
    """The candidate's object behind a handle: where, and its number there."""

    peer: Peer
    number: int


class Kind(NamedTuple):
    """What is known of the candidate's class: itself, and names of its methods."""

    link: Link
    specials: frozenset[str]
    methods: frozenset[str]


def kind_of(kind: type) -> Kind:
    """Return what is known of a class of handles."""
    known: Kind = type.__getattribute__(kind, KIND)
    return known


def link_of(value: object) -> Link | None:
    """Return the link of a handle, else None."""
    if isinstance(value, HandleType):
        return kind_of(value).link
    if not isinstance(type(value), HandleType):
        return None
    try:
        return cast("Link", object.__getattribute__(value, LINK))
    except AttributeError:
        return None


def _ask(value: Any, operation: str, *operands: object) -> Any:
    link = link_of(value)
    if link is None:
        raise AttributeError(operation)
    return link.peer.request(operation, value, *operands)


def _refusal(value: Any, what: str) -> Exception:
    """Return the exception for an operation on a handle; the tests have failed."""
    return _failure(value, f"non-plain value: the tests use {what} on an object of")


def _failure(value: Any, what: str) -> Exception:
    kind = value if isinstance(value, HandleType) else type(value)
    return kind_of(kind).link.peer.cannot(f"{what} the candidate's class {kind.__name__:.100}")


def _refused(what: str) -> Callable[..., Any]:
    def refuse(self: Any, *_operands: object) -> Any:
        raise _refusal(self, what)

    return refuse


class HandleType(type):
    """Class of the classes of handles: the handle of a class of the candidate."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> HandleType:
        """Make a class; the tests themselves cannot derive from one."""
        if KIND not in names:
            owner = next(base for base in bases if isinstance(base, HandleType))
            raise kind_of(owner).link.peer.cannot(
                f"the tests derive class {name} from the candidate's class {owner.__name__}"
            )
        return super().__new__(cls, name, bases, names)

    def __call__(cls, *arguments: object, **names: object) -> Any:
        """Call the candidate's class."""
        return _call(cls, *arguments, **names)

    def __getattr__(cls, name: str) -> Any:
        """Get an attribute of the candidate's class."""
        if name in (LINK, KIND):
            raise AttributeError(name)
        return _ask(cls, "getattr", name)

    def __setattr__(cls, name: str, value: object) -> None:
        """Set an attribute of the candidate's class."""
        _ask(cls, "setattr", name, value)

    def __delattr__(cls, name: str) -> None:
        """Delete an attribute of the candidate's class."""
        _ask(cls, "delattr", name)

    def __iter__(cls) -> Any:
        """Iterate over the candidate's class, an enumeration for instance."""
        return _iter(cls)

    def __len__(cls) -> Any:
        """Return the length of the candidate's class."""
        return _len(cls)

    def __bool__(cls) -> bool:
        """Return true, as for every class."""
        return True

    __getitem__ = _refused("[]")
    __contains__ = _refused("in")


def _call(self: Any, *arguments: object, **names: object) -> Any:
    return _ask(self, "call", list(arguments), names)


def _iter(self: Any) -> Any:
    return _ask(self, "iter")


def _next(self: Any) -> Any:
    return _ask(self, "next")


def _len(self: Any) -> Any:
    return _ask(self, "len")


def _enter(self: Any) -> Any:
    return _ask(self, "enter")


def _exit(self: Any, _kind: object, error: BaseException | None, _trace: object) -> bool:
    """Leave a ``with`` block of the tests; the candidate has no say in how it ends."""
    if error is None:
        _ask(self, "exit", None)
        return False
    try:
        result = _ask(self, "exit", error)
    except BrokenError:
        raise
    except BaseException as other:  # noqa: BLE001  # the tests' own error counts
        if other is error:
            return False
        what = f"{type(error).__name__} of the tests becomes {type(other).__name__} in"
        raise _failure(self, f"{what} the with block of") from error
    if link_of(result) is None and not result:
        return False
    what = f"{type(error).__name__} of the tests is swallowed by the with block of"
    raise _failure(self, what) from error


def _equality(operation: str) -> Callable[[Any, object], bool]:
    """Return ``==`` or ``!=``: of objects without equality of their own it means identity."""

    def compare(self: Any, other: object) -> bool:
        if link_of(other) is None:
            sign = {"eq": "==", "ne": "!="}[operation]
            raise _refusal(self, f"{sign} with a plain value ({type(other).__name__})")
        if not any(_has_equality(value) for value in (self, other)):
            return (self is other) == (operation == "eq")
        result = _ask(self, operation, other)
        if type(result) is not bool:
            raise _refusal(self, "== that is neither true nor false")
        return result

    return compare


def _has_equality(value: object) -> bool:
    return isinstance(type(value), HandleType) and "__eq__" in kind_of(type(value)).specials


class Handle:
    """What handles for objects have in common; a class of the candidate's adds what it can do."""

    __slots__ = (LINK, "__weakref__")

    def __getattr__(self, name: str) -> Any:
        """Get an attribute of the candidate's object."""
        if name in (LINK, KIND):
            raise AttributeError(name)
        if name in kind_of(type(self)).methods:
            return Method(self, name)
        return _ask(self, "getattr", name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the candidate's object."""
        _ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        """Delete an attribute of the candidate's object."""
        _ask(self, "delattr", name)

    def __hash__(self) -> int:
        """Return the identity's hash; an object with equality of its own has none here."""
        if _has_equality(self):
            raise _refusal(self, "hash(), as sets and dictionaries do,")
        return object.__hash__(self)

    def __str__(self) -> str:
        """Return the text of the candidate's object."""
        return str(_ask(self, "str"))

    def __repr__(self) -> str:
        """Return the representation of the candidate's object."""
        return str(_ask(self, "repr"))

    def __format__(self, form: str) -> str:
        """Return the text of the candidate's object."""
        if form:
            raise _refusal(self, f"format {form!r}")
        return str(self)

    __eq__ = _equality("eq")
    __ne__ = _equality("ne")


for _name, _what in REFUSED.items():
    setattr(Handle, _name, _refused(_what))


class Method:
    """A method of a handle; it is looked up when it is called."""

    def __init__(self, owner: object, name: str) -> None:
        self.__self__ = owner
        self.__name__ = name

    def __call__(self, *arguments: object, **names: object) -> Any:
        """Call the candidate's method."""
        return _ask(self.__self__, "method", self.__name__, list(arguments), names)

    def __getattr__(self, name: str) -> Any:
        """Get an attribute of the candidate's method."""
        if name.startswith("_securebench"):
            raise AttributeError(name)
        return getattr(_ask(self.__self__, "getattr", self.__name__), name)


class _Awaited:
    """An awaitable that is done at once: the worker runs the coroutine to its end."""

    def __await__(self: Any) -> Any:
        """Return the result without ever waiting."""
        return _ask(self, "await")
        yield

    def send(self: Any, _value: object) -> Any:
        """Run the coroutine."""
        raise StopIteration(_ask(self, "await"))

    def throw(self: Any, error: Any, *_rest: object) -> Any:
        """Raise what an event loop throws in."""
        raise error

    def close(self) -> None:
        """Do nothing: there is nothing half done."""

    cr_code = gi_code = None
    cr_running = gi_running = False
    SEEN = ("cr_code", "gi_code", "cr_running", "gi_running")
    """What event loops look at."""


_ABILITIES: dict[str, dict[str, Any]] = {
    "__call__": {"__call__": _call},
    "__iter__": {"__iter__": _iter},
    "__next__": {"__next__": _next},
    "__len__": {"__len__": _len},
    "__enter__": {"__enter__": _enter},
    "__exit__": {"__exit__": _exit},
    "__await__": {
        name: vars(_Awaited)[name]
        for name in ("__await__", "send", "throw", "close", *_Awaited.SEEN)
    },
    GENERATOR: {"__class__": property(lambda _self: GeneratorType)},
}
"""What a handle has for each special method of its class."""


class _Doc:
    """``__doc__`` of a handle: its own, as functions have, and of its class."""

    def __init__(self, doc: object) -> None:
        self._doc = doc

    def __get__(self, value: Any, _owner: type) -> Any:
        """Return the text."""
        if value is None or isinstance(value, BaseException):
            return self._doc
        return _ask(value, "getattr", "__doc__")


def _error_attribute(self: Any, name: str) -> Any:
    if name in (LINK, KIND):
        raise AttributeError(name)
    return _ask(self, "getattr", name)


def _error_text(self: Any) -> str:
    text = self.__dict__.get(TEXT)
    return text if isinstance(text, str) else BaseException.__str__(self)


def handle_type(kind: Kind, name: str, doc: object, bases: Sequence[type]) -> HandleType:
    """Return the class of handles for a class of the candidate.

    Args:
        kind: What is known of it.
        name: Of the class.
        doc: Its text, or None.
        bases: Classes of handles, and types that stand for themselves.
    """
    names: dict[str, Any] = {KIND: kind, "__module__": MODULE, "__doc__": _Doc(doc)}
    if any(map(is_error, bases)):
        names.update(__getattr__=_error_attribute, __str__=_error_text)
    else:
        names["__slots__"] = ()
        for special in kind.specials:
            names.update(_ABILITIES.get(special, {}))
        bases = [base for base in bases if isinstance(base, HandleType)] or [Handle]
    try:
        return HandleType(name, tuple(bases), names)
    except TypeError:  # bases that do not go together here are left out
        return HandleType(name, tuple(bases[:1]), names)


def handle(kind: HandleType, number: int) -> Any:
    """Return a handle for an object with its number over there."""
    made: Any = object.__new__(cast("Any", kind))
    object.__setattr__(made, LINK, Link(kind_of(kind).link.peer, number))
    return made
