"""index.jsonl: one line per run ever started, so that repeated tries stay visible."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from securebench.attestation.starts import StartedRun
from securebench.core.errors import StorageError
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.messages import decode_object
from securebench.run.layout import RUNS

INDEX = "index.jsonl"
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class IndexEntry(StartedRun):
    """One run.

    Attributes:
        run_ordinal: How often this run id was started with these digests, from 1.
        resume_generation: 0 for a run that resumes none.
        outcome: Reason of ``Succeeded``, empty while it is active.
        start: Number of its line in the list of started runs; 0 for none.
        removed_at: When its results were removed from the volume, RFC 3339; empty while they lie
            there.
        tries: Runs of the same agent and model on the same pack that were started up to this one,
            whatever their names, run ids and other settings. A regrade starts no agent and adds
            none.
    """

    run_ordinal: int = 1
    resume_generation: int = 0
    outcome: str = ""
    start: int = 0
    removed_at: str = ""
    tries: int = 1

    def binding(self) -> tuple[str, str, str, str]:
        """Return what must be equal for results to belong together."""
        return self.run_id, self.pack_digest, self.harness_digest, self.verifier_version

    def is_try_like(self, other: IndexEntry) -> bool:
        """Whether an agent like the other's was started on the same pack."""
        mine, theirs = ((each.pack_digest, each.agent, each.model) for each in (self, other))
        return mine == theirs and not self.regrade_of


_ADAPTER = TypeAdapter(IndexEntry)


def index_entry(value: object) -> IndexEntry:
    """Return the entry of a JSON object.

    Raises:
        ValueError: It is none.
    """
    return _ADAPTER.validate_python(value)


class RunIndex:
    """The index of one volume.

    Args:
        root: Where the volume is mounted.
        folder: Below it.
        staging: Where the new content is written, as of ``durable.replacing``.
    """

    def __init__(self, root: Path, folder: str = RUNS, *, staging: Path | None = None) -> None:
        self._staging = staging
        self._path = root / folder / INDEX

    def entries(self) -> list[IndexEntry]:
        """Return all entries, oldest first.

        Raises:
            StorageError: A line is no entry.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_bytes().split(b"\n")
            return [index_entry(decode_object(line)) for line in lines if line]
        except (ValueError, TypeError):
            place = f"{self._path.parent.name}/{self._path.name}"
            raise StorageError(f"{place} on the results volume is damaged") from None

    def add(self, entry: IndexEntry) -> IndexEntry:
        """Add a run, or return the entry that it has already."""
        with _LOCK:
            entries = self.entries()
            for known in entries:
                if known.uid == entry.uid:
                    return known
            same = sum(1 for known in entries if known.binding() == entry.binding())
            tries = sum(known.is_try_like(entry) for known in entries) + (not entry.regrade_of)
            counted = replace(entry, run_ordinal=same + 1, tries=tries)
            self._write([*entries, counted])
            return counted

    def end(self, uid: str, outcome: str) -> None:
        """Write how a run ended; nothing happens for a run that is not in the index."""
        self._change(uid, lambda known: replace(known, outcome=outcome))

    def mark_removed(self, uid: str, removed_at: str) -> None:
        """Write that the results of a run go, unless it is marked; no run: nothing happens."""
        if not any(known.removed_at for known in self.entries() if known.uid == uid):
            self._change(uid, lambda known: replace(known, removed_at=removed_at))

    def _change(self, uid: str, change: Callable[[IndexEntry], IndexEntry]) -> None:
        with _LOCK:
            entries = self.entries()
            if any(known.uid == uid for known in entries):
                self._write([change(known) if known.uid == uid else known for known in entries])

    def keep(self, entry: IndexEntry, outcome: str) -> None:
        """Take over an ended run from another index, in place of an older line about it."""
        with _LOCK:
            others = [known for known in self.entries() if known.uid != entry.uid]
            self._write([*others, replace(entry, outcome=outcome)])

    def named(self, run: str) -> list[IndexEntry]:
        """Return all runs that had a BenchmarkRun name, oldest first."""
        return [entry for entry in self.entries() if entry.run == run]

    def _write(self, entries: list[IndexEntry]) -> None:
        make_folder(self._path.parent)
        lines = (json.dumps(asdict(entry), sort_keys=True) + "\n" for entry in entries)
        replace_file(self._path, "".join(lines).encode(), self._staging)
