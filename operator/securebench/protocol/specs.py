"""What the programs inside Pods are told and what they answer: strict JSON, at most 4 KiB out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from securebench.core.errors import SpecError
from securebench.protocol import messages
from securebench.protocol.messages import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def decode_object(text: str | bytes) -> dict[str, object]:
    """Decode one JSON object; duplicate keys and non-finite numbers are errors.

    Raises:
        SpecError: It is anything else.
    """
    try:
        return messages.decode_object(text)
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
