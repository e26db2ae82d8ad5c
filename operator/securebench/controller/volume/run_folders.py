"""All folders of runs on a volume: when they ended, and how they go. Every function blocks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from securebench.controller.volume.journal_files import journal_names
from securebench.controller.volume.store import RunStore, read_json
from securebench.core.clock import seconds_since_epoch
from securebench.files.untrusted import FOLDER
from securebench.protocol.volume import FINAL_STATUS, KEEP, RUN
from securebench.run.layout import PUBLISHED, RUNS, run_folder

COMPLETION_TIME = "completionTime"
"""In the status that a run leaves on the volume when it ends."""


class FolderState(NamedTuple):
    """The folder of a run.

    Attributes:
        uid: The run.
        ended_at: When it ended, in seconds since the epoch, or None.
        touched_at: When its journal, or else the folder, was written last.
        has_results: Whether more is left than its final status.
    """

    uid: str
    ended_at: float | None
    touched_at: float
    has_results: bool


def run_folders(root: Path) -> list[str]:
    """Return the uids of all runs with a folder on a volume."""
    runs = root / RUNS
    if not runs.is_dir():
        return []
    return sorted(path.name for path in runs.iterdir() if path.is_dir() and not path.is_symlink())


def folder_state(root: Path, uid: str) -> FolderState:
    """Return what retention asks of the folder of a run.

    Raises:
        ValueError: Its final status is none of ours.
    """
    path = root / run_folder(uid)
    touched = [name.stat().st_mtime for name in journal_names(path)]
    return FolderState(
        uid=uid,
        ended_at=ended_at(root, uid),
        touched_at=max(touched, default=path.stat().st_mtime),
        has_results=any(item.name != FINAL_STATUS for item in path.iterdir()),
    )


def ended_at(root: Path, uid: str) -> float | None:
    """Return when a run ended, in seconds since the epoch; None for one that is active.

    Raises:
        ValueError: Its final status is none of ours.
    """
    final = RunStore(root, uid).read_final_status() or {}
    status = final.get("status")
    time = status.get(COMPLETION_TIME) if isinstance(status, Mapping) else None
    return seconds_since_epoch(time) if isinstance(time, str) else None


def kept_runs(root: Path) -> Collection[str]:
    """Return the uids of the runs that a file ``KEEP`` in their folder keeps."""
    return [uid for uid in run_folders(root) if os.path.lexists(root / run_folder(uid) / KEEP)]


def remove_results(root: Path, uid: str) -> None:
    """Remove all of an ended run but how it ended; what is gone already is no error.

    What is published of it goes first. No link is followed, in the place of no folder.

    Raises:
        OSError: The volume did not do what was asked, or a link is in the place of a folder.
    """
    with suppress(FileNotFoundError), _opened(root, PUBLISHED) as published:
        shutil.rmtree(uid, dir_fd=published)
    with _opened(root, RUNS, uid) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == FINAL_STATUS:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)


def remove_folder(root: Path, uid: str) -> None:
    """Remove the folder of a run; what is gone already is no error.

    Its final status goes last: an interrupted removal does not make it look like an active run.

    Raises:
        OSError: As of ``remove_results``.
    """
    remove_results(root, uid)
    with _opened(root, RUNS) as runs:
        shutil.rmtree(uid, dir_fd=runs)


@contextmanager
def _opened(root: Path, *names: str) -> Iterator[int]:
    """Open a folder below the volume's root by a descriptor, one component at a time."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            child = os.open(name, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def bindings(root: Path) -> Iterator[Mapping[str, object]]:
    """Yield ``run.json`` of every run whose results were not removed."""
    for path in sorted((root / RUNS).glob(f"*/{RUN}")):
        yield read_json(path)
