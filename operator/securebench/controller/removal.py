"""Deletes BenchmarkRuns and results whose TTL has expired.

Nothing but the cluster and the volume says what is due, so nothing is lost with the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path

from securebench.clock import rfc3339
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context, RunObject
from securebench.controller.events import EventRecorder
from securebench.controller.packs import remove_unused
from securebench.controller.suite_store import needed_by_suites
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import (
    FolderState,
    bindings,
    ended_at,
    folder_state,
    kept_runs,
    remove_folder,
    remove_results,
    run_folders,
    run_indexes,
)
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import SecureBenchError
from securebench.json_values import object_at
from securebench.run.decide.notices import Notice
from securebench.run.decide.retention import (
    ObservedRun,
    ResultsFolder,
    RetentionPlan,
    retention_plan,
)

logger = logging.getLogger(__name__)


TICK_SECONDS = 5.0
"""Polling interval of the runs with a time to live; each is one small file of the volume."""

SWEEP_SECONDS = 600.0
"""Longest interval between scans of the whole volume; a tenth of the time that results stay."""


RetentionHold = Callable[[Context], Awaitable[Collection[str]]]
"""Returns the uids of runs whose results something needs. While one of these fails, nothing is
removed."""


async def kept_by_hand(context: Context) -> Collection[str]:
    """Return the uids of the runs whose folder has a file ``KEEP``."""
    return await bulk_on_volume(kept_runs, context.settings.data_root)


RETENTION_HOLDS: Sequence[RetentionHold] = (kept_by_hand, needed_by_suites)
"""What protects results from removal, besides active BenchmarkRuns."""

REMOVED = Notice(
    "Remove",
    "ResultsRemoved",
    "the results were removed from the volume: their time is over"
    " (settings.retention.resultsTtlSeconds)",
    is_warning=False,
    key="",
)


class RetentionSweeper:
    """Deletes runs and results whose time to live has passed.

    Args:
        needs: Who else still needs results.
    """

    def __init__(self, context: Context, needs: Sequence[RetentionHold] = RETENTION_HOLDS) -> None:
        self._context = context
        self._needs = needs
        self._root: Path = context.settings.data_root
        self._ttl = context.settings.retention.results_ttl_seconds
        self._timed: dict[str, tuple[str, int]] = {}  # name and time to live, by uid
        self._swept_at: float | None = None

    def observe(self, kind: str | None, body: Raw) -> None:
        """Take an event of a BenchmarkRun.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
        """
        metadata = object_at(body, "metadata")
        uid, ttl = str(metadata.get("uid")), _ttl_seconds(body)
        if kind == "DELETED" or metadata.get("deletionTimestamp") or ttl is None:
            self._timed.pop(uid, None)
        else:
            self._timed[uid] = str(metadata.get("name")), ttl

    async def run(self) -> None:
        """Remove what is due, again and again."""
        while True:
            for uid, (name, ttl) in list(self._timed.items()):
                with _warned(f"run {name}"):
                    await self._look_at(uid, name, ttl)
            with _warned("results on the volume"):
                await self._sweep()
            await asyncio.sleep(TICK_SECONDS)

    async def _look_at(self, uid: str, name: str, ttl_seconds: int) -> None:
        ended = await on_volume(ended_at, self._root, uid)
        if ended is not None and self._context.clock.now() >= ended + ttl_seconds:
            await self._delete_run(uid, name, ended)

    async def _delete_run(self, uid: str, name: str, ended: float) -> None:
        """Delete a run unless its spec says something else by now."""
        cluster = self._context.cluster
        found = await cluster.get(ObjectKind.BENCHMARK_RUN, name)
        if found is None or str(object_at(found, "metadata").get("uid")) != uid:
            self._timed.pop(uid, None)
            return
        ttl = _ttl_seconds(found)
        if ttl is None or self._context.clock.now() < ended + ttl:
            self.observe(None, found)
            return
        logger.info("run %s: deleted, %s s after its end", name, ttl)
        await cluster.delete(ObjectKind.BENCHMARK_RUN, name, uid=uid, grace_seconds=None)
        self._timed.pop(uid, None)

    async def _sweep(self) -> None:
        if self._ttl is None:
            return
        now = self._context.clock.now()
        pause = min(self._ttl / 10, SWEEP_SECONDS)
        if self._swept_at is not None and now < self._swept_at + pause:
            return
        # The folders first: the run of a folder that is made meanwhile is in the list.
        folders = await bulk_on_volume(self._folders)
        listing = await self._context.cluster.list(ObjectKind.BENCHMARK_RUN, "")
        kept = {uid for need in self._needs for uid in await need(self._context)}
        going = retention_plan([_run(raw) for raw in listing.items], folders, self._ttl, now, kept)
        removed = await bulk_on_volume(self._remove, going, now)
        for entry in removed:
            await self._announce(entry)
        self._swept_at = now

    async def _announce(self, entry: IndexEntry) -> None:
        """Post that results are gone, also of a run whose BenchmarkRun is."""
        context = self._context
        place = context.settings.namespace
        run = RunObject(entry.run, entry.uid, place, generation=0, spec={})
        recorder = EventRecorder(context.cluster, run, context.clock, context.process)
        await recorder.post([REMOVED])

    def _folders(self) -> list[ResultsFolder]:
        known = {entry.uid: entry for entry in RunIndex(self._root).entries()}
        kept = []
        for uid in run_folders(self._root):
            entry = known.get(uid)
            with _warned(f"run {entry.run if entry is not None else uid}"):
                state = folder_state(self._root, uid)
                kept.append(_folder(state, entry))
        return kept

    def _remove(self, going: RetentionPlan, now: float) -> list[IndexEntry]:
        """Remove what is due and return the runs of which anything went."""
        known = {entry.uid: entry for entry in RunIndex(self._root).entries()}
        removed = []
        staging = self._context.lead.folder
        indexes = run_indexes(self._root, staging)
        for uids, remove in ((going.results, remove_results), (going.folders, remove_folder)):
            for uid in uids:
                with _warned(f"run {uid}"):
                    for index in indexes:
                        index.mark_removed(uid, rfc3339(now))
                    remove(self._root, uid)
                    logger.info("run %s: results removed from the volume", uid)
                    removed += [known[uid]] if uid in known else []
        if any(going):
            with _warned("packs that no run uses any more"):
                remove_unused(self._root, bindings(self._root), now)
        return removed


@contextlib.contextmanager
def _warned(what: str) -> Iterator[None]:
    """Log what goes wrong, so that it holds up nothing else."""
    try:
        yield
    except (SecureBenchError, OSError, ValueError, LookupError) as error:
        logger.warning("retention: %s: %s; tried again", what, error)


def _folder(state: FolderState, entry: IndexEntry | None) -> ResultsFolder:
    if entry is None:
        return ResultsFolder(state.uid, "", *state[1:])
    is_going = bool(entry.removed_at)
    return ResultsFolder(state.uid, entry.run, *state[1:], run_id=entry.run_id, is_going=is_going)


def _run(raw: Raw) -> ObservedRun:
    metadata, spec = object_at(raw, "metadata"), object_at(raw, "spec")
    needs = (object_at(spec, field).get("run") for field in ("resumeFrom", "regrade"))
    names = tuple(str(name) for name in needs if name)
    return ObservedRun(str(metadata.get("name")), str(metadata.get("uid")), names)


def _ttl_seconds(raw: Raw) -> int | None:
    value = object_at(object_at(raw, "spec"), "retention").get("ttlSecondsAfterFinished")
    return value if isinstance(value, int) and not isinstance(value, bool) else None
