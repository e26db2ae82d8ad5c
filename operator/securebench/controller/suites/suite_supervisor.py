"""One loop for each BenchmarkSuite, started, woken and stopped by what kopf delivers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from securebench.controller.runtime.context import Context
from securebench.controller.suites.suite_loop import RETRY_LIMIT_SECONDS, SuiteLoop
from securebench.controller.suites.suite_object import suite_object
from securebench.controller.volume.suite_store import SuiteStore
from securebench.core.json_values import object_at, text_at
from securebench.core.names import SUITE_LABEL
from securebench.suite.progress import seen_run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Active:
    name: str
    task: asyncio.Task[None]
    loop: SuiteLoop


class SuiteSupervisor:
    """Holds the loops of the suites.

    Args:
        context: Shared parts of the operator: client, settings, clock.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._suites: dict[str, _Active] = {}
        self._stopped: dict[str, asyncio.Task[None]] = {}
        self._removals: set[asyncio.Task[None]] = set()
        self._runs: dict[str, tuple[str, bool]] = {}

    def observe_suite(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkSuite: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        suite = suite_object(body)
        known = self._suites.get(suite.uid)
        if kind == "DELETED" or object_at(body, "metadata").get("deletionTimestamp"):
            if known is not None:
                known.task.cancel()
                self._stopped[suite.uid] = self._suites.pop(suite.uid).task
            if kind == "DELETED":
                self._remove_state(suite.uid)
        elif known is None:
            loop = SuiteLoop(self._context, suite)
            task = asyncio.create_task(self._work(loop, suite.name), name=f"suite {suite.name}")
            self._suites[suite.uid] = _Active(suite.name, task, loop)
        else:
            known.loop.update(suite)

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of a BenchmarkRun; its suite looks again when it appears, ends or goes.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
            body: The object.
        """
        name = text_at(object_at(object_at(body, "metadata"), "labels"), SUITE_LABEL)
        if not name:
            return
        run = seen_run(body)
        if kind == "DELETED":
            self._runs.pop(run.uid, None)
        elif self._runs.get(run.uid) == (name, run.has_ended):
            return
        else:
            self._runs[run.uid] = name, run.has_ended
        for active in self._suites.values():
            if active.name == name:
                active.loop.wake()

    async def close(self) -> None:
        """Stop all loops; the runs that they made go on."""
        tasks = [active.task for active in self._suites.values()]
        self._suites.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._removals, return_exceptions=True)

    async def _work(self, loop: SuiteLoop, name: str) -> None:
        """Run a loop; one that fails by a defect of ours starts again."""
        while True:
            try:
                await loop.run()
            except Exception as error:
                logger.exception("suite %s: its loop failed and starts again later", name)
                await loop.report_failure(error)
            await asyncio.sleep(RETRY_LIMIT_SECONDS)

    def _remove_state(self, uid: str) -> None:
        task = asyncio.create_task(self._forget(uid, self._stopped.pop(uid, None)))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _forget(self, uid: str, stopped: asyncio.Task[None] | None) -> None:
        """Remove what a deleted suite remembered, behind its loop; what its runs left stays."""
        if stopped is not None:
            await asyncio.wait([stopped])
        try:
            await asyncio.to_thread(SuiteStore(self._context.settings.data_root, uid).remove)
        except OSError as error:
            logger.warning("suite %s: its folder on the volume stays: %s", uid, error)
