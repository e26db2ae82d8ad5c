"""Digests of contents and of trees (docs/architecture.md)."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "sha256:"


def content_digest(content: bytes) -> str:
    """Return ``sha256:`` and the hex SHA-256 of some bytes."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def tree_digest(root: Path) -> str:
    """Return the digest of a trusted folder's regular files.

    Args:
        root: A folder that nobody changes meanwhile.

    Returns:
        ``sha256:`` and hex over, for every file in byte order of its path relative to the root:
        path, NUL, hex SHA-256 of the content, LF.

    Raises:
        StorageError: The folder is missing, or an entry is neither file nor folder.
    """
    if not root.is_dir():
        raise StorageError(f"{root.name!r} is not a folder")
    total = hashlib.sha256()
    for name, path in sorted(_files(root)):
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        total.update(name + b"\0" + digest.encode("ascii") + b"\n")
    return PREFIX + total.hexdigest()


def _files(root: Path) -> Iterator[tuple[bytes, Path]]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                continue
            if not stat.S_ISREG(mode):
                raise StorageError(f"{name!r} is no regular file")
            yield os.fsencode(path.relative_to(root)), path
