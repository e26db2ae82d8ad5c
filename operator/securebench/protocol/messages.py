"""What the operator and the programs inside its Pods exchange (docs/reference/protocol.md).

A program gets a specification on its command line and answers with an exit code and a termination
message: strict JSON, at most 4 KiB out.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import IntEnum
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

from securebench.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance

VERSION = 1
"""Of specifications (``version``) and of termination messages (``v``)."""

MAX_MESSAGE_BYTES = 4096
"""What the kubelet keeps of a termination message."""

MEMORY_PEAK_BYTES = "memory_peak_bytes"
CPU_PERIODS = "cpu_periods"
CPU_THROTTLED = "cpu_throttled"
USAGE_FIELDS = frozenset({MEMORY_PEAK_BYTES, CPU_PERIODS, CPU_THROTTLED})
"""Fields of a termination message with what its container took; each may be missing."""

FRAMEWORK_FOLDER = "securebench"
"""Below every workspace; ours alone, never part of a candidate."""

OPEN: Final = "open"
CLOSED: Final = "closed"
"""States of a probe's targets."""

_DEEP = "nested too deeply"


def decode_object(text: str | bytes) -> dict[str, object]:
    """Decode one JSON object; text in it that is no Unicode is refused.

    Raises:
        ValueError: It is anything else, or as of ``decode_value``.
    """
    value = decode_value(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - text of another form, no bug
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError(_DEEP) from None
    return value


def decode_value(text: str | bytes) -> object:
    """Decode one JSON value.

    Duplicate keys, numbers that are not finite and any encoding but plain UTF-8 are refused: not
    every reader would see the same value.

    Raises:
        ValueError: It is anything else, or nested too deeply.
    """
    plain = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value: object = json.loads(
            plain, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
        )
    except RecursionError:
        raise ValueError(_DEEP) from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key")
    return result


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refuse(text)


STORAGE_FAILED = 74
"""Of a courier that a disk failed, not what it found (EX_IOERR); its message says how."""


class Code(IntEnum):
    """Exit codes that supervise alone produces."""

    DONE = 0
    FAILED = 1
    PHASE_FAILED = 64
    STAGING_FAILED = 90
    TERMINATED = 91
    OWN_FAULT = 92
    NETWORK_OPEN = 93
    TAMPERED = 94
    UNFIT = 95
    HALTED = 96
    TIMED_OUT = 124


VERDICTS = frozenset({Code.DONE, Code.FAILED, Code.TAMPERED, Code.UNFIT, Code.TIMED_OUT})
PHASES = range(Code.PHASE_FAILED, Code.STAGING_FAILED)


Absolute = Annotated[str, "absolute"]
"""Clean absolute path in a container."""

AbsoluteOrNone = Annotated[str, "absolute or empty"]
"""The same, or empty."""

Relative = Annotated[str, "relative"]
"""Clean relative path of something below its root."""


@dataclass(frozen=True, slots=True)
class DigestedPath:
    """A file or folder that is compared with its digest before anything reads it.

    Attributes:
        path: Absolute, in the container.
        digest: ``sha256:…``, of a folder the tree digest.
    """

    path: Absolute
    digest: str


def is_optional(field: Field[Any]) -> bool:
    """Tell whether a specification leaves a field out where it is false, zero, empty or None.

    These are the fields of which that is the default. Go reads a missing one in the same way.
    """
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is not MISSING and not default


def encode_spec(spec: DataclassInstance) -> str:
    """Return a specification with its version as one line of JSON in ASCII.

    No ``$`` is left in it: the kubelet would replace ``$(NAME)`` by the variable's value, which may
    be a secret, and ``$$`` by ``$``.

    Args:
        spec: A dataclass; its keys come in the order of its fields.
    """
    text = json.dumps(
        {"version": VERSION, **spec_object(spec)},
        separators=(",", ":"),
        allow_nan=False,
        default=spec_object,
    )
    return text.replace("$", "\\u0024")


def spec_object(value: object) -> dict[str, object]:
    """Return a specification, or a part of one, as an object of JSON.

    Args:
        value: A dataclass; what it holds is as it was.

    Raises:
        TypeError: It is anything else.
    """
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"no part of a specification: {type(value).__name__}")
    values = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: content for each, content in values if content or not is_optional(each)}


def decode_spec(text: str | bytes) -> dict[str, object]:
    """Decode one JSON object; duplicate keys and non-finite numbers are errors.

    Raises:
        SpecError: It is anything else.
    """
    try:
        return decode_object(text)
    except ValueError as error:
        raise SpecError(f"not a JSON object: {error}") from error


def require_fields(fields: Mapping[str, object], names: Sequence[str]) -> None:
    """Raise SpecError unless an object has exactly these fields."""
    if set(fields) != set(names):
        odd = ", ".join(sorted(set(fields) ^ set(names)))
        raise SpecError(f"missing or unknown fields: {odd}")


def section(fields: Mapping[str, object], name: str, names: Sequence[str]) -> dict[str, object]:
    """Return an object inside an object, which must have exactly some fields.

    Raises:
        SpecError: It has not.
    """
    value = fields[name]
    if not isinstance(value, dict):
        raise SpecError(f"{name} must be an object")
    require_fields(value, names)
    return value


def text(fields: Mapping[str, object], name: str) -> str:
    """Return a field that must be a non-empty string, or raise SpecError."""
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise SpecError(f"{name} must be a non-empty string")
    return value


def require_version(fields: Mapping[str, object]) -> None:
    """Raise SpecError unless the object is of the version that this program speaks."""
    if fields.get("version") != VERSION or isinstance(fields.get("version"), bool):
        raise SpecError(f"version must be {VERSION}")


def encode_message(fields: Mapping[str, object]) -> bytes:
    """Return a termination message.

    Args:
        fields: All of it but the version; it must fit.
    """
    message = json.dumps({"v": VERSION, **fields}, separators=(",", ":"), allow_nan=False)
    return message.encode("ascii")
