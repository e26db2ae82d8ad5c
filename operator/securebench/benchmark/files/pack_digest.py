"""The digest of a pack (contract 15.6)."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.digests import listing_digest
from securebench.errors import StorageError
from securebench.files.content import file_sha256
from securebench.files.tree_digest import tree_entries

if TYPE_CHECKING:
    from securebench.benchmark.reading.manifest import AssetRoots


def pack_digest(manifest: Path, tasks: Path, roots: AssetRoots) -> str:
    """Return the digest that binds results to a pack.

    Args:
        manifest: Manifest file; the asset roots lie below its folder.
        tasks: Task file.
        roots: Asset roots of the manifest; a missing one counts as empty.

    Returns:
        ``sha256:`` and hex over manifest bytes, task file bytes and path and content of
        every file of both roots. A symlink counts by its target's text, it is not followed.

    Raises:
        StorageError: A root holds something else than files, folders and symlinks.
    """
    return listing_digest(
        (
            (b"manifest", file_sha256(manifest)),
            (b"tasks", file_sha256(tasks)),
            *_root_entries(b"public", manifest.parent / roots.public),
            *_root_entries(b"eval", manifest.parent / roots.eval),
        )
    )


def _root_entries(name: bytes, root: Path) -> list[tuple[bytes, str]]:
    """Return path and content of every entry of an asset root, in byte order of the paths."""
    if not root.is_dir():
        return []
    return [(name + b"/" + path, _entry_digest(entry)) for path, entry in tree_entries(root)]


def _entry_digest(entry: Path) -> str:
    mode = entry.lstat().st_mode
    if stat.S_ISREG(mode):
        return file_sha256(entry)
    if stat.S_ISLNK(mode):
        return f"link:{hashlib.sha256(os.fsencode(entry.readlink())).hexdigest()}"
    raise StorageError(f"{entry.name!r} is no regular file")
