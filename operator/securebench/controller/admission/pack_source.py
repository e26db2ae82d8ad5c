"""From a pack source to a frozen, content-addressed copy that no later change can reach."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.files.load import load_benchmark_manifest, pack_file, read_answers
from securebench.benchmark.files.pack_digest import pack_digest
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.controller.admission.copies import copy_folder
from securebench.controller.context import FrozenPack
from securebench.digests import DIGEST, PREFIX
from securebench.errors import InvalidInputError, PackError, PackMissingError
from securebench.files.durable import make_folder
from securebench.run.api.field_types import HIDDEN_NAME
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE, Pack
from securebench.run.layout import PACKS

logger = logging.getLogger(__name__)

CONTENT = f"{PACKS}/.content"
IMAGES = f"{PACKS}/.images"
"""Packs as they were pulled from registries, one folder for each image."""

IMAGE_PACK = "pack"
"""In the folder of an image: the pack's files."""

UNUSED_SECONDS = 3600.0
"""How long a frozen copy stays that no run is bound to: a run may be about to bind itself. A copy
that is being made takes less."""


@dataclass(frozen=True, slots=True)
class KeyedSource:
    """A pack in a ConfigMap or Secret, as it was read.

    Attributes:
        files: Content by path in the pack.
    """

    files: Mapping[str, bytes]

    def signature(self) -> object:
        """Return what differs when the content does."""
        return self.files

    def copy_to(self, target: Path) -> None:
        """Write the files, which the API server has bounded, to a new folder. Blocks."""
        target.mkdir()
        for path, data in self.files.items():
            place = target / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    def answers(self) -> bytes | None:
        """Return the reference answers of the pack, or None."""
        return self.files.get(ANSWERS_FILE)


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A pack that its author pushed to the volume.

    Attributes:
        root: Where the volume is mounted.
        path: Folder of the pack, relative to the packs.
        limits: Bounds of a copy.
    """

    root: Path
    path: str
    limits: BundleLimits

    def signature(self) -> object:
        """Return what differs when the content does: files, sizes and times of change. Blocks."""
        found = []
        for path, _, names in os.walk(self.root / PACKS / self.path):
            for name in names:
                state = os.lstat(Path(path, name))
                found.append((path, name, state.st_size, state.st_mtime_ns, state.st_ino))
        return sorted(found)

    def copy_to(self, target: Path) -> None:
        """Copy the pack to a new folder. Blocks.

        Raises:
            PackMissingError: There is no such folder.
            PackError: It is one of the operator's own, a part of a pack, or too large.
        """
        packs = self.root / PACKS
        source = packs / self.path
        if re.search(HIDDEN_NAME, self.path):
            raise PackError(
                f"pack folder {self.path!r}: names that begin with a dot are the operator's own"
            )
        if not source.is_dir() or source.resolve() != packs.resolve() / self.path:
            missing = f"there is no pack folder {self.path!r} on the volume"
            raise PackMissingError(missing, "push it with 'securebench pack push', then a new run")
        for parent in source.relative_to(packs).parents[:-1]:
            if (packs / parent / MANIFEST_FILE).exists():
                raise PackError(
                    f"pack folder {self.path!r} is a part of the pack {str(parent)!r}: name that"
                )
        copy_folder(source, target, self.limits, self.path)

    def answers(self) -> bytes | None:
        """Return the reference answers of the pack, or None. Blocks.

        Raises:
            PackError: The file is reached by a symlink or cannot be read.
        """
        return read_answers(self.root / PACKS / self.path)


@dataclass(frozen=True, slots=True)
class ImageSource:
    """A pack that the operator has pulled from a registry.

    Attributes:
        root: Where the volume is mounted.
        image: The whole reference; its digest names the content.
        limits: Bounds of a copy.
    """

    root: Path
    image: str
    limits: BundleLimits

    def signature(self) -> object:
        """Return what differs when the content does."""
        return self.image

    def copy_to(self, target: Path) -> None:
        """Copy the pack to a new folder. Blocks.

        Raises:
            PackError: It is too large.
        """
        copy_folder(self._folder(), target, self.limits, self.image)

    def answers(self) -> bytes | None:
        """Return the reference answers of the pack, or None. Blocks.

        Raises:
            PackError: The file is reached by a symlink or cannot be read.
        """
        return read_answers(self._folder())

    def _folder(self) -> Path:
        return image_folder(self.root, self.image) / IMAGE_PACK


PackSource = KeyedSource | FolderSource | ImageSource
"""Where the files of a pack are, once they may be read."""


def image_folder(root: Path, image: str) -> Path:
    """Return where the operator keeps what it pulled of an image.

    Args:
        root: Where the volume is mounted.
        image: The whole reference: another registry may not offer what this one did.
    """
    return root / IMAGES / hashlib.sha256(image.encode()).hexdigest()


def freeze(root: Path, pack: Pack, source: PackSource) -> FrozenPack:
    """Copy a pack to the place that its content names. Blocks.

    Args:
        root: Where the volume is mounted.
        pack: As the run names it.
        source: Where its files are.

    Raises:
        PackMissingError: There is no such folder.
        PackError: There is no such file, it is too large, or the pinned digest differs.
        ConfigErrors: The manifest does not hold.
    """
    content = root / CONTENT
    make_folder(content)
    with tempfile.TemporaryDirectory(dir=content, prefix=".incoming-") as scratch:
        copy = Path(scratch) / "pack"
        source.copy_to(copy)
        digest = _digest(copy)
        if pack.digest is not None and pack.digest != digest:
            raise PackError(
                f"the pack has digest {digest}, spec.pack.digest says {pack.digest}; push the pack"
                " again, or pin the digest that it has"
            )
        final = _content_folder(root, digest)
        if not final.exists():
            copy.rename(final)
        os.utime(final)
    return frozen(root, digest)


def frozen(root: Path, digest: str) -> FrozenPack:
    """Return the frozen copy with a digest.

    Raises:
        PackError: A file of it is not there.
        InvalidInputError: It is no digest.
    """
    folder = _content_folder(root, digest)
    return FrozenPack(
        folder, pack_file(folder, MANIFEST_FILE), pack_file(folder, TASKS_FILE), digest
    )


def remove_unused(root: Path, bound: Iterable[Mapping[str, object]], now: float) -> None:
    """Remove frozen copies that no run is bound to, and what a broken-off copy left. Blocks.

    Args:
        root: Where the volume is mounted.
        bound: What every run is bound to of which more is left than how it ended.
        now: Seconds since the epoch.

    Raises:
        InvalidInputError: A binding cannot be read; then nothing goes.
    """
    used = {_content_folder(root, str(binding["pack_digest"])) for binding in bound}
    content = root / CONTENT
    for folder in unused_folders(content, now) if content.is_dir() else ():
        if folder not in used:
            shutil.rmtree(folder)
            logger.info("frozen pack %s: removed, no run uses it", folder.name)


def unused_folders(parent: Path, now: float) -> list[Path]:
    """Return the folders in a cache of packs that nothing touched for ``UNUSED_SECONDS``. Blocks.

    Args:
        parent: The cache; must exist.
        now: Seconds since the epoch.
    """
    return [each for each in parent.iterdir() if now >= each.stat().st_mtime + UNUSED_SECONDS]


def _content_folder(root: Path, digest: str) -> Path:
    if not DIGEST.fullmatch(digest):
        raise InvalidInputError(f"{digest!r} is no digest of a pack")
    return root / CONTENT / digest.removeprefix(PREFIX)


def _digest(copy: Path) -> str:
    manifest, tasks = pack_file(copy, MANIFEST_FILE), pack_file(copy, TASKS_FILE)
    for name, path in ((MANIFEST_FILE, manifest), (TASKS_FILE, tasks)):
        if not path.is_file():
            raise PackError("the pack has no such file", path=name)
    roots = load_benchmark_manifest(manifest, shown=MANIFEST_FILE).asset_roots
    return pack_digest(manifest, tasks, roots)
