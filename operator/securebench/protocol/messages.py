"""What the operator and the programs inside its Pods agree on (docs/reference/protocol.md)."""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn

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

OPEN = "open"
CLOSED = "closed"
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
