"""The programs of task containers, which Pods mount read-only from the results volume.

Each content has a folder of its own, named by its digest, and nothing in it is ever changed: Pods
that another version of the operator made continue with theirs. Every function blocks.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from pathlib import Path
from uuid import uuid4

from securebench.controller.volume.artifacts import folder_of
from securebench.controller.volume.folders import INSTALLED_TOOLS
from securebench.errors import StorageError
from securebench.files import (
    FILE_MODE,
    FOLDER_MODE,
    fsync_folder,
    make_folder,
    replace_file,
    tree_digest,
)
from securebench.run.artifacts import TaskPrograms

logger = logging.getLogger(__name__)


PROGRAM = "supervise"
PROGRAM_MODE = 0o755
PROGRAM_SECONDS = 30.0

KEPT_SECONDS = 30 * 24 * 3600
"""How long a folder stays that no operator installs any more: longer than any Pod lasts."""

UNUSED = ".unused"
"""Ending of the file beside a folder that says since when that is so."""


def install_tools(root: Path, source: Path, now: float) -> str:
    """Put the programs on the volume, unless they are there, and return their name.

    A folder that is damaged is set aside, whole, for Pods that have it mounted. Folders of other
    contents go when nobody has installed them for ``KEPT_SECONDS``.

    Args:
        source: The programs in the operator's own image.
        now: Seconds since the epoch.

    Returns:
        Their tree digest, which names them.

    Raises:
        OSError: The volume did not take them, or starts no programs.
        StorageError: The operator's image lacks them, or has something else among them.
    """
    digest = tree_digest(source)
    target = root / folder_of(TaskPrograms(digest))
    make_folder(target.parent)
    if not _is_whole(target, digest):
        _install(source, target)
    subprocess.run(  # noqa: S603 - our own program, from our own image
        [target / PROGRAM],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PROGRAM_SECONDS,
    )
    _tidy(root / INSTALLED_TOOLS, target.name, now)
    return digest


def _is_whole(folder: Path, digest: str) -> bool:
    try:
        if tree_digest(folder) != digest:
            return False
    except (StorageError, OSError) as error:
        logger.info("tools: %s: %s", folder.name, error)
        return False
    return all(stat.S_IMODE(path.lstat().st_mode) == _mode(path) for path in _everything(folder))


def _everything(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def _mode(path: Path) -> int:
    if path.is_dir():
        return FOLDER_MODE
    return PROGRAM_MODE if path.name == PROGRAM else FILE_MODE


def _install(source: Path, target: Path) -> None:
    draft = target.with_name(f".{uuid4().hex}")
    shutil.copytree(source, draft, copy_function=shutil.copyfile)
    for path in _everything(draft):
        path.chmod(_mode(path))
        _sync(path)
    if target.exists():
        logger.warning("tools: %s was damaged and is installed anew", target.name)
        target.rename(target.with_name(f".{uuid4().hex}"))
    draft.rename(target)
    fsync_folder(target.parent)


def _sync(path: Path) -> None:
    if path.is_dir():
        fsync_folder(path)
        return
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _tidy(folder: Path, current: str, now: float) -> None:
    """Remove folders of other contents that have not been installed for long, and drafts."""
    (folder / f"{current}{UNUSED}").unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name == current or path.name.endswith(UNUSED) or not path.is_dir():
            continue
        mark = path.with_name(path.name + UNUSED)
        if not mark.exists():
            replace_file(mark, b"")
            os.utime(mark, (now, now))
        elif now > mark.stat().st_mtime + KEPT_SECONDS:
            shutil.rmtree(path)
            mark.unlink()
            logger.info("tools: %s was removed", path.name)
