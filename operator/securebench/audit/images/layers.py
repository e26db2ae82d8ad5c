"""One pass over the layers of images: which files hold a value, and what is left at the end."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from securebench.audit.images.archive import Image, UnreadableImageError, layer_digest, open_layer
from securebench.core.sizes import MIB

MAX_FILE_BYTES = 256 * MIB
"""Larger files of an image are not read."""

PROBE_BYTES = 32
"""So much of a value is searched first: preparing the search of a long one takes longer."""

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


class LayerHit(NamedTuple):
    """A file of a layer that holds a value."""

    path: str
    needle: bytes


class LayerScan(NamedTuple):
    """What one layer holds: values, and files that were not read."""

    hits: tuple[LayerHit, ...]
    too_large: tuple[str, ...]


@dataclass(slots=True)
class LayerScanner:
    """Searches layers for values; a layer that images share is read once.

    Attributes:
        needles: What is searched; each at least PROBE_BYTES long.
    """

    needles: Sequence[bytes]
    _known: dict[str, LayerScan] = field(default_factory=dict)
    _digests: dict[tuple[Path, str], str] = field(default_factory=dict)

    def scan(self, image: Image, layer: str) -> LayerScan:
        """Return what a layer holds, also in files that a layer above removes.

        Raises:
            UnreadableImageError: The layer cannot be read.
        """
        place = (image.archive, layer)
        if place not in self._digests:
            self._digests[place] = layer_digest(image, layer)
        digest = self._digests[place]
        if digest not in self._known:
            self._known[digest] = self._scan(image, layer)
        return self._known[digest]

    def _scan(self, image: Image, layer: str) -> LayerScan:
        hits: list[LayerHit] = []
        too_large: list[str] = []
        probes = [(needle[:PROBE_BYTES], needle) for needle in self.needles]
        for path, member, tar in _members(image, layer):
            if not member.isreg():
                continue
            if member.size > MAX_FILE_BYTES:
                too_large.append(path)
            elif member.size >= PROBE_BYTES:
                content = _content(tar, member)
                hits += [
                    LayerHit(path, needle)
                    for probe, needle in probes
                    if probe in content and needle in content
                ]
        return LayerScan(tuple(hits), tuple(too_large))


class KeptLayers(NamedTuple):
    """Files of an image below some paths.

    Attributes:
        final: What a container sees.
        ever: What any layer has at a path, removed and replaced content included.
    """

    final: Mapping[str, bytes]
    ever: Mapping[str, tuple[bytes, ...]]


def keep_files(image: Image, is_wanted: Callable[[str], bool]) -> KeptLayers:
    """Return files of an image.

    Args:
        image: The image.
        is_wanted: Says of a path without a slash at its beginning whether it is kept.

    Raises:
        UnreadableImageError: A layer cannot be read, or a file is too large.
    """
    final: dict[str, bytes] = {}
    ever: dict[str, list[bytes]] = {}
    for layer in image.layers:
        added: dict[str, bytes] = {}
        for path, member, tar in _members(image, layer):
            _remove(final, path)
            if member.isreg() and is_wanted(path):
                if member.size > MAX_FILE_BYTES:
                    raise UnreadableImageError(f"the file {path!r} is too large")
                added[path] = _content(tar, member)
                ever.setdefault(path, []).append(added[path])
            elif member.islnk() and is_wanted(path):
                target = _normal(member.linkname)
                content = added.get(target, final.get(target))
                if content is not None:
                    added[path] = content
        final |= added
    return KeptLayers(final, {path: tuple(contents) for path, contents in ever.items()})


def _remove(final: dict[str, bytes], path: str) -> None:
    """Apply a whiteout to what the layers below left; other entries replace a file only."""
    folder, _, name = path.rpartition("/")
    if not name.startswith(WHITEOUT):
        final.pop(path, None)
        return
    gone = folder if name == OPAQUE else "/".join(filter(None, (folder, name[len(WHITEOUT) :])))
    above = f"{gone}/" if gone else ""
    for each in [each for each in final if each == gone or each.startswith(above)]:
        del final[each]


def _members(image: Image, layer: str) -> Iterator[tuple[str, tarfile.TarInfo, tarfile.TarFile]]:
    with open_layer(image, layer) as tar:
        for member in tar:
            yield _normal(member.name), member, tar


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return b"" if stream is None else stream.read()


def _normal(name: str) -> str:
    return str(PurePosixPath("/", name)).lstrip("/")
