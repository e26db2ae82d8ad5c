"""The end of a run that had begun and whose spec or pack this version of the operator refuses.

Without a plan there are no digests, labels or tasks, so open attempts get no record. Finished
attempts are in the journal with the digests of their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from securebench.cluster.port import ObjectKind
from securebench.controller.context import Context, RunObject
from securebench.controller.reporting.publish import Publisher, sealed
from securebench.controller.sealing import EndedRun, Exported, Totals, seal_run
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.registers import index_entry
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import (
    on_volume,
    open_on_volume,
    surely_on_volume,
)
from securebench.json_values import number_at, object_at
from securebench.names import RUN_UID_LABEL
from securebench.protocol.bounds import RECORD_BYTES
from securebench.run.api.conditions import Reason
from securebench.run.layout import gateway_name
from securebench.run.observe.pods import pod_view
from securebench.run.state.entries import Entry, Finished, Kept, LaunchLost, RunEnded
from securebench.run.state.resource_noise import entry_noise


class UnplannedEnd:
    """Ends one run without its plan.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        run: The BenchmarkRun.
        store: Its folder on the volume.
        publisher: Publisher of its status.
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
        seal = None
        if await on_volume(self._store.exists):
            await self._delete_objects()
            seal = sealed((await self._seal(reason, message)).unsigned)
        status = await self._publisher.refused(reason, message, seal)
        await on_volume(self._store.write_final_status, status)

    async def _seal(self, reason: Reason, message: str) -> Exported:
        store = self._store
        binding = await on_volume(store.binding)
        journal = await open_on_volume(store.open_journal, Journal.close)
        try:
            last = RunEnded(reason.value, message, self._context.clock.now())
            journal_end = partial(on_volume, _append_end, journal, last)
            ended = _ended_run(binding, journal.entries)
            return await seal_run(self._context, store, ended, reason.value, journal_end)
        finally:
            await surely_on_volume(journal.close)

    async def _delete_objects(self) -> None:
        cluster, uid = self._context.cluster, self._run.uid
        pods = await cluster.list(ObjectKind.POD, f"{RUN_UID_LABEL}={uid}")
        for pod in filter(None, map(pod_view, pods.items)):
            await cluster.delete(ObjectKind.POD, pod.name, uid=pod.uid, grace_seconds=None)
        await cluster.delete(ObjectKind.SERVICE, gateway_name(uid), uid=None, grace_seconds=None)


def _ended_run(binding: Mapping[str, object], entries: Sequence[Entry]) -> EndedRun:
    """Return what binding and journal tell of a run without its plan."""
    ends = sorted(
        (entry for entry in entries if isinstance(entry, Finished | Kept)),
        key=lambda entry: entry.finish.key,
    )
    lost = Counter(entry.lost.reason for entry in entries if isinstance(entry, LaunchLost))
    noise = Counter(kind for entry in entries for kind in entry_noise(entry))
    record_bytes = number_at(object_at(binding, "limits"), "record_bytes")
    return EndedRun(
        index=index_entry(binding["index"]),
        records=[(entry.finish.key, entry.record_sha256) for entry in ends],
        finishes=[entry.finish for entry in ends],
        totals=Totals(None, lost, noise),
        is_audit=binding.get("audit") is True,
        record_bytes=int(record_bytes or RECORD_BYTES),
    )


def _append_end(journal: Journal, last: RunEnded) -> None:
    if not any(isinstance(entry, RunEnded) for entry in journal.entries):
        journal.append([last])
