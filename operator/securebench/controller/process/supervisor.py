"""One run loop for each active BenchmarkRun, started, woken and stopped by what kopf delivers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from securebench.controller.loop.lifecycle import RESTART_LIMIT_SECONDS, RunLifecycle
from securebench.controller.loop.slots import RunSlots
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.latest_spec import LatestSpec
from securebench.controller.runtime.prepared_run import RunObject
from securebench.core.json_values import object_at, text_at
from securebench.core.names import AUDIT, PURPOSE_LABEL, QUEUE_LABEL
from securebench.run.api.conditions import read_conditions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ActiveRun:
    """A run that this process looks after.

    Attributes:
        task: Its loop.
        spec: The latest one.
    """

    task: asyncio.Task[None]
    spec: LatestSpec


class Supervisor:
    """Holds the run loops.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._runs: dict[str, ActiveRun] = {}
        settings = context.settings
        self._slots = RunSlots(settings.max_active_runs, settings.turn_seconds, context.clock)

    @property
    def active(self) -> int:
        """How many runs have a loop now."""
        return sum(1 for run in self._runs.values() if not run.task.done())

    @property
    def failed(self) -> int:
        """How many runs have a loop that failed and has not been started again yet."""
        return sum(1 for run in self._runs.values() if _failure(run.task) is not None)

    @property
    def queued(self) -> int:
        """How many runs wait for a slot."""
        return self._slots.waiting

    @property
    def throttled_runs(self) -> int:
        """How many runs have Pods that a bound of the operator holds back."""
        return self._context.capacity.throttled_runs

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        run = run_object(body)
        known = self._runs.get(run.uid)
        is_gone = kind == "DELETED" or _is_deleting(body)
        if is_gone and known is not None:
            known.task.cancel()
            del self._runs[run.uid]
        elif not is_gone and known is None:
            spec = LatestSpec(run.spec, run.generation)
            self._runs[run.uid] = ActiveRun(self._start(run, spec), spec)
        elif known is not None and run.generation > known.spec.generation:
            known.spec.update(run.spec, run.generation)
            if known.task.done():
                known.task = self._start(run, known.spec)

    async def close(self) -> None:
        """Stop all loops; what they began goes on in the cluster and is taken up again."""
        tasks = [run.task for run in self._runs.values()]
        self._runs.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, run: RunObject, spec: LatestSpec) -> asyncio.Task[None]:
        lifecycle = RunLifecycle(self._context, self._slots, run, spec)
        task = asyncio.create_task(lifecycle.run(), name=f"run {run.name}")
        task.add_done_callback(partial(self._note_end, run, spec))
        return task

    def _note_end(self, run: RunObject, spec: LatestSpec, task: asyncio.Task[None]) -> None:
        """Have a loop started again that ended with an error which it did not handle itself."""
        error = _failure(task)
        if error is None:
            return
        logger.error("run %s: its loop failed and starts again later", run.name, exc_info=error)
        again = partial(self._start_again, run, spec, task)
        asyncio.get_running_loop().call_later(RESTART_LIMIT_SECONDS, again)

    def _start_again(self, run: RunObject, spec: LatestSpec, failed: asyncio.Task[None]) -> None:
        known = self._runs.get(run.uid)
        if known is not None and known.task is failed:
            known.task = self._start(run, spec)


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error that ended a task, or None."""
    return task.exception() if task.done() and not task.cancelled() else None


def run_object(body: Mapping[str, object]) -> RunObject:
    """Return the parts of a BenchmarkRun that the controller works with."""
    fields, status = object_at(body, "metadata"), object_at(body, "status")
    generation, labels = fields.get("generation"), object_at(fields, "labels")
    return RunObject(
        name=str(fields.get("name")),
        uid=str(fields.get("uid")),
        namespace=str(fields.get("namespace")),
        generation=generation if isinstance(generation, int) else 0,
        spec=dict(object_at(body, "spec")),
        audit=text_at(labels, PURPOSE_LABEL) == AUDIT,
        queue=text_at(labels, QUEUE_LABEL),
        conditions=read_conditions(status.get("conditions", ())),
        status=status,
    )


def _is_deleting(body: Mapping[str, object]) -> bool:
    return bool(object_at(body, "metadata").get("deletionTimestamp"))
