"""Archives of images as ``docker save``, ``skopeo copy`` and ``buildah push`` write them.

Two forms: an OCI layout (``index.json``) and a docker-archive (``manifest.json``), each as one tar
file without compression. Nothing is unpacked; layers are read where they lie.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NamedTuple

from securebench.core.errors import InvalidInputError
from securebench.core.json_values import object_at, object_in
from securebench.core.sizes import MIB

MAX_JSON_BYTES = 16 * MIB
"""Longest manifest or configuration."""

MAX_INDEX_DEPTH = 4
"""Indexes that lie in one another, as builders for several platforms write them."""

_REFERENCE_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_CHUNK_BYTES = MIB
_DOCKER_HUB = "docker.io"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class UnreadableImageError(InvalidInputError):
    """An archive or a layer that cannot be inspected; says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of an archive.

    Attributes:
        references: Its names in full form, each with tag or digest.
        config: The image configuration: ``config``, ``history`` and so on.
        layers: Names of the layers' members, lowest first.
    """

    archive: Path
    references: tuple[str, ...]
    config: Mapping[str, object]
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The images of a folder.

    Attributes:
        images: By every full reference.
        unreadable: Archives that could not be read, with the reason.
    """

    images: Mapping[str, Sequence[Image]] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def of(self, reference: str) -> Sequence[Image]:
        """Return the images that a row's reference may name; one for each platform."""
        full = full_reference(reference)
        name, _, digest = full.partition("@")
        return self.images.get(full) or self.images.get(f"@{digest}" if digest else name) or ()


class _Entry(NamedTuple):
    """An image's manifest as one of both forms has it."""

    references: tuple[str, ...]
    config: str
    layers: tuple[str, ...]


def catalogue(folder: Path) -> Catalogue:
    """Return the images of all archives of a folder.

    Raises:
        UnreadableImageError: There is no such folder.
    """
    if not folder.is_dir():
        raise UnreadableImageError(f"{folder}: there is no such folder of image archives")
    images: dict[str, list[Image]] = {}
    unreadable: dict[str, str] = {}
    for path in sorted(folder.glob("*.tar")):
        try:
            for image in read_archive(path):
                for reference in image.references:
                    images.setdefault(reference, []).append(image)
        except UnreadableImageError as error:
            unreadable[path.name] = error.reason
    return Catalogue(images, unreadable)


def read_archive(path: Path) -> tuple[Image, ...]:
    """Return the images of an archive.

    Raises:
        UnreadableImageError: It is no archive of images.
    """
    with _opened(path) as tar:
        names = set(tar.getnames())
        if "manifest.json" in names:
            entries = list(_docker_entries(_json(tar, "manifest.json")))
        elif "index.json" in names:
            entries = list(_oci_entries(tar, _json(tar, "index.json"), (), MAX_INDEX_DEPTH))
        else:
            raise UnreadableImageError("it holds neither manifest.json nor index.json")
        return tuple(
            Image(path, entry.references, object_in(_json(tar, entry.config)), entry.layers)
            for entry in entries
        )


@contextmanager
def open_layer(image: Image, layer: str) -> Iterator[tarfile.TarFile]:
    """Open a layer for one pass from its beginning to its end.

    Raises:
        UnreadableImageError: It is missing, damaged or compressed in a way that is not read.
    """
    with _opened(image.archive) as outer, _member(outer, layer) as stream:
        magic = stream.read(4)
        stream.seek(0)
        if magic == _ZSTD:
            raise UnreadableImageError("a layer is compressed with zstd, which is not read")
        mode: Literal["r|gz", "r|"] = "r|gz" if magic.startswith(_GZIP) else "r|"
        try:
            with tarfile.open(fileobj=stream, mode=mode) as tar:
                yield tar
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise UnreadableImageError(f"a layer is damaged: {error}") from None


def layer_digest(image: Image, layer: str) -> str:
    """Return the SHA-256 of a layer's bytes; its name may lie.

    Raises:
        UnreadableImageError: It is missing.
    """
    digest = hashlib.sha256()
    with _opened(image.archive) as outer, _member(outer, layer) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def full_reference(reference: str) -> str:
    """Return a reference with registry, path and tag, as clusters resolve it.

    Args:
        reference: As rows have it, e.g. ``python:3.11-slim`` or ``name@sha256:…``.
    """
    name, _, digest = reference.partition("@")
    path, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    first, slash, _ = path.partition("/")
    if not slash:
        path = f"{_DOCKER_HUB}/library/{path}"
    elif "." not in first and ":" not in first and first != "localhost":
        path = f"{_DOCKER_HUB}/{path}"
    tagged = f"{path}:{tag}" if tag or digest else f"{path}:latest"
    return f"{tagged.removesuffix(':')}@{digest}" if digest else tagged


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        tar = tarfile.open(path, "r:")  # noqa: SIM115 - closed below
    except (tarfile.TarError, OSError) as error:
        raise UnreadableImageError(f"it is no tar file without compression: {error}") from None
    with tar:
        yield tar


@contextmanager
def _member(tar: tarfile.TarFile, name: str) -> Iterator[IO[bytes]]:
    try:
        stream = tar.extractfile(name)
    except (KeyError, tarfile.TarError):
        stream = None
    if stream is None:
        raise UnreadableImageError(f"{name!r} is missing in the archive")
    with stream:
        yield stream


def _json(tar: tarfile.TarFile, name: str) -> object:
    with _member(tar, name) as stream:
        content = stream.read(MAX_JSON_BYTES)
    try:
        return json.load(io.BytesIO(content))
    except (ValueError, RecursionError):
        raise UnreadableImageError(f"{name!r} of the archive is no JSON") from None


def _docker_entries(manifest: object) -> Iterator[_Entry]:
    for item in map(object_in, _list(manifest)):
        tags = tuple(full_reference(str(tag)) for tag in _list(item.get("RepoTags")))
        layers = tuple(str(layer) for layer in _list(item.get("Layers")))
        yield _Entry(tags, str(item.get("Config")), layers)


def _oci_entries(
    tar: tarfile.TarFile, index: object, above: tuple[str, ...], depth: int
) -> Iterator[_Entry]:
    """Yield the images of an index and of the indexes in it, with the names that lead there."""
    if depth == 0:
        raise UnreadableImageError("its indexes lie too deep in one another")
    for item in map(object_in, _list(object_in(index).get("manifests"))):
        digest = str(item.get("digest"))
        annotations = object_at(item, "annotations")
        named = (str(annotations[key]) for key in _REFERENCE_KEYS if key in annotations)
        references = (*above, *map(full_reference, named), f"@{digest}")
        manifest = object_in(_json(tar, _blob(digest)))
        if "manifests" in manifest:
            yield from _oci_entries(tar, manifest, references, depth - 1)
            continue
        layers = tuple(_blob(object_in(x).get("digest")) for x in _list(manifest.get("layers")))
        config = _blob(object_at(manifest, "config").get("digest"))
        yield _Entry(tuple(dict.fromkeys(references)), config, layers)


def _blob(digest: object) -> str:
    return f"blobs/{str(digest).replace(':', '/', 1)}"


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
