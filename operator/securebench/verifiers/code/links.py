"""What ties stand-ins, in the tests, to the candidate's objects and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .session import Session

LINK = "_securebench_link_"
"""Name, in stand-ins, of what ties them to the candidate's object."""

MARK = "_securebench_mark_"
"""Name, in classes of stand-ins, of what is known of the candidate's class."""

TEXT = "_securebench_text_"
"""Name, in exceptions of the candidate's classes, of their text."""

MODULE = "securebench_candidate"


class Link:
    """The candidate's object behind a stand-in.

    Args:
        session: The connection.
        number: The object's number in the worker.
        hashed: Its hash when it crossed; used where nothing can be asked.
    """

    __slots__ = ("hashed", "knows_expected", "number", "session")

    def __init__(self, session: Session, number: int, hashed: int = 0) -> None:
        self.session = session
        self.number = number
        self.hashed = hashed
        self.knows_expected = False


class Mark:
    """What the class of a stand-in knows of the candidate's class."""

    __slots__ = ("has_equality", "is_plain", "link", "methods")

    def __init__(self, link: Link, specials: Sequence[str], methods: Sequence[str]) -> None:
        self.link = link
        self.methods = frozenset(methods)
        self.has_equality = "__eq__" in specials
        self.is_plain = False


def link_of(value: object) -> Any:
    """Return the link of a stand-in for an object, else None."""
    if isinstance(type(value), RemoteType):
        return value.__dict__.get(LINK) if isinstance(value, BaseException) else _raw_link(value)
    return None


def mark_of(kind: object) -> Any:
    """Return what is known of a stand-in's class, None for every other class."""
    return type.__getattribute__(kind, MARK) if isinstance(kind, RemoteType) else None


def _raw_link(value: object) -> Any:
    try:
        return object.__getattribute__(value, LINK)
    except AttributeError:
        return None


class RemoteType(type):
    """Class of the classes of stand-ins: a stand-in for a class of the candidate."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> RemoteType:
        """Make a stand-in; the tests themselves cannot derive from one."""
        if MARK not in names:
            owner = next(base for base in bases if isinstance(base, RemoteType))
            raise mark_of(owner).link.session.cannot(
                f"the tests derive class {name} from the candidate's class {owner.__name__}"
            )
        return super().__new__(cls, name, bases, names)

    def __call__(cls, *arguments: object, **names: object) -> Any:
        """Make an object of the candidate's class."""
        return _class_link(cls).session.request("construct", cls, list(arguments), names)

    def __getattr__(cls, name: str) -> Any:
        """Get an attribute of the candidate's class."""
        if name in (LINK, MARK):
            raise AttributeError(name)
        return _ask(cls, "getattr", cls, name)

    def __setattr__(cls, name: str, value: object) -> None:
        """Set an attribute of the candidate's class."""
        _ask(cls, "setattr", cls, name, value)

    def __iter__(cls) -> Iterator[Any]:
        """Iterate over the candidate's class, an enumeration for instance."""
        return iter(_ask(cls, "iter", cls))

    def __len__(cls) -> int:
        """Return the length of the candidate's class."""
        result: int = _ask(cls, "len", cls)
        return result

    def __bool__(cls) -> bool:
        """Return true, as for every class."""
        return True

    def __getitem__(cls, key: object) -> Any:
        """Get an item of the candidate's class."""
        return _ask(cls, "getitem", cls, key)

    def __contains__(cls, item: object) -> bool:
        """Tell whether the candidate's class contains something."""
        return bool(_ask(cls, "contains", cls, item))


def _class_link(kind: type) -> Link:
    link: Link = mark_of(kind).link
    return link


def _ask(kind: type, operation: str, *operands: object) -> Any:
    return _class_link(kind).session.request(operation, *operands)


class RemoteMethod:
    """A method of a stand-in; it is looked up when it is called."""

    def __init__(self, owner: object, name: str) -> None:
        self.__self__ = owner
        self.__name__ = name

    def __call__(self, *arguments: object, **names: object) -> Any:
        """Call the candidate's method."""
        session = link_of(self.__self__).session
        return session.request("method", self.__self__, self.__name__, list(arguments), names)

    def __getattr__(self, name: str) -> Any:
        """Get an attribute of the candidate's method."""
        if name.startswith("_securebench"):
            raise AttributeError(name)
        method = link_of(self.__self__).session.request("getattr", self.__self__, self.__name__)
        return getattr(method, name)
