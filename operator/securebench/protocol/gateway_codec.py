"""Text of the records that operator and gateway leave for each other on the volume."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from securebench.protocol.messages import decode_object

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from securebench.protocol.gateway_config import GatewayConfig
    from securebench.protocol.gateway_report import LaunchReport

Record = TypeVar("Record", "GatewayConfig", "LaunchReport")


def encode(record: DataclassInstance) -> bytes:
    """Return a record as one JSON object."""
    return json.dumps(asdict(record), sort_keys=True, allow_nan=False).encode() + b"\n"


def decode(kind: type[Record], text: str | bytes) -> Record:
    """Return the record of a text; fields that are missing have their defaults.

    Args:
        kind: GatewayConfig or LaunchReport.
        text: One JSON object.

    Raises:
        ValueError: It is anything else, a value is of another type, or a field is unknown.
    """
    raw = decode_object(text)
    try:
        record = TypeAdapter(kind).validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise ValueError(f"not a {kind.__name__}: {_first(error)}") from None
    if unknown := sorted(_unknown(raw, asdict(record))):
        raise ValueError(f"not a {kind.__name__}: unknown field {unknown[0]}")
    return record


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}"


def _unknown(raw: object, known: object) -> list[str]:
    if not isinstance(raw, dict) or not isinstance(known, dict):
        return []
    inner = [name for key in raw.keys() & known.keys() for name in _unknown(raw[key], known[key])]
    return [*(raw.keys() - known.keys()), *inner]
