"""How values of exact builtin and standard types are taken apart and put together."""

from __future__ import annotations

import binascii
import collections
import datetime as dt
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from .frames import MalformedError


class Form(NamedTuple):
    """An immutable type. Its parts are values again; None means that this value is no data."""

    kind: type
    parts: Callable[[Any], Sequence[object] | None]
    build: Callable[..., object]


class Container(NamedTuple):
    """A mutable type: what makes an empty one, from attributes of the old one."""

    kind: type
    make: Callable[..., object]
    attributes: tuple[str, ...] = ()


def _read(*names: str) -> Callable[[Any], Sequence[object]]:
    return lambda value: [getattr(value, name) for name in names]


def _without_zone(value: Any) -> Sequence[object] | None:
    return None if value.tzinfo is not None else [value.isoformat(), value.fold]


def _time(kind: Any) -> Callable[[Any, Any], object]:
    return lambda text, fold: kind.fromisoformat(text).replace(fold=fold)


def _fraction(numerator: Any, denominator: Any) -> Fraction:
    return Fraction(operator.index(numerator), operator.index(denominator))


_BOUNDS = _read("start", "stop", "step")
_DAYS = _read("days", "seconds", "microseconds")
FORMS: dict[str, Form] = {
    "t": Form(tuple, tuple, lambda *items: items),
    "f": Form(frozenset, tuple, lambda *items: frozenset(items)),
    "i": Form(int, lambda value: [format(value, "x")], lambda text: int(text, 16)),
    "u": Form(
        str,
        lambda value: [value.encode("utf-8", "surrogatepass").hex()],
        lambda text: bytes.fromhex(text).decode("utf-8", "surrogatepass"),
    ),
    "b": Form(bytes, lambda value: [binascii.b2a_base64(value).decode()], binascii.a2b_base64),
    "j": Form(complex, _read("real", "imag"), complex),
    "r": Form(range, _BOUNDS, range),
    "sl": Form(slice, _BOUNDS, slice),
    "e": Form(type(...), _read(), lambda: ...),
    "ni": Form(type(NotImplemented), _read(), lambda: NotImplemented),
    "vk": Form(type({}.keys()), tuple, lambda *items: dict.fromkeys(items).keys()),
    "vv": Form(type({}.values()), tuple, lambda *items: dict(enumerate(items)).values()),
    "vi": Form(type({}.items()), tuple, lambda *items: dict(items).items()),
    "D": Form(Decimal, lambda value: [str(value)], Decimal),
    "F": Form(Fraction, _read("numerator", "denominator"), _fraction),
    "td": Form(dt.timedelta, _DAYS, dt.timedelta),
    "da": Form(dt.date, lambda value: [value.isoformat()], dt.date.fromisoformat),
    "dt": Form(dt.datetime, _without_zone, _time(dt.datetime)),
    "ti": Form(dt.time, _without_zone, _time(dt.time)),
}
"""By tag. Numbers and texts are here for what JSON cannot hold."""

_DEQUE = Container(collections.deque, lambda size: collections.deque(maxlen=size), ("maxlen",))
CONTAINERS: dict[str, Container] = {
    "l": Container(list, list),
    "d": Container(dict, dict),
    "s": Container(set, set),
    "B": Container(bytearray, bytearray),
    "od": Container(collections.OrderedDict, collections.OrderedDict),
    "ct": Container(collections.Counter, collections.Counter),
    "dq": _DEQUE,
    "dd": Container(collections.defaultdict, collections.defaultdict, ("default_factory",)),
}
FORM_TAGS = {form.kind: tag for tag, form in FORMS.items()}
CONTAINER_TAGS = {container.kind: tag for tag, container in CONTAINERS.items()}


def contents(value: Any) -> list[Any] | None:
    """Return the items of a mutable container, None for everything else."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if type(value) in CONTAINER_TAGS else None


def fill(target: Any, items: list[Any]) -> None:
    """Replace the contents of a mutable container."""
    if type(target) not in CONTAINER_TAGS:
        raise MalformedError("new contents for a value that cannot change")
    target.clear()
    if isinstance(target, dict):
        half = len(items) // 2
        for key, item in zip(items[:half], items[half:]):  # noqa: B905  # Python 3.8
            target[key] = item
    else:
        (target.update if isinstance(target, set) else target.extend)(items)
