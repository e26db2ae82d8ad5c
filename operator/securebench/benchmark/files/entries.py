"""What a pack is uploaded from: files and folders, nothing else (contract 9.3)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from securebench.benchmark.pack.paths import safe_relative_path
from securebench.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.benchmark.reading.manifest import AssetRoots

_SPECIAL: Final[Mapping[int, str]] = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def named_file_problems(*files: Path) -> tuple[PackError, ...]:
    """Return which of these files are symlinks or special; reading a FIFO would never end.

    Args:
        files: Manifest and task file; that one is absent or a folder is for its reader to say.
    """
    found = (_problem(path) for path in files if os.path.lexists(path))
    return tuple(problem for problem in found if problem is not None)


def root_files(manifest: Path, roots: AssetRoots) -> dict[str, Path]:
    """Return the files of both asset roots by their path in the pack; the rest is left out."""
    entries = _root_entries(manifest, roots)
    return {name: path for name, path in entries if stat.S_ISREG(path.lstat().st_mode)}


def root_problems(manifest: Path, roots: AssetRoots) -> tuple[PackError, ...]:
    """Return what is neither file nor folder in the asset roots."""
    found = (_problem(path) for _, path in _root_entries(manifest, roots))
    return tuple(problem for problem in found if problem is not None)


def _root_entries(manifest: Path, roots: AssetRoots) -> Iterator[tuple[str, Path]]:
    for root in (roots.public, roots.eval):
        name = safe_relative_path(root, "asset root")
        folder = manifest.parent / name
        for parent, folders, names in os.walk(folder, followlinks=False):
            for entry in sorted((*folders, *names)):
                path = Path(parent, entry)
                yield f"{name}/{path.relative_to(folder).as_posix()}", path


def _problem(path: Path) -> PackError | None:
    kind = stat.S_IFMT(path.lstat().st_mode)
    if kind in {stat.S_IFREG, stat.S_IFDIR}:
        return None
    if kind == stat.S_IFLNK:
        target = "folder" if path.is_dir() else "file"
        what = f"a symlink: replace it by the {target}"
    else:
        what = _SPECIAL.get(kind, "a special file")
    return PackError(f"is {what}; packs hold files and folders only", path=str(path))
