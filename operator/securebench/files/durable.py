"""Files and names that are on the disk: a file's content alone does not survive a crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

FOLDER_MODE = 0o755
"""Folders that Pods of other users enter."""

FILE_MODE = 0o644
"""Files that Pods of other users read."""


def fsync_folder(path: Path) -> None:
    """Return when the disk has the names in a folder.

    Raises:
        OSError: It is no folder, or the disk did not take them.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder with its parents, 0755 whatever the umask is, and let the disk have the names.

    Nothing happens to folders that are there.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(FOLDER_MODE)
    fsync_folder(path.parent)


def replace_file(path: Path, data: bytes, staging: Path | None = None) -> None:
    """Replace a file as a whole, 0644 whatever the umask is, and return when the disk has it.

    Args:
        path: The file.
        data: Its new content.
        staging: As of ``replacing``.
    """
    with replacing(path, staging) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, staging: Path | None = None) -> Iterator[BinaryIO]:
    """Replace a file by what is written in the body, when the body ends without an error.

    Readers see the old content or the whole new one; the disk has it on return.

    Args:
        path: The file.
        staging: Folder of the same file system where the new content is written; None for the
            file's own.
    """
    name = f"{path.name}.part"
    part = path.with_name(name) if staging is None else staging / f"{uuid4().hex}-{name}"
    try:
        with part.open("wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        # Who tries again writes a draft more, and drafts of a whole export fill a volume.
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    fsync_folder(path.parent)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write everything to an unbuffered file, which may take less at a time.

    Raises:
        OSError: The disk did not take it, or not all of it.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
