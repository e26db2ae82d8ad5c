"""A run's folder on the volume: what is written where, and in which order it reaches the disk.

Every method blocks; the controller calls them in threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.controller.volume.journal import Journal
from securebench.controller.volume.journal_files import open_journal
from securebench.controller.volume.lead import VolumeLead
from securebench.core.digests import PREFIX
from securebench.core.errors import DigestMismatchError, InvariantViolationError
from securebench.core.sizes import MIB
from securebench.files.content import content_sha256
from securebench.files.durable import make_folder, replace_file, replacing
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import (
    CANDIDATES,
    FINAL_STATUS,
    PARKED,
    RECORD,
    RUN,
    SUMMARY,
)
from securebench.run import layout
from securebench.run.plan.keys import AttemptKey, LaunchKey

PIECE_BYTES = MIB


class Parked(NamedTuple):
    """A run that has begun and of which nothing is under way.

    Attributes:
        started_at: When it began, seconds since the epoch, or None.
    """

    started_at: float | None


class RunStore:
    """The folder of one run.

    Args:
        root: Where the volume is mounted.
        run_uid: The run.
        lead: Who writes; None only reads.
    """

    def __init__(self, root: Path, run_uid: str, lead: VolumeLead | None = None) -> None:
        self.root = root
        self._lead = lead
        self._uid = run_uid
        self.folder = root / layout.run_folder(run_uid)

    def exists(self) -> bool:
        """Whether this run was bound before."""
        return (self.folder / RUN).exists()

    def create(self, binding: Mapping[str, object]) -> None:
        """Make the folder and write what the run is bound to."""
        make_folder(self.folder)
        make_folder(self.root / layout.probe_folder(self._uid))
        self.write_json(RUN, binding)

    def binding(self) -> Mapping[str, object]:
        """Return what the run is bound to."""
        return read_json(self.folder / RUN)

    def open_journal(self) -> Journal:
        """Open the journal as its only writer.

        Raises:
            StorageError: A later leader has it.
            JournalCorruptError: A line does not hold or is out of its place.
        """
        if self._lead is None:
            raise InvariantViolationError("who only reads the volume opens no journal")
        return open_journal(self.folder, self._uid, self._lead)

    @property
    def staging(self) -> Path | None:
        """Where files are written that then replace others."""
        return None if self._lead is None else self._lead.folder

    def lanes_folder(self, task: int) -> Path:
        """Return where a task's lanes lie."""
        return self.root / layout.task_folder(self._uid, task) / "lanes"

    def make_launch_folders(self, launch: LaunchKey) -> None:
        """Make every folder that a launch's Pod mounts; the kubelet would make them empty."""
        for name in layout.LAUNCH_FOLDERS:
            make_folder(self.launch_folder(launch) / name)

    def launch_folder(self, launch: LaunchKey) -> Path:
        """Return the folder of a launch."""
        return self.root / layout.launch_folder(self._uid, launch)

    @property
    def gateway_folder(self) -> Path:
        """Where the run's gateway reads its configuration and leaves reports and logs."""
        return self.root / layout.gateway_folder(self._uid)

    def remove_lanes(self, task: int) -> None:
        """Remove a task's lanes; nothing happens when there are none."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.lanes_folder(task))

    def check_file(self, path: Path, digest: str) -> None:
        """Hash a sealed file again.

        Raises:
            DigestMismatchError: It is not what the courier sealed.
            OSError: It cannot be read.
        """
        found = file_digest(path)
        if found != digest:
            raise DigestMismatchError(
                f"{path.name} has digest {found}, the courier sealed {digest}",
                found=found,
                sealed=digest,
            )

    def write_record(self, key: AttemptKey, line: Iterable[bytes]) -> str:
        """Write a finished record.

        Args:
            key: Its attempt.
            line: JSON without a newline, in pieces.

        Returns:
            Hex SHA-256 of the line.
        """
        folder = self.root / layout.attempt_folder(self._uid, key.task, key.attempt)
        make_folder(folder)
        digest = hashlib.sha256()
        with replacing(folder / RECORD, self.staging) as file:
            for piece in line:
                file.write(piece)
                digest.update(piece)
        return digest.hexdigest()

    def record_pieces(self, key: AttemptKey) -> Iterator[bytes]:
        """Yield a finished record's line without a newline; it may be too long for one piece."""
        folder = self.root / layout.attempt_folder(self._uid, key.task, key.attempt)
        with (folder / RECORD).open("rb") as file:
            yield from iter(partial(file.read, PIECE_BYTES), b"")

    def export(self, finished: Iterable[tuple[AttemptKey, str]]) -> tuple[int, str]:
        """Write candidates.jsonl anew.

        Args:
            finished: Attempts with the digests of their records, in the order of the file.

        Returns:
            Number of lines and hex SHA-256 of the file.

        Raises:
            DigestMismatchError: A record is not what the journal says.
        """
        whole = hashlib.sha256()
        count = 0
        with replacing(self.folder / CANDIDATES, self.staging) as file:
            for key, digest in finished:
                found = hashlib.sha256()
                for piece in self.record_pieces(key):
                    file.write(piece)
                    whole.update(piece)
                    found.update(piece)
                if found.hexdigest() != digest:
                    raise DigestMismatchError(f"the record of attempt {key} was changed")
                file.write(b"\n")
                whole.update(b"\n")
                count += 1
        return count, whole.hexdigest()

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Replace one JSON file of the run."""
        data = json.dumps(value, indent=2, sort_keys=True).encode()
        replace_file(self.folder / name, data, self.staging)

    def write_final_status(self, status: Mapping[str, object]) -> None:
        """Keep the status of a run that has ended; the run need not have begun."""
        make_folder(self.folder)
        self.write_json(FINAL_STATUS, status)

    def read_final_status(self) -> Mapping[str, object] | None:
        """Return the status of a run that has ended, or None."""
        path = self.folder / FINAL_STATUS
        return read_json(path) if path.exists() else None

    def read_summary(self) -> Mapping[str, object]:
        """Return the summary of a run whose records are sealed; empty before."""
        path = self.folder / SUMMARY
        return read_json(path) if path.exists() else {}

    def park(self, started_at: float | None) -> None:
        """Write down that nothing of the run is under way and nobody works on it.

        Args:
            started_at: When it began, seconds since the epoch.
        """
        self.write_json(PARKED, {"is_parked": True, "started_at": started_at})

    def unpark(self) -> None:
        """Write down that the run is worked on again."""
        self.write_json(PARKED, {"is_parked": False})

    def read_parked(self) -> Parked | None:
        """Return what is known of a run that rests, or None."""
        path = self.folder / PARKED
        found = read_json(path) if path.exists() else {}
        if found.get("is_parked") is not True:
            return None
        started_at = found.get("started_at")
        return Parked(float(started_at) if isinstance(started_at, int | float) else None)


def read_json(path: Path) -> Mapping[str, object]:
    """Return the object in a JSON file of ours.

    Raises:
        ValueError: It holds no object.
    """
    return decode_object(path.read_bytes())


def file_digest(path: Path) -> str:
    """Return ``sha256:…`` of a file that is no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return PREFIX + content_sha256(file)
