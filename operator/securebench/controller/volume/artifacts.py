"""The operator's side of the port of artifacts, and both sides on a volume that Pods share."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol
from uuid import uuid4

from securebench.controller.volume.folders import (
    INSTALLED_TOOLS,
    LAUNCHES,
    attempt_folder,
    run_folder,
    task_folder,
)
from securebench.digests import PREFIX
from securebench.errors import DigestMismatchError, StorageError
from securebench.files import (
    FILE_MODE,
    FOLDER_MODE,
    UnreadableError,
    fsync_folder,
    make_folder,
    open_regular,
    open_root,
    replace_file,
    replacing,
    tree_digest,
)
from securebench.run.artifacts import (
    Artifact,
    Attached,
    GatewayFiles,
    Given,
    Lanes,
    LaunchPart,
    MountProbe,
    Taken,
    TaskPrograms,
)

if TYPE_CHECKING:
    from securebench.protocol.supervise import CourierSpec

logger = logging.getLogger(__name__)

RESULTS: Final = "results"
"""Name of the volume in a Pod."""


def folder_of(artifact: Artifact) -> str:
    """Return the folder of an artifact, relative to the volume's root."""
    match artifact:
        case TaskPrograms(digest):
            return f"{INSTALLED_TOOLS}/{digest.removeprefix(PREFIX)}"
        case Lanes(run_uid, task):
            return f"{task_folder(run_uid, task)}/lanes"
        case LaunchPart(run_uid, task, attempt, launch, part):
            return f"{attempt_folder(run_uid, task, attempt)}/{LAUNCHES}/{launch}/{part}"
        case GatewayFiles(run_uid):
            return f"{run_folder(run_uid)}/gateway"
        case MountProbe(run_uid):
            return f"{run_folder(run_uid)}/probe"


@dataclass(frozen=True, slots=True)
class SharedVolume:
    """Pods mount the folders of their artifacts from the claim; what they write is there at once.

    Attributes:
        claim: Name of the PersistentVolumeClaim of the results volume.
    """

    claim: str

    def attach(self, wanted: Sequence[Taken | Given]) -> Attached:
        """Return what a Pod needs for the artifacts of its containers."""
        volume: dict[str, object] = {
            "name": RESULTS,
            "persistentVolumeClaim": {"claimName": self.claim},
        }
        return Attached([_mount(each) for each in wanted], [volume] if wanted else [])

    def courier(self, spec: CourierSpec, given: Sequence[Given]) -> CourierSpec:  # noqa: ARG002
        """Return the same work: what a courier writes is on the volume at once."""
        return spec


def _mount(wanted: Taken | Given) -> dict[str, object]:
    folder = folder_of(wanted.artifact)
    match wanted:
        case Taken(_, path, part):
            sub_path = f"{folder}/{part}" if part else folder
            return {"name": RESULTS, "mountPath": path, "subPath": sub_path, "readOnly": True}
        case Given(_, path):
            return {"name": RESULTS, "mountPath": path, "subPath": folder}


class ArtifactStore(Protocol):
    """The operator's side of a medium. Every method blocks and may raise OSError."""

    def install(self, source: Path, now: float) -> TaskPrograms:
        """Make the programs in a folder of the operator's image available to Pods.

        Args:
            source: Their folder.
            now: Seconds since the epoch.

        Raises:
            StorageError: The operator's image lacks them, or has something else among them.
        """
        ...

    def filling(self, artifact: Artifact) -> AbstractContextManager[Path]:
        """Give a folder; its content is the artifact when the context ends without an error."""
        ...

    def prepare(self, artifact: Artifact, folder: str = "") -> None:
        """Make an artifact, or a folder of it, that a Pod gives; what is there stays."""
        ...

    def put(self, artifact: Artifact, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file of a prepared artifact, durably; writing it again replaces it."""
        ...

    def opened(self, artifact: Artifact, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file of an artifact.

        Raises:
            FileNotFoundError: There is no such file.
            DigestMismatchError: It is no regular file.
        """
        ...

    def names(self, artifact: Artifact, folder: str) -> list[str]:
        """Return the names in a folder of an artifact, sorted; none without the folder."""
        ...

    def remove(self, artifact: Artifact) -> None:
        """Remove an artifact; nothing happens without it."""
        ...


@dataclass(frozen=True, slots=True)
class VolumeArtifacts:
    """The operator's side: what Pods give is in the same folders.

    Attributes:
        staging: Folder in which files are written that then replace others, or None.
    """

    root: Path
    staging: Path | None = None

    def install(self, source: Path, now: float) -> TaskPrograms:
        """Put the programs on the volume, unless they are there.

        Each content has a folder of its own, named by its digest, and nothing in it is ever
        changed: Pods that another version of the operator made continue with theirs. A folder that
        is damaged is set aside, whole, for Pods that have it mounted. Folders of other contents
        go when nobody has installed them for ``KEPT_SECONDS``.
        """
        programs = TaskPrograms(tree_digest(source))
        target = self._folder(programs)
        make_folder(target.parent)
        if not _is_whole(target, programs.digest):
            _install(source, target)
        # Only whether it starts counts: OSError says that the volume is mounted with noexec.
        subprocess.run(  # noqa: S603 - our own program, from our own image
            [target / PROGRAM],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROGRAM_SECONDS,
        )
        _tidy(target.parent, target.name, now)
        return programs

    @contextlib.contextmanager
    def filling(self, artifact: Artifact) -> Iterator[Path]:
        """Give the artifact's folder itself."""
        yield self._folder(artifact)

    def prepare(self, artifact: Artifact, folder: str = "") -> None:
        """Make the folder that a Pod mounts; the kubelet's would not be the operator's."""
        make_folder(self._folder(artifact) / folder)

    def put(self, artifact: Artifact, name: str, pieces: Iterable[bytes]) -> None:
        """Replace a file as a whole."""
        with replacing(self._folder(artifact) / name, self.staging) as file:
            file.writelines(pieces)

    @contextlib.contextmanager
    def opened(self, artifact: Artifact, name: str) -> Iterator[BinaryIO]:
        """Open a file without following a link on the way."""
        folder = self._folder(artifact)
        try:
            with open_root(folder) as root, open_regular(root, name) as file:
                yield file
        except UnreadableError as error:
            if not os.path.lexists(folder / name):
                raise FileNotFoundError(f"there is no {name}") from None
            raise DigestMismatchError(f"{name} cannot be read: {error}") from error

    def names(self, artifact: Artifact, folder: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return sorted(path.name for path in (self._folder(artifact) / folder).iterdir())
        except FileNotFoundError:
            return []

    def remove(self, artifact: Artifact) -> None:
        """Remove the artifact's folder."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder(artifact))

    def _folder(self, artifact: Artifact) -> Path:
        return self.root / folder_of(artifact)


def operator_side(root: Path, staging: Path | None) -> ArtifactStore:
    """Return the operator's side of the medium of all runs.

    Args:
        root: Where the results volume is mounted.
        staging: As of ``VolumeArtifacts``.
    """
    return VolumeArtifacts(root, staging)


PROGRAM = "supervise"
PROGRAM_MODE = 0o755
PROGRAM_SECONDS = 30.0

KEPT_SECONDS = 30 * 24 * 3600
"""How long a folder stays that no operator installs any more: longer than any Pod lasts."""

UNUSED = ".unused"
"""Ending of the file beside a folder that says since when that is so."""


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
