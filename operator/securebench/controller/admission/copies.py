"""Copies a pack's folder within the volume: bounded, plain, never into itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from securebench.benchmark.files.bundle import BundleLimits
from securebench.errors import PackError


def copy_folder(source: Path, target: Path, limits: BundleLimits, shown: str) -> None:
    """Copy a folder with its symlinks as they are. Blocks.

    Everything is counted before the first byte is copied, so that a folder that is too large, or
    grows while it is copied, cannot fill the volume by more than it held at that moment.

    Args:
        source: An existing folder.
        target: A place where nothing is.
        limits: Bounds of entries and of bytes, as ``settings.bounds`` has them for packs.
        shown: The folder's name for messages.

    Raises:
        PackError: There is too much, or something that is neither file, folder nor symlink.
    """
    entries = list(_counted(source, limits, shown))
    target.mkdir()
    for path, is_folder in entries:
        place = target / path.relative_to(source)
        if is_folder:
            place.mkdir()
        else:
            shutil.copy2(path, place, follow_symlinks=False)


def _counted(source: Path, limits: BundleLimits, shown: str) -> Iterator[tuple[Path, bool]]:
    count = size_bytes = 0
    folders = [source]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                is_folder = entry.is_dir(follow_symlinks=False)
                count += 1
                size_bytes += 0 if is_folder else _size_bytes(entry, source, shown)
                _check(count, size_bytes, limits, shown)
                if is_folder:
                    folders.append(Path(entry.path))
                yield Path(entry.path), is_folder


def _size_bytes(entry: os.DirEntry[str], source: Path, shown: str) -> int:
    if entry.is_symlink() or entry.is_file(follow_symlinks=False):
        return entry.stat(follow_symlinks=False).st_size
    name = Path(entry.path).relative_to(source)
    raise PackError(f"pack folder {shown!r}: {str(name)!r} is no file, folder or symlink")


def _check(count: int, size_bytes: int, limits: BundleLimits, shown: str) -> None:
    if count > limits.files:
        raise PackError(
            f"pack folder {shown!r} has more than {limits.files} entries"
            " (settings.bounds.packFiles); take away what is no part of the pack"
        )
    if size_bytes > limits.size_bytes:
        raise PackError(
            f"pack folder {shown!r} has more than {limits.size_bytes} bytes"
            " (settings.bounds.packBytes); take away what is no part of the pack"
        )
