"""The end of a run that had begun and whose spec or pack this version of the operator refuses.

Without a plan there are no digests, labels or tasks, so open attempts get no record. Finished
attempts are in the journal with the digests of their records.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.reporting.publish import Publisher, sealed
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.prepared_run import RunObject
from securebench.controller.runtime.results_export import (
    Totals,
    seal_statement,
    write_summary,
)
from securebench.controller.volume.index import RunIndex, index_entry
from securebench.controller.volume.published import publish
from securebench.controller.volume.store import RunStore
from securebench.core.names import RUN_UID_LABEL
from securebench.files.durable import make_folder
from securebench.protocol.volume import FINAL_STATUS
from securebench.run.api.conditions import Reason
from securebench.run.layout import gateway_name
from securebench.run.observe.pods import pod_view
from securebench.run.state.history import Finished, Kept, LaunchLost, RunEnded

SEALING_BYTES = 64 << 20
"""Memory for publishing records without a plan: four times the default bound of a record."""


class UnplannedEnd:
    """Ends one run without its plan.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        store: Its folder on the volume.
        publisher: Of its status.
    """

    def __init__(
        self, context: Context, run: RunObject, store: RunStore, publisher: Publisher
    ) -> None:
        self._context = context
        self._run = run
        self._store = store
        self._publisher = publisher

    async def end(self, reason: Reason, message: str) -> None:
        """Leave nothing of the run in the cluster, seal what it finished, and say why it ended.

        Args:
            reason: Reason of ``Succeeded``.
            message: One plain sentence.

        Raises:
            ClusterError: The API server refused something; may be called again.
            StorageError: A later leader has the journal, or it is corrupt.
            OSError: The volume did not do what was asked; may be called again.
        """
        unsigned, had_begun = "", await asyncio.to_thread(self._store.exists)
        if had_begun:
            await self._delete_objects()
            await self._context.reading.run_within(
                SEALING_BYTES, partial(self._seal, reason, message)
            )
            unsigned = await asyncio.to_thread(seal_statement, self._store, self._context.settings)
            root, staging = self._context.settings.data_root, self._store.staging
            index = RunIndex(root, staging=staging)
            await asyncio.to_thread(index.end, self._run.uid, reason.value)
        seal = sealed(unsigned) if had_begun else None
        status: Raw = await self._publisher.refused(reason, message, seal)
        await asyncio.to_thread(make_folder, self._store.folder)
        await asyncio.to_thread(self._store.write_json, FINAL_STATUS, status)

    async def _seal(self, reason: Reason, message: str) -> None:
        now = self._context.clock.now()
        await asyncio.to_thread(_seal_results, self._store, reason.value, message, now)

    async def _delete_objects(self) -> None:
        cluster, uid = self._context.cluster, self._run.uid
        pods = await cluster.list(ObjectKind.POD, f"{RUN_UID_LABEL}={uid}")
        for pod in filter(None, map(pod_view, pods.items)):
            await cluster.delete(ObjectKind.POD, pod.name, uid=pod.uid, grace_seconds=None)
        await cluster.delete(ObjectKind.SERVICE, gateway_name(uid), uid=None, grace_seconds=None)


def _seal_results(store: RunStore, reason: str, message: str, now: float) -> None:
    """Write the results of the finished attempts, then the journal's last entry. Blocks.

    Args:
        store: The run's folder.
        reason: Reason of ``Succeeded``.
        message: One plain sentence.
        now: Seconds since the epoch.

    Raises:
        StorageError: A later leader has the journal, or it is corrupt.
        OSError: The volume did not do what was asked; may be called again.
    """
    binding, journal = store.binding(), store.open_journal()
    entry = index_entry(binding["index"])
    try:
        ends = sorted(
            (known for known in journal.entries if isinstance(known, Finished | Kept)),
            key=lambda known: known.finish.key,
        )
        _, sha256 = store.export((known.finish.key, known.record_sha256) for known in ends)
        lost = (known.lost.reason for known in journal.entries if isinstance(known, LaunchLost))
        finishes = (known.finish for known in ends)
        write_summary(store, entry.run_id, finishes, sha256, Totals(None, Counter(lost)))
        if binding.get("audit") is not True:
            publish(store, entry, reason)
        if not any(isinstance(known, RunEnded) for known in journal.entries):
            journal.append([RunEnded(reason, message, now)])
    finally:
        journal.close()
