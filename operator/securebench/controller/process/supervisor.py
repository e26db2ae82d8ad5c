"""One run loop for each active BenchmarkRun, started, woken and stopped by what kopf delivers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from securebench.controller.context import Context, RunObject
from securebench.controller.loop.lifecycle import RunLifecycle
from securebench.controller.loop.slots import RunSlots
from securebench.controller.loop_tasks import LatestSpec, LoopTasks, is_gone
from securebench.json_values import object_at, text_at
from securebench.names import AUDIT, PURPOSE_LABEL, QUEUE_LABEL
from securebench.run.api.conditions import read_conditions


class Supervisor:
    """Holds the run loops.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks = LoopTasks("run")
        self._specs: dict[str, LatestSpec] = {}
        settings = context.settings
        self._slots = RunSlots(settings.max_active_runs, settings.turn_seconds, context.clock)

    @property
    def active(self) -> int:
        """How many runs have a loop now."""
        return self._tasks.active

    @property
    def failed(self) -> int:
        """How many runs have a loop that failed and has not begun again yet."""
        return self._tasks.failed

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
        spec = self._specs.get(run.uid)
        if is_gone(kind, body):
            self._tasks.stop(run.uid)
            self._specs.pop(run.uid, None)
        elif spec is None:
            spec = self._specs[run.uid] = LatestSpec(run.spec, run.generation)
            self._start(run, spec)
        elif run.generation > spec.generation:
            spec.update(run.spec, run.generation)
            self._start(run, spec)

    async def close(self) -> None:
        """Stop all loops; their Pods keep running, and the next operator resumes the runs."""
        self._specs.clear()
        await self._tasks.close()

    def _start(self, run: RunObject, spec: LatestSpec) -> None:
        self._tasks.start(run.uid, run.name, partial(self._work, run, spec))

    async def _work(self, run: RunObject, spec: LatestSpec) -> None:
        await RunLifecycle(self._context, self._slots, run, spec).run()


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
