"""Writes the lanes of a task as ``pack.lane_plan`` plans them; the digest of what an agent sees."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from securebench.benchmark.families.harbor_task import SOLUTION
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.load import asset_source
from securebench.benchmark.pack.lane_plan import (
    TASK_FILE,
    LaneFile,
    LaneSet,
    asset_root,
    lane_plan,
    solution_files,
)
from securebench.benchmark.resources import ORACLE, Lane
from securebench.digests import json_digest
from securebench.errors import InvariantViolationError, StorageError
from securebench.files import (
    FILE_MODE,
    file_sha256,
    fsync_folder,
    make_folder,
    note_progress,
    tree_digest,
)
from securebench.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.benchmark.pack.oracle import ReferenceAnswer
    from securebench.benchmark.pack.task import SecureBenchTask

SYNC_BYTES: Final = 8 * MIB
"""Of one file that are written before they have to be on the disk: a slow volume that took a large
file at its end only would look like one that hangs."""


def write_lanes(
    task: SecureBenchTask, pack_root: Path, lanes_dir: Path, *, task_file: str = TASK_FILE
) -> LaneSet:
    """Write the lanes of one task and make them durable.

    Args:
        task: A compiled task.
        pack_root: Folder of the manifest, with the asset roots below.
        lanes_dir: Gets the folders ``public``, ``evaluation_inputs`` and ``hidden``; what is
            left of an earlier try is removed.
        task_file: Workspace path of the whole public payload.

    Raises:
        PackError: The plan or an asset does not hold; nothing was written then.
        StorageError: The volume did not do what was asked.
    """
    plan = lane_plan(task, task_file)
    sources = {
        file.path: asset_source(pack_root, file.root, file.reference)
        for file in plan.files
        if file.reference is not None
    }
    try:
        _clear(lanes_dir)
        for file in plan.files:
            _write(lanes_dir / file.path, file.content, sources.get(file.path))
            if _is_of_folder(file, task):
                _let_run(lanes_dir / file.path)
        _sync_folders(lanes_dir)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise StorageError(f"the lanes of a task cannot be written: {reason}") from None
    folders = {path for path, source in sources.items() if source.is_dir()}
    return LaneSet(
        public_digest=tree_digest(lanes_dir / "public"),
        evaluation_inputs_digest=tree_digest(lanes_dir / "evaluation_inputs"),
        hidden_digest=tree_digest(lanes_dir / "hidden"),
        asset_mounts=plan.asset_mounts(folders),
        checker_is_folder=plan.has_checker_folder(folders),
    )


def write_answer(
    answer: ReferenceAnswer, task: SecureBenchTask, pack_root: Path, lanes_dir: Path
) -> str:
    """Write a reference answer beside the lanes of its task and make it durable.

    Args:
        answer: Answer of the task.
        task: Of a task that is a folder, the files of its solution go with the answer.
        pack_root: Folder of the manifest.
        lanes_dir: Gets the folder ``oracle`` with a file that is named by the form of the answer.

    Returns:
        Tree digest of the folder.

    Raises:
        PackError: A file of the solution does not hold.
        StorageError: The volume did not do what was asked.
    """
    folder = lanes_dir / ORACLE
    sources = {
        f"{SOLUTION}/{name}": asset_source(pack_root, asset_root(task, file.lane), file)
        for name, file in solution_files(task).items()
    }
    try:
        _empty_folder(folder)
        _write(folder / answer.kind, answer.text.encode(), None)
        for name, source in sources.items():
            _write(folder / name, None, source)
            _let_run(folder / name)
        _sync_folders(folder)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise StorageError(f"a reference answer cannot be written: {reason}") from None
    return tree_digest(folder)


def _is_of_folder(file: LaneFile, task: SecureBenchTask) -> bool:
    """Whether a file comes from the folder that the task is."""
    family = FAMILIES.get(task.task_type)
    names = () if family is None else family.folders
    return file.reference is not None and file.reference.name.removeprefix("eval.") in names


_PROGRAMS: Final = (b"#!", b"\x7fELF")
"""How files begin that are started by their name."""


def _let_run(path: Path) -> None:
    """Make a program executable: modes do not travel with a pack, and others may start it."""
    with path.open("rb") as stream:
        is_program = stream.read(4).startswith(_PROGRAMS)
    if is_program:
        path.chmod(_PROGRAM_MODE)


_PROGRAM_MODE: Final = 0o755


def _clear(lanes_dir: Path) -> None:
    for lane in Lane:
        _empty_folder(lanes_dir / lane)


def _empty_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    make_folder(folder)


def _write(target: Path, content: bytes | None, source: Path | None) -> None:
    make_folder(target.parent)
    if content is not None:
        _write_file(target, (content,))
    elif source is not None and source.is_dir():
        _copy_folder(source, target)
    elif source is not None:
        _copy_file(source, target)
    else:
        raise InvariantViolationError("a planned file has neither content nor source")


def _copy_folder(source: Path, target: Path) -> None:
    make_folder(target)
    for folder, _, names in os.walk(source, followlinks=False):
        for name in names:
            path = Path(folder) / name
            copy = target / path.relative_to(source)
            make_folder(copy.parent)
            _copy_file(path, copy)


def _copy_file(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        _write_file(target, iter(lambda: stream.read(MIB), b""))


def _write_file(target: Path, chunks: Iterable[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, FILE_MODE), "wb") as stream:
        os.fchmod(stream.fileno(), FILE_MODE)
        unsynced = 0
        for chunk in chunks:
            unsynced += stream.write(chunk)
            if unsynced >= SYNC_BYTES:
                _sync(stream)
                unsynced = 0
        _sync(stream)


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
    note_progress()


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        fsync_folder(Path(folder))


def public_digest(task: SecureBenchTask, pack_root: Path, task_file: str) -> str:
    """Return a digest of the public lane of a task; nothing is written.

    Args:
        task: A compiled task.
        pack_root: Folder of the manifest, with the asset roots below.
        task_file: Workspace path of the whole public payload.

    Raises:
        PackError: The plan or an asset does not hold.
        StorageError: An asset is or holds something else than files and folders.
    """
    below = f"{Lane.PUBLIC.value}/"
    files = (file for file in lane_plan(task, task_file).files if file.path.startswith(below))
    return json_digest({file.path: _content(file, pack_root) for file in files})


def _content(file: LaneFile, pack_root: Path) -> str:
    if file.reference is None:
        return hashlib.sha256(file.content or b"").hexdigest()
    source = asset_source(pack_root, file.root, file.reference)
    return tree_digest(source) if source.is_dir() else file_sha256(source)
