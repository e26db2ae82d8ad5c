"""In what two readings of one folder differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def difference(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Return in what two readings differ; empty when they agree or SecureBench refuses."""
    if "refused" in mine:
        return "" if mine["refused"] else "refused without a reason"
    if "refused" in theirs:
        return f"harbor refuses it: {theirs['refused']}"
    return _first_difference(theirs["read"], mine["read"], "")


def _first_difference(theirs: object, mine: object, place: str) -> str:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in theirs.keys() | mine.keys():
            one, other = theirs.get(key, "absent"), mine.get(key, "absent")
            if below := _first_difference(one, other, f"{place}.{key}"):
                return below
        return ""
    same = json.dumps(theirs, sort_keys=True) == json.dumps(mine, sort_keys=True)
    return "" if same else f"{place}: harbor has {theirs!r}, we have {mine!r}"
