"""Stand-ins, in the tests, for objects, classes and exceptions of the candidate.

A handle asks the candidate's side for attributes, calls, items and a ``with`` block; what comes
back is a value or another handle. It is no value itself: equality, order, containment, truth and
hash of an object would be what the candidate says of it, and arithmetic with a value would show it
what the tests expect. Both fail the tests before the candidate learns of it.

A class of exceptions is one of ours: derived from Python's own class of that name where the tests
may catch it, else from Exception alone. So no name that the candidate binds catches an exception of
the tests, and none of its exceptions ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from .frames import BrokenError
from .plain import MODULE, is_error

PEER, SPECIALS = "_securebench_peer_", "_securebench_specials_"
"""Names, in classes of handles, of the candidate's side and of what its class has."""

TEXT = "_securebench_text_"
"""Name, in exceptions of the candidate, of their text."""

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
    "divmod": "divmod()",
}  # fmt: skip
COMPARED = {
    "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
    "__bool__": "a truth value", "__hash__": "hash()", "__contains__": "in",
}  # fmt: skip
"""Special methods that every handle has; each fails the tests: compare a value."""

_REFUSED = {
    "await": "await", "aenter": "async with", "aexit": "async with", "aiter": "async for",
    "anext": "async for", "copy": "copy.copy()", "deepcopy": "copy.deepcopy()",
    "reduce_ex": "pickle", "reversed": "reversed()",
}  # fmt: skip
_UNARY = (
    *("neg", "pos", "invert", "abs", "int", "float", "complex", "index", "bytes", "trunc"),
    *("floor", "ceil"),
)

INSPECTED = frozenset(
    ("__signature__", "__code__", "__globals__", "__closure__", "__defaults__", "__kwdefaults__")
)
"""Attributes of functions that have no form on the other side."""


def is_handle(value: object) -> bool:
    """Tell whether a value stands for an object or a class of the candidate."""
    return isinstance(_class_of(value), HandleType)


def _class_of(value: object) -> Any:
    return value if isinstance(value, HandleType) else type(value)


def _peer(value: Any) -> Any:
    return getattr(_class_of(value), PEER)


def _ask(value: Any, operation: str, *operands: object) -> Any:
    if operation != "call" or isinstance(value, HandleType):
        _peer(value).rests_on_objects()  # of a class, what it makes or holds
    return _peer(value).request(operation, value, *operands)


def _refusal(value: Any, what: str) -> Exception:
    kind = _class_of(value)
    error: Exception = _peer(value).cannot(f"{what} the candidate's class {kind.__name__:.100}")
    return error


def _refused(what: str) -> Callable[..., Any]:
    def refuse(self: Any, *_operands: object) -> Any:
        raise _refusal(self, f"non-plain value: the tests use {what} on an object of")

    return refuse


def _compared(sign: str) -> Callable[..., Any]:
    def refuse(self: Any, *_operands: object) -> Any:
        raise _refusal(self, f"compare a value: the tests use {sign} on an object of")

    return refuse


def _asked(operation: str) -> Callable[..., Any]:
    return lambda self, *operands: _ask(self, operation, *operands)


def _binary(special: str, sign: str, *, is_reflected: bool = False) -> Callable[..., Any]:
    """Return an operator between two handles; a value beside one is shown to no candidate."""

    def operate(self: Any, other: Any, *_modulus: object) -> Any:
        if not is_handle(other):
            raise _refusal(
                self, f"compare a value: the tests use {sign} between a value and an object of"
            )
        operands = (other, self) if is_reflected else (self, other)
        _peer(self).rests_on_objects()
        return _peer(self).request("binary", special, *operands)

    return operate


def _attribute(self: Any, name: str) -> Any:
    if name in (PEER, SPECIALS, TEXT):
        raise AttributeError(name)
    if name in INSPECTED:
        raise _refusal(self, f"the tests inspect {name} of")
    return _peer(self).attribute(_ask(self, "getattr", name), name)


def _error_attribute(self: Any, name: str) -> Any:
    """Return what the candidate's exception has; Python itself looks for names with underscores."""
    if name[:2] == "__":
        raise AttributeError(name)
    return _attribute(self, name)


def _call(self: Any, /, *arguments: object, **names: object) -> Any:
    return _ask(self, "call", list(arguments), names)


def in_place(function: Any) -> Any:
    """Return what calls a function of the candidate for what it does to its arguments."""
    if not is_handle(function):
        return function

    def call(*arguments: object, **names: object) -> Any:
        return _peer(function).request("call", function, list(arguments), names, in_place=True)

    return call


