"""From an image to a folder with the pack: bounded, and verified before anything is read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.benchmark.files.bundle import BundleLimits, folder_files, unpack_bundle
from securebench.digests import content_digest
from securebench.errors import InvalidInputError, PackError, StorageError
from securebench.names import ImageReference
from securebench.oci.artifact import PackArtifact, decode_artifact
from securebench.oci.registry import Registry


async def pull_pack(
    registry: Registry, reference: ImageReference, folder: Path, limits: BundleLimits
) -> str:
    """Pull a pack into a folder that appears when it is complete; return the image's digest.

    Args:
        registry: The reference's.
        reference: With digest or tag.
        folder: Must not exist; its parent must be writable by nobody else meanwhile.
        limits: Bounds of the unpacked pack.

    Raises:
        PackError: It is no pack, not the one that was named, too large, or an entry of it is
            refused.
        PackImageMissingError: The registry does not have it (yet).
        RegistryUnavailableError: Transient; may be retried.
        OSError: The disk did not do what was asked.
    """
    content = await registry.manifest(reference.digest or reference.tag)
    artifact = decode_artifact(content, str(reference))
    _require_size(artifact, limits, reference)
    with TemporaryDirectory(dir=folder.parent, prefix=".layers-") as scratch:
        layers = [Path(scratch, layer.digest) for layer in artifact.layers]
        for layer, path in zip(artifact.layers, layers, strict=True):
            await registry.fetch(layer, path)
        try:
            await asyncio.to_thread(_unpack, layers, Path(scratch, "pack"), limits)
        except (InvalidInputError, StorageError) as error:
            raise PackError(f"image {reference}: {error}") from error
        await asyncio.to_thread(Path(scratch, "pack").rename, folder)
    return content_digest(content)


def _require_size(artifact: PackArtifact, limits: BundleLimits, reference: ImageReference) -> None:
    """Refuse layers that are larger than the tar of any pack that is allowed."""
    size_bytes = sum(layer.size_bytes for layer in artifact.layers)
    if size_bytes > limits.tar_bytes:
        raise PackError(
            f"image {reference} has {size_bytes} bytes, more than a pack of at most"
            f" {limits.size_bytes} bytes (settings.bounds.packBytes) can have"
        )


def _unpack(layers: list[Path], folder: Path, limits: BundleLimits) -> None:
    """Unpack the layers into one folder; no layer replaces anything of another."""
    left = limits
    for number, layer in enumerate(layers):
        place = layer.with_suffix(".unpacked") if number else folder
        with layer.open("rb") as source:
            receipt = unpack_bundle(source, place, left)
        left = BundleLimits(left.files - receipt.files, left.size_bytes - receipt.size_bytes)
        layer.unlink()
        if number:
            _merge(place, folder)


def _merge(source: Path, folder: Path) -> None:
    for name, path in folder_files(source).items():
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            is_taken = target.exists()
        except (FileExistsError, NotADirectoryError):
            is_taken = True
        if is_taken:
            raise InvalidInputError(f"both layers have {name!r}, or one has it below a file")
        path.rename(target)
