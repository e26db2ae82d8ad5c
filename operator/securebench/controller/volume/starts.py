"""starts.jsonl on the volume: every run that was ever started. Every method blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from securebench.attestation.starts import RunStart, StartedRun, StartList, appended, read_starts
from securebench.controller.volume.index import IndexEntry, RunIndex
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.volume import STARTS
from securebench.run.layout import RUNS

logger = logging.getLogger(__name__)

_LOCK = threading.Lock()

MAX_FAULT = 500
"""Characters that a line says of what was wrong before it."""


class _Found(NamedTuple):
    """What the volume has.

    Attributes:
        data: Content of the list.
        known: The same, read.
        indexed: Lines of the index.
    """

    data: bytes
    known: StartList
    indexed: Sequence[IndexEntry]


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
            found = self._imported(self._read())
            line = found.known.of_uid(start.uid)
            if line is not None:
                return line.number
            self._append(found, [replace(start, fault=_fault(found))])
            return found.known.size + 1

    def read(self) -> StartList:
        """Return the list, with runs of the index that it lacks taken over first."""
        with _LOCK:
            return self._imported(self._read()).known

    def _read(self) -> _Found:
        data = self._path.read_bytes() if self._path.exists() else b""
        return _Found(data, read_starts(data), RunIndex(self._root).entries())

    def _imported(self, found: _Found) -> _Found:
        uids = found.known.uids
        lacking = [start_of(entry) for entry in found.indexed if entry.uid not in uids]
        if not lacking:
            return found
        first, *others = (replace(start, is_imported=True) for start in lacking)
        data = self._append(found, [replace(first, fault=_fault(found)), *others])
        return found._replace(data=data, known=read_starts(data))

    def _append(self, found: _Found, starts: Sequence[RunStart]) -> bytes:
        """Write the list with further lines, and return it."""
        gap = b"\n" if found.data and not found.data.endswith(b"\n") else b""
        data = found.data + gap + appended(found.known, starts)
        make_folder(self._path.parent)
        replace_file(self._path, data, self._staging)
        return data


def _fault(found: _Found) -> str:
    """Return what is wrong with the list and no line says, in one text; empty for nothing."""
    known, uids = found.known, found.known.uids
    gone = [
        f"line {entry.start} with run {entry.run} is missing"
        for entry in found.indexed
        if entry.start and entry.uid not in uids
    ]
    fault = "; ".join((*known.faults, *gone))[:MAX_FAULT]
    if not fault or any(line.start.get("fault") == fault for line in known.lines):
        return ""
    logger.warning("%s on the volume was edited or damaged: %s", STARTS, fault)
    return fault


def start_of(entry: IndexEntry) -> RunStart:
    """Return what the index knows of a run's start."""
    return RunStart(**{field.name: getattr(entry, field.name) for field in fields(StartedRun)})
