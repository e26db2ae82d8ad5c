"""The ids of the tasks of a run's pack, for testers who name one before it has a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from securebench.benchmark.reading.rows import split_lines
from securebench.controller.admission.pack_source import frozen
from securebench.controller.volume.store import RunStore
from securebench.errors import InvalidInputError
from securebench.json_values import object_in, text_at
from securebench.run import layout
from securebench.text import did_you_mean

Answer = dict[str, object]


def list_tasks(root: Path, uid: str, sink: IO[bytes]) -> Answer:
    """Send the ids of all rows of a run's pack as a JSON list, in pack order.

    Raises:
        InvalidInputError: The run has not begun.
    """
    ids = task_ids(root, uid)
    data = json.dumps(ids).encode()
    sink.write(data)
    return {"tasks": len(ids), "sent": len(data)}


def task_index(root: Path, uid: str, task: str) -> int:
    """Return the index of a task, which ``#INDEX`` names too; that form goes first.

    Raises:
        InvalidInputError: The run has not begun, or its pack has no such task.
    """
    number = task.removeprefix("#")
    index = int(number) if number != task and number.isdecimal() else None
    if index is not None and (root / layout.task_folder(uid, index)).is_dir():
        # Who follows a task asks often, and task files are large.
        return index
    ids = task_ids(root, uid)
    if index is not None and index < len(ids):
        return index
    if task in ids:
        return ids.index(task)
    raise InvalidInputError(f"the run's pack has no task {task!r}{did_you_mean([task], ids)}")


def task_ids(root: Path, uid: str) -> list[str]:
    """Return the ids of all rows of a run's pack, in pack order.

    Raises:
        InvalidInputError: The run has not begun.
    """
    store = RunStore(root, uid)
    if not store.exists():
        raise InvalidInputError("the run has not begun yet")
    binding = store.binding()
    pack = frozen(root, text_at(binding, "pack_digest"))
    with pack.tasks.open("rb") as lines:
        return [text_at(object_in(json.loads(line.content)), "id") for line in split_lines(lines)]
