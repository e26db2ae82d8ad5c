"""egress.jsonl: what the run's gateway decided for every launch, in one file.

Each line is one of the gateway's with ``task_id``, ``task``, ``attempt`` and ``launch`` before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from securebench.controller.volume.store import RunStore
from securebench.core.sizes import MIB
from securebench.files.durable import replacing
from securebench.protocol.gateway import LAUNCHES
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import EGRESS
from securebench.run.api.status import MAX_TASK_ID
from securebench.run.plan.keys import harness_launch
from securebench.run.plan.model import RunPlan

MAX_BYTES = 256 * MIB
"""Of the file; a line says how many more lines there were."""

MAX_LINE = 8192
"""Of one line of the gateway, which bounds every text in it; a longer one is none of its own."""


class Log(NamedTuple):
    """The log of one launch."""

    task: int
    attempt: int
    launch: int
    path: Path


def merge_logs(store: RunStore, plan: RunPlan) -> None:
    """Write egress.jsonl from the logs of all launches, in the order of the pack. Blocks.

    Nothing happens where the gateway left no logs.

    Args:
        store: The run's folder.
        plan: The run.

    Raises:
        OSError: The volume did not do what was asked.
    """
    logs = sorted(_logs(store, plan))
    if not logs:
        return
    with replacing(store.folder / EGRESS, store.staging) as file:
        _write(file, plan, logs)


def _write(file: BinaryIO, plan: RunPlan, logs: list[Log]) -> None:
    size = dropped = 0
    for log in logs:
        place = {
            "task_id": plan.tasks[log.task].task.id[:MAX_TASK_ID],
            "task": log.task,
            "attempt": log.attempt,
            "launch": log.launch,
        }
        for entry in _entries(log.path):
            line = json.dumps(place | entry | place).encode() + b"\n"
            if size + len(line) > MAX_BYTES:
                dropped += 1
            else:
                size += file.write(line)
    if dropped:
        file.write(json.dumps({"dropped_lines": dropped}).encode() + b"\n")


def _entries(path: Path) -> Iterator[dict[str, object]]:
    """Yield the whole lines of a log; one that was cut, as at the end of a gateway, is left out."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE):
            try:
                yield dict(decode_object(line))
            except ValueError:
                continue


def _logs(store: RunStore, plan: RunPlan) -> Iterator[Log]:
    for path in (store.gateway_folder / LAUNCHES).glob("*.jsonl"):
        launch = harness_launch(plan.identity.uid, path.stem)
        if launch is not None and launch.task in plan.tasks:
            yield Log(launch.task, launch.attempt, launch.launch, path)
