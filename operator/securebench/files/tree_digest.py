"""Digest of a folder (docs/reference/protocol.md)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from securebench.digests import listing_digest
from securebench.errors import StorageError
from securebench.files.content import file_sha256


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
    return listing_digest((name, _regular_sha256(path)) for name, path in tree_entries(root))


def tree_entries(root: Path) -> list[tuple[bytes, Path]]:
    """Return all below a folder but folders, with relative paths, in byte order of these."""
    entries: list[tuple[bytes, Path]] = []
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if not stat.S_ISDIR(path.lstat().st_mode):
                entries.append((os.fsencode(path.relative_to(root)), path))
    return sorted(entries)


def _regular_sha256(path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise StorageError(f"{path.name!r} is no regular file")
    return file_sha256(path)
