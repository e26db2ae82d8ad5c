"""What the volume keeps beside the folders of runs. Every method blocks.

``index.jsonl`` has one line per run ever started, so that repeated tries stay visible;
``starts.jsonl`` is the list of started runs that statements cite, and nothing is removed from it.
``audits/<hex of the pack digest>/<verifier version>.json`` is the newest result of an audit. A
tester hands it in, and it is believed as packs are: whoever may upload packs may write it
(contract 21.22, decision 0026). Packs have bounds, whichever way they come to the volume.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from securebench.attestation.starts import (
    RunStart,
    StartedRun,
    StartList,
    appended,
    is_counted,
    read_starts,
)
from securebench.benchmark.files.bundle import BundleLimits
from securebench.controller.volume.folders import AUDITS, RUNS
from securebench.controller.volume_settings import VolumeSettings
from securebench.digests import PREFIX
from securebench.errors import InvalidInputError, StorageError
from securebench.files import make_folder, replace_file
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import (
    MAX_AUDIT_BYTES,
    STARTS,
    AuditResult,
    PackAudit,
    decode_audit,
)

logger = logging.getLogger(__name__)


INDEX = "index.jsonl"
READY = ".ready"
"""File that tells the Pod for viewers that it mounts the operator's folder of published results."""
_INDEX_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class IndexEntry(StartedRun):
    """One run.

    Attributes:
        run_ordinal: How often this run id was started with these digests by the users of
            ``tries``, from 1.
        resume_generation: 0 for a run that resumes none.
        outcome: Reason of ``Succeeded``, empty while it is active.
        start: Number of its line in the list of started runs; 0 for none.
        removed_at: When its results were removed from the volume, RFC 3339; empty while they lie
            there.
        behind: Who requested the runs that it resumes or grades again.
        tries: Runs of the same agent and model on the same pack that were started up to this one,
            whatever their names, run ids and other settings, by its requester and by those behind
            it. Where a requester is unknown, a run counts for everyone. A regrade starts no agent
            and adds none.
        tries_by_others: The same by other users, which say nothing about this one.
    """

    run_ordinal: int = 1
    resume_generation: int = 0
    outcome: str = ""
    start: int = 0
    removed_at: str = ""
    behind: tuple[str, ...] = ()
    tries: int = 1
    tries_by_others: int = 0

    @property
    def requesters(self) -> frozenset[str]:
        """Whoever requested it or a run that it took over; an empty name is an unknown user."""
        return frozenset({self.requester, *self.behind})

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


def _counted(entry: IndexEntry, earlier: Iterable[IndexEntry]) -> IndexEntry:
    """Return a new entry with the numbers of earlier runs like it."""
    counts = Counter[tuple[str, bool]]()
    for known in earlier:
        is_own = is_counted(known.requester, entry.requesters)
        counts["same", is_own] += known.binding() == entry.binding()
        counts["like", is_own] += known.is_try_like(entry)
    return replace(
        entry,
        run_ordinal=counts["same", True] + 1,
        tries=counts["like", True] + (not entry.regrade_of),
        tries_by_others=counts["like", False],
    )


def is_results_volume(root: Path) -> bool:
    """Whether runs were ever written here."""
    return (root / RUNS).is_dir()


def is_ready_for_viewers(root: Path) -> bool:
    """Whether the operator made the folder of published results that is mounted here."""
    return (root / RUNS / READY).exists()


class RunIndex:
    """The index of one volume.

    Args:
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
        with _INDEX_LOCK:
            entries = self.entries()
            for known in entries:
                if known.uid == entry.uid:
                    return known
            counted = _counted(entry, entries)
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
        with _INDEX_LOCK:
            entries = self.entries()
            if any(known.uid == uid for known in entries):
                self._write([change(known) if known.uid == uid else known for known in entries])

    def keep(self, entry: IndexEntry, outcome: str) -> None:
        """Take over an ended run from another index, in place of an older line about it."""
        with _INDEX_LOCK:
            others = [known for known in self.entries() if known.uid != entry.uid]
            self._write([*others, replace(entry, outcome=outcome)])

    def named(self, run: str) -> list[IndexEntry]:
        """Return all runs that had a BenchmarkRun name, oldest first."""
        return [entry for entry in self.entries() if entry.run == run]

    def _write(self, entries: list[IndexEntry]) -> None:
        make_folder(self._path.parent)
        lines = (json.dumps(asdict(entry), sort_keys=True) + "\n" for entry in entries)
        replace_file(self._path, "".join(lines).encode(), self._staging)


_STARTS_LOCK = threading.Lock()

MAX_FAULT = 500
"""Characters that a line says of what was wrong before it."""


class _Found(NamedTuple):
    """What the volume has.

    Attributes:
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
        staging: Where the new content is written, as of ``durable.replacing``.
    """

    def __init__(self, root: Path, staging: Path | None = None) -> None:
        self._root = root
        self._path = root / RUNS / STARTS
        self._staging = staging

    def add(self, start: RunStart) -> int:
        """Add a run unless it is there, and return the number of its line."""
        with _STARTS_LOCK:
            found = self._imported(self._read())
            line = found.known.of_uid(start.uid)
            if line is not None:
                return line.number
            self._append(found, [replace(start, fault=_fault(found))])
            return found.known.size + 1

    def read(self) -> StartList:
        """Return the list, with runs of the index that it lacks taken over first."""
        with _STARTS_LOCK:
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


def write_audit(root: Path, result: AuditResult) -> None:
    """Keep a result; it replaces an earlier one of this pack and these verifiers. Blocks.

    Args:
        result: See AuditResult.
    """
    path = _path(root, result.pack_digest, result.verifier_version)
    make_folder(path.parent)
    replace_file(path, result.encode())


def pack_audit(root: Path, pack_digest: str, verifier_version: str) -> PackAudit:
    """Return the result of the latest audit of a pack. Blocks.

    Args:
        pack_digest: ``sha256:…`` of contract 15.6.
        verifier_version: Version of the verifiers that will judge.

    Returns:
        ``none`` also where the file is damaged or tells of another pack.
    """
    try:
        data = _path(root, pack_digest, verifier_version).read_bytes()
        found = decode_audit(data[:MAX_AUDIT_BYTES])
    except (FileNotFoundError, InvalidInputError):
        return PackAudit.NONE
    told = (found.pack_digest, found.verifier_version)
    return found.result if told == (pack_digest, verifier_version) else PackAudit.NONE


def _path(root: Path, pack_digest: str, verifier_version: str) -> Path:
    return root / AUDITS / pack_digest.removeprefix(PREFIX) / f"{verifier_version}.json"


def pack_limits(settings: VolumeSettings) -> BundleLimits:
    """Return the bounds of a pack that is pushed, pulled or copied."""
    return BundleLimits(settings.bounds.pack_files, settings.bounds.pack_bytes)
