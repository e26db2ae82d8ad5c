"""One loop for each BenchmarkSuite, started, woken and stopped by what kopf delivers."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from securebench.controller.context import Context, SuiteObject, suite_object
from securebench.controller.loop_tasks import LoopTasks, is_gone
from securebench.controller.suites.suite_loop import SuiteLoop
from securebench.json_values import object_at, text_at
from securebench.names import SUITE_LABEL
from securebench.suite.progress import suite_run

logger = logging.getLogger(__name__)


class SuiteSupervisor:
    """Holds the loops of the suites.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tasks = LoopTasks("suite")
        self._loops: defaultdict[str, dict[str, SuiteLoop]] = defaultdict(dict)
        self._removals: set[asyncio.Task[None]] = set()
        self._runs: dict[str, tuple[str, bool]] = {}

    @property
    def active(self) -> int:
        """How many suites have a loop now."""
        return self._tasks.active

    @property
    def failed(self) -> int:
        """How many suites have a loop that failed and has not begun again yet."""
        return self._tasks.failed

    def observe_suite(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkSuite: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        suite = suite_object(body)
        known = self._loops[suite.name].get(suite.uid)
        if is_gone(kind, body):
            self._tasks.stop(suite.uid)
            if kind == "DELETED":
                self._forget(suite)
        elif known is not None:
            known.observe_event(suite)
        else:
            loop = self._loops[suite.name][suite.uid] = SuiteLoop(self._context, suite)
            self._tasks.start(suite.uid, suite.name, partial(_work, loop))

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun; its suite looks again when it appears, ends or goes.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        name = text_at(object_at(object_at(body, "metadata"), "labels"), SUITE_LABEL)
        if not name:
            return
        run = suite_run(body)
        if kind == "DELETED":
            self._runs.pop(run.uid, None)
        elif self._runs.get(run.uid) == (name, run.has_ended):
            return
        else:
            self._runs[run.uid] = name, run.has_ended
        for loop in self._loops.get(name, {}).values():
            loop.wake()

    async def close(self) -> None:
        """Stop all loops; the runs that they made go on."""
        self._loops.clear()
        await self._tasks.close()
        await asyncio.gather(*self._removals, return_exceptions=True)

    def _forget(self, suite: SuiteObject) -> None:
        """Remove what a deleted suite remembered; what its runs left stays."""
        loops = self._loops.pop(suite.name)
        loop = loops.pop(suite.uid, None) or SuiteLoop(self._context, suite)
        if loops:
            self._loops[suite.name] = loops
        task = asyncio.create_task(_remove_state(loop), name=f"removal of {suite.name}")
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)


async def _work(loop: SuiteLoop) -> None:
    """Run a loop until its suite is gone; a defect of ours says so before it starts again."""
    try:
        await loop.run()
    except Exception as error:
        await loop.report_failure(error)
        raise
    await _remove_state(loop)


async def _remove_state(loop: SuiteLoop) -> None:
    try:
        await loop.forget()
    except OSError as error:
        logger.warning(
            "suite %s: its folder on the volume stays until the operator starts again: %s",
            loop.name,
            error,
        )
