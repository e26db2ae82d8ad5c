"""Files of a pack on disk: do they exist, and are they what they seem (contract 9.3)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.benchmark.pack.paths import safe_relative_path
from securebench.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.benchmark.pack.references import FileReference


def asset_source(pack_root: Path, root: str, reference: FileReference) -> Path:
    """Return the file or folder that a reference names, after checking all of it.

    Args:
        pack_root: Folder of the manifest.
        root: Asset root as the manifest has it.
        reference: What the task names.

    Raises:
        PackError: It does not exist, leaves its root, is or holds a symlink, or is or holds
            something else than files and folders.
    """
    base = pack_root.resolve()
    folder = (base / safe_relative_path(root, "asset root")).resolve()
    if not folder.is_relative_to(base):
        raise PackError(f"asset root {root!r} lies outside the benchmark package")
    source = folder / reference.source
    what = f"{reference.name}.path {reference.source!r}"
    if source.is_symlink():
        raise PackError(f"{what} is a symlink; packs hold files and folders only")
    if not source.exists():
        raise PackError(f"asset source does not exist: {what} below {root!r}")
    if not source.resolve().is_relative_to(folder):
        raise PackError(f"{what} lies outside its root {root!r}")
    for entry, mode in _entries(source):
        _check_entry(what, source, entry, mode)
    return source


def _entries(source: Path) -> Iterator[tuple[Path, int]]:
    yield source, source.lstat().st_mode
    if source.is_dir():
        for folder, folders, files in os.walk(source, followlinks=False):
            for name in sorted((*folders, *files)):
                entry = Path(folder) / name
                yield entry, entry.lstat().st_mode


def _check_entry(what: str, source: Path, entry: Path, mode: int) -> None:
    place = what if entry == source else f"{what}: {str(entry.relative_to(source))!r}"
    if stat.S_ISLNK(mode):
        raise PackError(f"{place} is a symlink; packs hold files and folders only")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise PackError(f"{place} is neither a file nor a folder")
