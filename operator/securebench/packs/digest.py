"""Digests of packs, rows and trees (contract 15.6, architecture)."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import StorageError

if TYPE_CHECKING:
    from securebench.packs.manifest import AssetRoots
    from securebench.packs.task import SecureBenchTask

CHUNK_BYTES = 1024 * 1024


def tree_digest(root: Path) -> str:
    """Return the digest of a folder's regular files.

    Args:
        root: A folder; one without files has the digest of nothing.

    Returns:
        ``sha256:`` and hex over, for every file in byte order of its path relative to the
        root: path, NUL, hex SHA-256 of the content, LF.

    Raises:
        StorageError: The folder does not exist, or an entry is neither file nor folder.
    """
    total = hashlib.sha256()
    for line in _tree_lines(root, links=False):
        total.update(line)
    return f"sha256:{total.hexdigest()}"


def file_digest(path: Path) -> str:
    """Return ``sha256:`` and the hex SHA-256 of a file's content."""
    return f"sha256:{_content_digest(path)}"


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
    total = hashlib.sha256()
    for name, path in (("manifest", manifest), ("tasks", tasks)):
        total.update(f"{name}\0{_content_digest(path)}\n".encode())
    for name, root in (("public", roots.public), ("eval", roots.eval)):
        folder = manifest.parent / root
        for line in _tree_lines(folder, links=True) if folder.is_dir() else ():
            total.update(f"{name}/".encode() + line)
    return f"sha256:{total.hexdigest()}"


def row_digest(task: SecureBenchTask) -> str:
    """Return the digest of a compiled row: everything but the place of the pack.

    Args:
        task: A compiled task; all its values are JSON.
    """
    pack = task.metadata.get("benchmark_pack")
    metadata = {
        **task.metadata,
        "benchmark_pack": {**pack, "manifest_path": None} if isinstance(pack, Mapping) else None,
    }
    row = {
        "id": task.id,
        "benchmark_id": task.benchmark_id,
        "task_type": task.task_type,
        "metadata": metadata,
        "resources": [
            [item.name, item.visibility.value, item.kind, item.value] for item in task.resources
        ],
    }
    canonical = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _tree_lines(root: Path, *, links: bool) -> Iterator[bytes]:
    if not root.is_dir():
        raise StorageError(f"{root.name!r} is not a folder")
    entries = {os.fsencode(entry.relative_to(root).as_posix()): entry for entry in _entries(root)}
    for path in sorted(entries):
        yield path + b"\0" + _entry_digest(entries[path], links=links).encode() + b"\n"


def _entries(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root, followlinks=False):
        for name in (*folders, *files):
            entry = Path(folder) / name
            if not stat.S_ISDIR(entry.lstat().st_mode):
                yield entry


def _entry_digest(entry: Path, *, links: bool) -> str:
    mode = entry.lstat().st_mode
    if stat.S_ISREG(mode):
        return _content_digest(entry)
    if links and stat.S_ISLNK(mode):
        return f"link:{hashlib.sha256(os.fsencode(entry.readlink())).hexdigest()}"
    raise StorageError(f"{entry.name!r} is no regular file")


def _content_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
