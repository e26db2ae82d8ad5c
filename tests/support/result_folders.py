"""Result folders as ``securebench results`` writes them, with real records in them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.record import verdict_fields
from support.records import history, record


def result_line(task_id: str, *, passed: bool | None = True, **changes: Any) -> dict[str, Any]:
    """Return the record of an attempt of a short answer; ``changes`` replace its fields."""
    made = json.loads(json.dumps(record(history()), default=str))
    if passed is None:
        del made["passed"], made["score"]
    return {**made, "task_id": task_id, **verdict_fields(passed), **changes}


def result_folder(
    folder: Path, lines: Iterable[dict[str, Any] | str], *, has_ended: bool = True
) -> Path:
    """Write records, and texts as they are, one a line, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if has_ended:
        (folder / SUMMARY).write_text("{}")
    with (folder / CANDIDATES).open("w", encoding="utf-8") as out:
        for line in lines:
            out.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return folder