class HandleType(type):
    """Class of the classes of handles: the handle of a class of the candidate."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> HandleType:
        """Make a class; the tests themselves cannot derive from one."""
        if PEER not in names:
            owner = next(base for base in bases if isinstance(base, HandleType))
            raise _refusal(owner, f"the tests derive class {name} from")
        return super().__new__(cls, name, bases, names)

    __call__ = _call
    __getattr__ = _attribute
    __setattr__ = _asked("setattr")
    __delattr__ = _asked("delattr")
    __iter__ = _asked("iter")
    __len__ = _asked("len")
    __getitem__ = _asked("getitem")
    __contains__ = _compared("in")

    def __bool__(cls) -> bool:
        """Return true, as for every class."""
        return True


def _exit(self: Any, _kind: object, error: BaseException | None, _trace: object) -> bool:
    """Leave a ``with`` block of the tests; the candidate has no say in how it ends."""
    try:
        result = _ask(self, "exit", error)
    except BrokenError:
        raise
    except BaseException as other:  # the tests' own error counts
        if error is None:
            raise
        if other is error:
            return False
        ended = f"becomes {type(other).__name__} in"
    else:
        if error is None or not (is_handle(result) or result):
            return False
        ended = "is swallowed by"
    what = f"{type(error).__name__} of the tests {ended} the with block of"
    raise _refusal(self, what) from error


class Handle:
    """What handles for objects have in common; a class of the candidate's adds what it can do."""

    __slots__ = ("__weakref__",)
    __getattr__ = _attribute
    __setattr__ = _asked("setattr")
    __delattr__ = _asked("delattr")
    __str__ = _asked("str")
    __repr__ = _asked("repr")

    def __format__(self, form: str) -> str:
        """Return the text of the candidate's object."""
        return str(_ask(self, "format", form))


for _name, _what in COMPARED.items():
    setattr(Handle, _name, _compared(_what))
for _name, _what in _REFUSED.items():
    setattr(Handle, f"__{_name}__", _refused(_what))
for _name, _what in _BINARY.items():
    setattr(Handle, f"__{_name}__", _binary(f"__{_name}__", _what))
    setattr(Handle, f"__r{_name}__", _binary(f"__{_name}__", _what, is_reflected=True))


class _Doc:
    """``__doc__`` of a handle or of a class of handles."""

    def __get__(self, value: Any, owner: Any) -> Any:
        return _ask(owner if value is None else value, "getattr", "__doc__")


ABILITIES: dict[str, object] = {
    "__call__": _call,
    "__iter__": _asked("iter"),
    "__next__": _asked("next"),
    "__len__": _asked("len"),
    "__getitem__": _asked("getitem"),
    "__setitem__": _asked("setitem"),
    "__delitem__": _asked("delitem"),
    "__enter__": _asked("enter"),
    "__exit__": _exit,
    "__round__": lambda self, *digits: _ask(self, "unary", "__round__", *digits),
}
"""What a handle has for each special method of its class."""


def _unary(special: str) -> Callable[..., Any]:
    return lambda self: _ask(self, "unary", special)


for _name in _UNARY:
    ABILITIES[f"__{_name}__"] = _unary(f"__{_name}__")


def _error_text(self: Any) -> str:
    text = self.__dict__.get(TEXT)
    return text if isinstance(text, str) else BaseException.__str__(self)


def handle_type(
    peer: Any, name: str, bases: Sequence[type], specials: Iterable[str], root: type | None
) -> HandleType:
    """Return the class that stands for a class of the candidate.

    Args:
        peer: The candidate's side: its ``request`` asks, its ``cannot`` fails the tests.
        name: Name of the class.
        bases: Stand-ins of its bases.
        specials: Its special methods, among those of ``ABILITIES``.
        root: For an exception, what it derives from besides: Python's own class of its name, or
            Exception; None for every other class.
    """
    names: dict[str, Any] = {PEER: peer, "__module__": MODULE, "__doc__": _Doc()}
    if root is not None:
        names.update(__getattr__=_error_attribute, __str__=_error_text)
        own = [base for base in bases if is_error(base)]
        fitting = own if any(issubclass(base, root) for base in own) else [*own, root]
    else:
        names["__slots__"] = ()
        names.update((special, ABILITIES[special]) for special in specials if special in ABILITIES)
        fitting = [base for base in bases if not is_error(base)] or [Handle]
    try:
        return HandleType(name, tuple(fitting), names)
    except TypeError:  # bases that do not go together here are left out
        return HandleType(name, tuple(fitting[-1:]), names)


def handle(kind: HandleType) -> Any:
    """Return a handle for an object of a class."""
    return object.__new__(cast("Any", kind))
