"""Handles, in the tests, for objects and classes of the candidate.

A handle asks the candidate's side for attributes, calls, the next item of an iteration and a
``with`` block, and whether it equals another handle. It is no value: whatever else the tests do
with it fails them before the candidate learns of it, or it could answer with what they expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import GeneratorType
from typing import Any, cast

from .frames import BrokenError
from .plain import MODULE, is_error

PEER, SPECIALS = "_securebench_peer_", "_securebench_specials_"
"""Names, in classes of handles, of the candidate's side and of what its class has."""

TEXT = "_securebench_text_"
"""Name, in exceptions of the candidate's classes, of their text."""

_ARITHMETIC = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "lshift": "<<", "rshift": ">>", "and": "&", "or": "|", "xor": "^",
    "divmod": "divmod()",
}  # fmt: skip
_OTHERS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~",
    "bool": "a truth value", "contains": "in", "getitem": "[]", "setitem": "[]", "delitem": "[]",
    "int": "int()", "float": "float()", "complex": "complex()", "bytes": "bytes()",
    "abs": "abs()", "round": "round()", "index": "an index", "reversed": "reversed()",
    "trunc": "math.trunc()", "floor": "math.floor()", "ceil": "math.ceil()", "await": "await",
    "aenter": "async with", "aexit": "async with", "aiter": "async for", "anext": "async for",
    "copy": "copy.copy()", "deepcopy": "copy.deepcopy()", "reduce_ex": "pickle",
}  # fmt: skip
REFUSED = {
    **{f"__{name}__": sign for name, sign in {**_ARITHMETIC, **_OTHERS}.items()},
    **{f"__{way}{name}__": sign for way in "ri" for name, sign in _ARITHMETIC.items()},
}
"""Special methods that every handle has; each fails the tests with these words."""


def is_handle(value: object) -> bool:
    """Tell whether a value stands for an object or a class of the candidate."""
    return isinstance(_class_of(value), HandleType)


def _class_of(value: object) -> Any:
    return value if isinstance(value, HandleType) else type(value)


def _ask(value: Any, operation: str, *operands: object) -> Any:
    return getattr(_class_of(value), PEER).request(operation, value, *operands)


def _failure(value: Any, what: str) -> Exception:
    """Return the exception for what handles cannot do; the tests have failed."""
    kind = _class_of(value)
    error: Exception = getattr(kind, PEER).cannot(
        f"{what} the candidate's class {kind.__name__:.100}"
    )
    return error


def _refusal(value: Any, what: str) -> Exception:
    return _failure(value, f"non-plain value: the tests use {what} on an object of")


def _refused(what: str) -> Callable[..., Any]:
    def refuse(self: Any, *_operands: object) -> Any:
        raise _refusal(self, what)

    return refuse


def _asked(operation: str) -> Callable[..., Any]:
    return lambda self, *operands: _ask(self, operation, *operands)


def _attribute(self: Any, name: str) -> Any:
    if name in (PEER, SPECIALS):
        raise AttributeError(name)
    return _ask(self, "getattr", name)


def _call(self: Any, *arguments: object, **names: object) -> Any:
    return _ask(self, "call", list(arguments), names)


class HandleType(type):
    """Class of the classes of handles: the handle of a class of the candidate."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> HandleType:
        """Make a class; the tests themselves cannot derive from one."""
        if PEER not in names:
            owner = next(base for base in bases if isinstance(base, HandleType))
            raise _failure(owner, f"the tests derive class {name} from")
        return super().__new__(cls, name, bases, names)

    __call__ = _call
    __getattr__ = _attribute
    __setattr__ = _asked("setattr")
    __delattr__ = _asked("delattr")
    __iter__ = _asked("iter")
    __len__ = _asked("len")
    __getitem__ = _refused("[]")
    __contains__ = _refused("in")

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
    raise _failure(self, what) from error


def _has_equality(value: object) -> bool:
    return "__eq__" in getattr(type(value), SPECIALS, ())


def _equality(operation: str, sign: str) -> Callable[[Any, object], bool]:
    """Return ``==`` or ``!=``: of objects without equality of their own it means identity."""

    def compare(self: Any, other: object) -> bool:
        if not is_handle(other):
            raise _refusal(self, f"{sign} with a plain value ({type(other).__name__})")
        if not (_has_equality(self) or _has_equality(other)):
            return (self is other) == (operation == "eq")
        result = _ask(self, operation, other)
        if type(result) is not bool:
            raise _refusal(self, "== that is neither true nor false")
        return result

    return compare


class Handle:
    """What handles for objects have in common; a class of the candidate's adds what it can do."""

    __slots__ = ("__weakref__",)
    __getattr__ = _attribute
    __setattr__ = _asked("setattr")
    __delattr__ = _asked("delattr")
    __eq__ = _equality("eq", "==")
    __ne__ = _equality("ne", "!=")
    __str__ = _asked("str")
    __repr__ = _asked("repr")

    def __hash__(self) -> int:
        """Return the identity's hash; an object with equality of its own has none here."""
        if _has_equality(self):
            raise _refusal(self, "hash(), as sets and dictionaries do,")
        return object.__hash__(self)

    def __format__(self, form: str) -> str:
        """Return the text of the candidate's object."""
        if form:
            raise _refusal(self, f"format {form!r}")
        return str(self)


for _name, _what in REFUSED.items():
    setattr(Handle, _name, _refused(_what))


class _Doc:
    """``__doc__`` of a handle or of a class of handles."""

    def __get__(self, value: Any, owner: Any) -> Any:
        return _ask(owner if value is None else value, "getattr", "__doc__")


ABILITIES: dict[str, object] = {
    "__call__": _call,
    "__iter__": _asked("iter"),
    "__next__": _asked("next"),
    "__len__": _asked("len"),
    "__enter__": _asked("enter"),
    "__exit__": _exit,
    "__class__": property(lambda _self: GeneratorType),
}
"""What a handle has for each special method of its class; ``__class__`` is named for generators.

Not ``__eq__``: a class that defines it has no hash of its own any more.
"""


def _error_text(self: Any) -> str:
    text = self.__dict__.get(TEXT)
    return text if isinstance(text, str) else BaseException.__str__(self)


def handle_type(peer: Any, name: str, bases: Sequence[type], specials: Iterable[str]) -> HandleType:
    """Return the class of handles for a class of the candidate.

    Args:
        peer: The candidate's side: its ``request`` asks, its ``cannot`` fails the tests.
        name: Name of the class.
        bases: Its own: classes of handles, and types that stand for themselves.
        specials: Its special methods, among ``__eq__`` and those of ``ABILITIES``.
    """
    known = frozenset(specials)
    names: dict[str, Any] = {PEER: peer, SPECIALS: known, "__module__": MODULE, "__doc__": _Doc()}
    if any(map(is_error, bases)):
        names.update(__getattr__=_attribute, __str__=_error_text)
    else:
        names["__slots__"] = ()
        names.update((special, ABILITIES[special]) for special in known & ABILITIES.keys())
        bases = [base for base in bases if isinstance(base, HandleType)] or [Handle]
    try:
        return HandleType(name, tuple(bases), names)
    except TypeError:  # bases that do not go together here are left out
        return HandleType(name, tuple(bases[:1]), names)


def handle(kind: HandleType) -> Any:
    """Return a handle for an object of a class."""
    return object.__new__(cast("Any", kind))
