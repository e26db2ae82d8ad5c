"""starts.jsonl on the volume: every run that was ever started. Every method blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from securebench.attestation.starts import RunStart, StartList, appended, read_starts
from securebench.controller.volume.index import IndexEntry, RunIndex
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.volume import STARTS
from securebench.run.layout import RUNS

logger = logging.getLogger(__name__)

_LOCK = threading.Lock()

MAX_FAULT = 500
"""Characters that a line says of what was wrong before it."""


class RunStarts:
    """The list of one volume.

    A file that is damaged holds up no run: the line of the next one says what was wrong.

    Args:
        root: Where the volume is mounted.
        staging: Where the new content is written, as of ``durable.replacing``.
    """

    def __init__(self, root: Path, staging: Path | None = None) -> None:
        self._root = root
        self._path = root / RUNS / STARTS
        self._staging = staging

    def add(self, start: RunStart) -> int:
        """Add a run unless it is there, and return the number of its line."""
        with _LOCK:
            known = self._imported()
            line = known.of_uid(start.uid)
            if line is not None:
                return line.number
            self._write(known, [replace(start, fault=self._fault(known))])
            return known.size + 1

    def read(self) -> StartList:
        """Return the list, with runs of the index that it lacks taken over first."""
        with _LOCK:
            return self._imported()

    def _imported(self) -> StartList:
        known = self._known()
        lacking = self._lacking(known)
        if not lacking:
            return known
        first, *others = lacking
        self._write(known, [replace(first, fault=self._fault(known)), *others])
        return self._known()

    def _known(self) -> StartList:
        return read_starts(self._path.read_bytes() if self._path.exists() else b"")

    def _lacking(self, known: StartList) -> Sequence[RunStart]:
        """Return the runs of the index that have no line."""
        uids = known.uids
        return [
            replace(start_of(entry), is_imported=True)
            for entry in self._indexed()
            if entry.uid not in uids
        ]

    def _fault(self, known: StartList) -> str:
        """Return what is wrong with the list and no line says, in one text; empty for nothing."""
        uids = known.uids
        gone = [
            f"line {entry.start} with run {entry.run} is missing"
            for entry in self._indexed()
            if entry.start and entry.uid not in uids
        ]
        fault = "; ".join((*known.faults, *gone))[:MAX_FAULT]
        if not fault or any(line.start.get("fault") == fault for line in known.lines):
            return ""
        logger.warning("%s on the volume was edited or damaged: %s", STARTS, fault)
        return fault

    def _indexed(self) -> Sequence[IndexEntry]:
        return RunIndex(self._root).entries()

    def _write(self, known: StartList, starts: Sequence[RunStart]) -> None:
        make_folder(self._path.parent)
        before = self._path.read_bytes() if self._path.exists() else b""
        gap = b"\n" if before and not before.endswith(b"\n") else b""
        replace_file(self._path, before + gap + appended(known, starts), self._staging)


def start_of(entry: IndexEntry) -> RunStart:
    """Return what the index knows of a run's start."""
    return RunStart(
        run=entry.run,
        uid=entry.uid,
        run_id=entry.run_id,
        pack=entry.pack,
        pack_digest=entry.pack_digest,
        harness_digest=entry.harness_digest,
        verifier_version=entry.verifier_version,
        started_at=entry.started_at,
    )
