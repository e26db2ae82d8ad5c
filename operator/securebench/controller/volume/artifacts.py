"""The operator's side of the port of artifacts, and both sides on a volume that Pods share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from securebench.controller.volume.folders import (
    INSTALLED_TOOLS,
    LAUNCHES,
    attempt_folder,
    run_folder,
    task_folder,
)
from securebench.digests import PREFIX
from securebench.errors import DigestMismatchError
from securebench.files import UnreadableError, make_folder, open_regular, open_root, replacing
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
