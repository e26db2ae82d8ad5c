"""One run loop for each active BenchmarkRun, started, woken and stopped by what kopf delivers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from securebench.api.conditions import Reason, read_conditions
from securebench.controller.book import RunBook
from securebench.controller.context import Context
from securebench.controller.publish import Publisher
from securebench.controller.run_loop import RunLoop
from securebench.controller.start import BoundRun, RunObject, bind
from securebench.controller.wishes import Wishes
from securebench.durable import make_folder
from securebench.engine.observe import pod_view
from securebench.errors import (
    ClusterError,
    ConfigErrors,
    InvalidInputError,
    InvariantViolationError,
    PackError,
    StorageError,
)
from securebench.kube.port import Kind, QuotaExceeded
from securebench.ledger.index import RunIndex
from securebench.ledger.store import FINAL_STATUS, RunStore
from securebench.manifests.layout import gateway_name
from securebench.names import AUDIT, PURPOSE_LABEL, RUN_UID_LABEL

logger = logging.getLogger(__name__)

RESTART_SECONDS = 2.0
RESTART_LIMIT_SECONDS = 60.0
"""Back-off of a run loop that ended with an error; doubled each time up to the limit."""


@dataclass(slots=True)
class ActiveRun:
    """A run that this process looks after.

    Attributes:
        task: Its loop.
        wishes: What the user wants.
    """

    task: asyncio.Task[None]
    wishes: Wishes


class Supervisor:
    """Holds the run loops.

    Args:
        context: The operator's surroundings.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._runs: dict[str, ActiveRun] = {}

    @property
    def active(self) -> int:
        """How many runs have a loop now."""
        return sum(1 for run in self._runs.values() if not run.task.done())

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
            wishes = Wishes(run.spec, run.generation)
            self._runs[run.uid] = ActiveRun(self._start(run, wishes), wishes)
        elif known is not None and run.generation > known.wishes.generation:
            known.wishes.update(run.spec, run.generation)
            if known.task.done():
                known.task = self._start(run, known.wishes)

    async def close(self) -> None:
        """Stop all loops; what they began goes on in the cluster and is taken up again."""
        tasks = [run.task for run in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, run: RunObject, wishes: Wishes) -> asyncio.Task[None]:
        return asyncio.create_task(self._supervise(run, wishes), name=f"run {run.name}")

    async def _supervise(self, run: RunObject, wishes: Wishes) -> None:
        """Keep one run going until it has ended, whatever breaks in between."""
        publisher = self._publisher(run, wishes)
        pause = RESTART_SECONDS
        while True:
            generation = wishes.generation
            try:
                await self._run(run, wishes, publisher)
            except (ClusterError, StorageError, OSError) as error:
                reason, message = _trouble(error)
                logger.warning("run %s is held up: %s", run.name, message)
            except InvariantViolationError as error:
                reason, message = Reason.INTERNAL, error.reason
                logger.exception("run %s: loop failed", run.name)
            except Exception:
                reason, message = Reason.INTERNAL, "the run loop failed; see the operator's log"
                logger.exception("run %s: loop failed", run.name)
            else:
                if wishes.generation == generation:
                    return
                continue
            await self._announce(publisher, reason, message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RESTART_LIMIT_SECONDS)

    async def _announce(self, publisher: Publisher, reason: Reason, message: str) -> None:
        try:
            await publisher.announce(reason, message)
        except ClusterError as error:
            logger.warning("status: %s", error)

    async def _run(self, run: RunObject, wishes: Wishes, publisher: Publisher) -> None:
        store = RunStore(self._context.settings.data_root, run.uid)
        final = await asyncio.to_thread(store.read_final_status)
        if final is not None:
            await publisher.repeat(final)
            return
        try:
            bound = await bind(self._context, run)
        except InvalidInputError as error:
            await self._refuse(publisher, store, run.uid, error)
            return
        await self._loop(bound, wishes, publisher)

    async def _loop(self, bound: BoundRun, wishes: Wishes, publisher: Publisher) -> None:
        book = await RunBook.open(bound, self._context.clock)
        try:
            await RunLoop(self._context, bound, book, wishes, publisher).run()
            ended = book.history.ended
            if ended is not None:
                index = RunIndex(self._context.settings.data_root)
                uid = bound.plan.identity.uid
                await asyncio.to_thread(index.end, uid, ended.reason)
            await asyncio.to_thread(bound.store.write_json, FINAL_STATUS, publisher.written)
        finally:
            book.close()

    async def _refuse(
        self, publisher: Publisher, store: RunStore, uid: str, error: InvalidInputError
    ) -> None:
        """End a run that cannot go; one that went before leaves nothing in the cluster."""
        reason = Reason.PACK_INVALID if is_pack_error(error) else Reason.INVALID_SPEC
        if await asyncio.to_thread(store.exists):
            await self._take_away(uid)
            index = RunIndex(self._context.settings.data_root)
            await asyncio.to_thread(index.end, uid, reason.value)
        status = await publisher.refused(reason, str(error))
        await asyncio.to_thread(make_folder, store.folder)
        await asyncio.to_thread(store.write_json, FINAL_STATUS, status)

    async def _take_away(self, uid: str) -> None:
        cluster = self._context.cluster
        pods = await cluster.list(Kind.POD, f"{RUN_UID_LABEL}={uid}")
        for pod in filter(None, map(pod_view, pods.items)):
            await cluster.delete(Kind.POD, pod.name, uid=pod.uid, grace_seconds=None)
        await cluster.delete(Kind.SERVICE, gateway_name(uid), uid=None, grace_seconds=None)

    def _publisher(self, run: RunObject, wishes: Wishes) -> Publisher:
        return Publisher(
            self._context.cluster,
            run.name,
            wishes,
            self._context.clock,
            self._context.settings.status_interval_seconds,
            run.conditions,
        )


def is_pack_error(error: InvalidInputError) -> bool:
    """Whether the pack, and not the spec, has to change."""
    if isinstance(error, ConfigErrors):
        return all(is_pack_error(item) for item in error.errors)
    return isinstance(error, PackError)


def run_object(body: Mapping[str, object]) -> RunObject:
    """Return the parts of a BenchmarkRun that the controller works with."""
    metadata = body.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    spec, status = body.get("spec"), body.get("status")
    generation, labels = fields.get("generation"), fields.get("labels")
    return RunObject(
        name=str(fields.get("name")),
        uid=str(fields.get("uid")),
        namespace=str(fields.get("namespace")),
        generation=generation if isinstance(generation, int) else 0,
        spec=dict(spec) if isinstance(spec, Mapping) else {},
        audit=isinstance(labels, Mapping) and labels.get(PURPOSE_LABEL) == AUDIT,
        conditions=read_conditions(status.get("conditions") if isinstance(status, Mapping) else ()),
    )


def _is_deleting(body: Mapping[str, object]) -> bool:
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("deletionTimestamp"))


def _trouble(error: Exception) -> tuple[Reason, str]:
    if isinstance(error, QuotaExceeded):
        return Reason.QUOTA_EXCEEDED, error.reason
    if isinstance(error, ClusterError):
        return Reason.INTERNAL, f"the API server: {error}"
    if isinstance(error, OSError):
        return Reason.STORAGE_UNAVAILABLE, f"the results volume: {error.strerror or error}"
    return Reason.STORAGE_UNAVAILABLE, f"the results volume: {error}"
