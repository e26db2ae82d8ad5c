"""A pack as an image: build its two layers and manifest, push and pull it.

The same pack gives the same digests. A pull is bounded, and verified before anything is read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from securebench.benchmark.files.bundle import (
    BundleLimits,
    Content,
    folder_files,
    unpack_bundle,
    write_bundle,
)
from securebench.digests import PREFIX, content_digest
from securebench.errors import InvalidInputError, PackError, StorageError
from securebench.files import file_sha256
from securebench.names import ImageReference
from securebench.oci.artifact import (
    CONFIG,
    EMPTY,
    HIDDEN_LAYER,
    MANIFEST_TYPE,
    PUBLIC_LAYER,
    Descriptor,
    PackArtifact,
    decode_artifact,
    encode_artifact,
)
from securebench.oci.registry import Registry


@dataclass(frozen=True, slots=True)
class PackLanes:
    """A pack to be built.

    Attributes:
        id: Id of the pack.
        digest: ``sha256:…`` (contract 15.6).
        public: Manifest and files that agents may get, by path in the pack.
        hidden: Everything else, likewise.
    """

    id: str
    digest: str
    public: Mapping[str, Content]
    hidden: Mapping[str, Content]


@dataclass(frozen=True, slots=True)
class BuiltPack:
    """An image of a pack.

    Attributes:
        manifest: Its manifest.
        layers: Where each layer lies, by its descriptor.
    """

    manifest: bytes
    layers: Mapping[Descriptor, Path]

    @property
    def digest(self) -> str:
        """Digest of the image."""
        return content_digest(self.manifest)


def build_pack(pack: PackLanes, folder: Path, limits: BundleLimits) -> BuiltPack:
    """Write the layers of a pack into an existing folder, each under its hexadecimal digest.

    Raises:
        InvalidInputError: A file is no regular file, or changed meanwhile.
        TooLargeError: The files exceed the limits.
    """
    public = _layer(PUBLIC_LAYER, pack.public, folder, limits)
    hidden = _layer(HIDDEN_LAYER, pack.hidden, folder, limits)
    artifact = PackArtifact(public, hidden, pack.id, pack.digest)
    places = {layer: folder / _name(layer.digest) for layer in artifact.layers}
    return BuiltPack(encode_artifact(artifact), places)


def write_layout(pack: PackLanes, folder: Path, limits: BundleLimits) -> BuiltPack:
    """Write an image as an OCI image layout into a new folder, for tools that push those.

    Args:
        pack: What to build.
        folder: Must not exist.

    Raises:
        InvalidInputError: A file is no regular file, or changed meanwhile.
        TooLargeError: The files exceed the limits.
        OSError: The folder exists, or cannot be written.
    """
    blobs = folder / "blobs" / PREFIX.removesuffix(":")
    folder.mkdir(parents=True)
    blobs.mkdir(parents=True)
    built = build_pack(pack, blobs, limits)
    (blobs / _name(built.digest)).write_bytes(built.manifest)
    (blobs / _name(CONFIG.digest)).write_bytes(EMPTY)
    image = Descriptor(MANIFEST_TYPE, built.digest, len(built.manifest))
    index = {"schemaVersion": 2, "manifests": [image.to_json()]}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    return built


async def push_pack(registry: Registry, reference: ImageReference, built: BuiltPack) -> None:
    """Put an image into its repository; what the registry has already is not sent again.

    Raises:
        PackError: The registry refuses it.
        RegistryUnavailableError: Transient; may be retried.
    """
    contents: dict[Descriptor, Path | bytes] = {CONFIG: EMPTY, **built.layers}
    for blob, content in contents.items():
        if not await registry.has(blob):
            await registry.upload(blob, content)
    await registry.put_manifest(built.manifest, reference.tag or built.digest)


def _layer(
    media_type: str, files: Mapping[str, Content], folder: Path, limits: BundleLimits
) -> Descriptor:
    part = folder / f"{media_type.rpartition('/')[2]}.part"
    with part.open("wb") as target:
        write_bundle(files, target, limits)
    digest = file_sha256(part)
    size_bytes = part.stat().st_size
    part.rename(folder / digest)
    return Descriptor(media_type, f"{PREFIX}{digest}", size_bytes)


def _name(digest: str) -> str:
    return digest.removeprefix(PREFIX)


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
