"""A task's lanes on the volume: written once, found again after a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from securebench.benchmark.files.materialize import write_answer, write_lanes
from securebench.benchmark.pack.lane_plan import LaneSet
from securebench.benchmark.pack.oracle import ReferenceAnswer
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.files.durable import replace_file
from securebench.run.plan.model import TaskPlan

WRITTEN = "lanes.json"
_ADAPTER = TypeAdapter(LaneSet)


class LaneKeeper:
    """Writes lanes before the first launch of a task and removes them after the last.

    Attempts of one task share its lanes, so they are never rewritten below a running Pod.

    Args:
        store: The run's folder.
        pack_root: Folder of the frozen pack's manifest.
        task_file: Workspace path of the public payload.
        answers: Reference answers by task id; empty for every harness but an oracle.
    """

    def __init__(
        self,
        store: RunStore,
        pack_root: Path,
        task_file: str,
        answers: Mapping[str, ReferenceAnswer],
    ) -> None:
        self._store = store
        self._answers = answers
        self._pack_root = pack_root
        self._task_file = task_file
        self._known: dict[int, LaneSet] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def lanes(self, task: TaskPlan) -> LaneSet:
        """Return a task's lanes, written if need be."""
        async with self._locks.setdefault(task.index, asyncio.Lock()):
            if task.index not in self._known:
                self._known[task.index] = await on_volume(self._find_or_write, task)
            return self._known[task.index]

    async def remove(self, task: int) -> None:
        """Remove a task's lanes."""
        self._known.pop(task, None)
        self._locks.pop(task, None)
        await bulk_on_volume(self._remove, task)

    def _find_or_write(self, task: TaskPlan) -> LaneSet:
        folder = self._store.lanes_folder(task.index)
        note = folder.parent / WRITTEN
        with contextlib.suppress(FileNotFoundError):
            return _ADAPTER.validate_json(note.read_bytes())
        lanes = write_lanes(task.task, self._pack_root, folder, task_file=self._task_file)
        answer = self._answers.get(task.task.id)
        if answer is not None:
            lanes = replace(lanes, oracle_digest=write_answer(answer, folder))
        replace_file(note, _ADAPTER.dump_json(lanes))
        return lanes

    def _remove(self, task: int) -> None:
        (self._store.lanes_folder(task).parent / WRITTEN).unlink(missing_ok=True)
        self._store.remove_lanes(task)
