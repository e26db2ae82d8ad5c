"""What records of two runs with equal results have in common."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

TIMING_FIELDS = (
    "timing",
    "producer_metadata.duration_seconds",
    "verifier_metadata.duration_seconds",
)
"""Fields of a record that depend on time."""

STARTED_TWICE = "run_ordinal"
"""Counts how often the same run was started, so it differs by intent."""


def comparable(record: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Return a record without what differs between two runs with equal results.

    Args:
        record: Stays as it is.
        more: Dotted paths of other fields to leave out.
    """
    return without(record, *TIMING_FIELDS, STARTED_TWICE, *more)


def without(record: Mapping[str, Any], *paths: str) -> dict[str, Any]:
    """Return a copy of a record without the fields at these dotted paths."""
    result: dict[str, Any] = deepcopy(dict(record))
    for path in paths:
        *parents, last = path.split(".")
        part = result
        for name in parents:
            part = part.get(name) or {}
        part.pop(last, None)
    return result
