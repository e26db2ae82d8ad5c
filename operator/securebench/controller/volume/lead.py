"""Fences the results volume: only the current leader may write. Every function blocks.

File locks do nothing on some file servers, so none are used. A leader has a folder of its own,
``leaders/<epoch>``; whatever it replaces on the volume it writes there first and moves from there.
The next leader removes that folder before it reads anything: what the earlier one tries
afterwards, however long it slept, fails for want of a folder. Journals, which grow in place, have
a file for each leader (``securebench.controller.volume.journal``).

Source: decision 0066.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from securebench.controller.volume.folders import LEADERS
from securebench.errors import StorageError
from securebench.files import fsync_folder, make_folder

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NFS_HIDDEN = ".nfs"
"""Begins the name that a client of NFS gives to a removed file which is open on its node."""


@dataclass(frozen=True, slots=True)
class VolumeLead:
    """The leader's right to write to the volume.

    Attributes:
        epoch: Higher than that of every earlier leader.
        holder: ``<Pod name>_<Pod uid>``.
        require: Raises unless the process still leads.
        own: Journal files that this process made.
    """

    root: Path
    epoch: int
    holder: str
    require: Callable[[], None] = lambda: None
    own: set[Path] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Where this leader writes what it then moves to its place."""
        return self.root / LEADERS / str(self.epoch)

    def place_new(self, path: Path) -> None:
        """Put an empty file of this leader at a path, which nobody else uses.

        Raises:
            OSError: The next leader has begun, or the disk did not take it.
        """
        staged = self.folder / uuid4().hex
        staged.touch()
        staged.replace(path)
        fsync_folder(path.parent)
        self.own.add(path)


def highest_epoch(root: Path) -> int:
    """Return the highest epoch of a leader that has a folder on a volume; 0 without one."""
    return max(_epochs(root), default=0)


def claim_epoch(
    root: Path, epoch: int, holder: str, require: Callable[[], None] = lambda: None
) -> VolumeLead:
    """Make the folder of a leader, which only one can make.

    Args:
        epoch: Epoch of the Lease.
        holder: Who leads.
        require: Raises unless the process still leads.

    Raises:
        StorageError: Another leader of this or a higher epoch has begun.
        OSError: The volume did not do what was asked.
    """
    lead = VolumeLead(root, epoch, holder, require)
    make_folder(lead.folder.parent)
    _check_latest(lead)
    try:
        lead.folder.mkdir()
    except FileExistsError:
        raise _is_late(epoch, epoch) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # The folders of before make room: an operator that cannot begin frees nothing by retention.
        _revoke_others(lead)
        lead.folder.mkdir()
    return lead


def revoke_earlier(lead: VolumeLead) -> None:
    """Take the right to write from every earlier leader; may be repeated.

    Args:
        lead: Its folder is made.

    Raises:
        StorageError: A later leader has begun.
        OSError: The volume did not do what was asked.
    """
    fsync_folder(lead.folder.parent)
    _check_latest(lead)
    _revoke_others(lead)


def _check_latest(lead: VolumeLead) -> None:
    latest = highest_epoch(lead.root)
    if latest > lead.epoch:
        raise _is_late(lead.epoch, latest)


def _revoke_others(lead: VolumeLead) -> None:
    for other in lead.folder.parent.iterdir():
        if other != lead.folder:
            _revoke(other)
    fsync_folder(lead.folder.parent)


def _is_late(epoch: int, other: int) -> StorageError:
    return StorageError(f"a leader of epoch {other} writes to the volume, this one has {epoch}")


def _epochs(root: Path) -> Iterator[int]:
    folder = root / LEADERS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return (int(name) for name in names if name.isdecimal())


def _revoke(folder: Path) -> None:
    """Remove a leader's folder, while that leader may still put files there.

    It gets another name first: that keeps off processes of this node, whose open files a client of
    NFS hides in the folder until they are closed. Those of other nodes, whose clients may remember
    the folder itself, are kept off when it is gone.
    """
    going = folder.with_name(f".{uuid4().hex}")
    folder.replace(going)
    while True:
        for path in going.iterdir():
            if not path.name.startswith(_NFS_HIDDEN):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            going.rmdir()
            return
        if all(path.name.startswith(_NFS_HIDDEN) for path in going.iterdir()):
            return
