"""The access logs of the fake internet: JSON lines, only ever appended to.

Every test puts a marker of its own into names, paths or bodies and reads the lines that hold it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from outside.places import LOGS

KINDS = ("dns", "connect", "tls", "http", "origin", "provider")

Entry = dict[str, Any]


def write(kind: str, **fields: object) -> None:
    """Append one line; lines of several processes do not mix."""
    LOGS.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"time": round(time.time(), 3), **fields}, ensure_ascii=False)
    with _path(kind).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def entries(kind: str, marker: str = "", since: float = 0.0) -> list[Entry]:
    """Return the lines that hold a marker.

    Args:
        kind: One of KINDS.
        marker: Any text; upper and lower case are the same.
        since: Lines before this time, as of ``time.time()``, are left out.
    """
    if not _path(kind).exists():
        return []
    lines = _path(kind).read_text(encoding="utf-8").splitlines()
    found = (json.loads(line) for line in lines if marker.lower() in line.lower())
    return [entry for entry in found if entry["time"] >= since]


def seen(marker: str, since: float = 0.0) -> dict[str, list[Entry]]:
    """Return the lines of every log that hold a marker; logs without one are left out."""
    found = {kind: entries(kind, marker, since) for kind in KINDS}
    return {kind: lines for kind, lines in found.items() if lines}


def _path(kind: str) -> Path:
    if kind not in KINDS:
        raise ValueError(f"no log {kind!r}: {', '.join(KINDS)}")
    return LOGS / f"{kind}.jsonl"
