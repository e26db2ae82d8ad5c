"""The end of a run that had begun and whose spec or pack this version of the operator refuses.

There is no plan then, and so nothing that a record of an open attempt would have to say: digests,
labels, the task itself. What is finished stands in the journal with the digest of its record.
"""

from __future__ import annotations

from securebench.controller.runtime.results_export import write_summary
from securebench.controller.volume.index import index_entry
from securebench.controller.volume.published import publish
from securebench.controller.volume.store import RunStore
from securebench.run.state.history import Finished, Kept, RunEnded


def seal_unplanned(store: RunStore, reason: str, message: str, now: float) -> None:
    """Write the results of the finished attempts, then the journal's last entry. Blocks.

    Args:
        store: The run's folder.
        reason: Reason of ``Succeeded``.
        message: One plain sentence.
        now: Seconds since the epoch.

    Raises:
        StorageError: Another operator has the journal, or it is corrupt.
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
        write_summary(store, entry.run_id, (known.finish for known in ends), sha256)
        if binding.get("audit") is not True:
            publish(store, entry, reason)
        if not any(isinstance(known, RunEnded) for known in journal.entries):
            journal.append([RunEnded(reason, message, now)])
    finally:
        journal.close()
