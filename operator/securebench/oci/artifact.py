"""The manifest of a pack as an OCI artifact (docs/reference/protocol.md, "Packs in registries")."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from securebench.digests import DIGEST, content_digest
from securebench.errors import PackError
from securebench.json_values import object_at, objects_at, text_at
from securebench.sizes import KIB

ARTIFACT_TYPE = "application/vnd.securebench.pack.v1"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
PUBLIC_LAYER = "application/vnd.securebench.pack.public.v1.tar"
HIDDEN_LAYER = "application/vnd.securebench.pack.hidden.v1.tar"
"""Task rows, files of the lanes that agents do not see, and reference answers."""

_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
EMPTY = b"{}"
"""The configuration of an artifact that has none (OCI image-spec 1.1)."""

MAX_MANIFEST_BYTES = 64 * KIB
"""A pack's manifest has less than 2 KiB."""

PACK_ID = "dev.securebench.pack.id"
_PACK_DIGEST = "dev.securebench.pack.digest"
"""Annotations, for people: nothing is decided by them."""


class Descriptor(NamedTuple):
    """A blob.

    Args:
        media_type: What it is.
        digest: ``sha256:…`` of its bytes.
        size_bytes: Its bytes.
    """

    media_type: str
    digest: str
    size_bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the descriptor as OCI spells it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}


CONFIG = Descriptor(_EMPTY_TYPE, content_digest(EMPTY), len(EMPTY))


@dataclass(frozen=True, slots=True)
class PackArtifact:
    """A pack's two layers: uncompressed, deterministic bundles.

    Attributes:
        public: Manifest and files that agents may get.
        hidden: Everything else.
        pack_id: Id of the pack; empty where the manifest does not say it.
        pack_digest: Digest of the pack (contract 15.6), likewise.
    """

    public: Descriptor
    hidden: Descriptor
    pack_id: str = ""
    pack_digest: str = ""

    @property
    def layers(self) -> Sequence[Descriptor]:
        """The layers in the order of the manifest."""
        return self.public, self.hidden


def encode_artifact(artifact: PackArtifact) -> bytes:
    """Return the manifest; the same artifact gives the same bytes."""
    body = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": CONFIG.to_json(),
        "layers": [layer.to_json() for layer in artifact.layers],
        "annotations": {PACK_ID: artifact.pack_id, _PACK_DIGEST: artifact.pack_digest},
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def decode_artifact(content: bytes, shown: str) -> PackArtifact:
    """Return the pack that a manifest describes.

    Args:
        content: From a registry; its digest was verified.
        shown: The image, for messages.

    Raises:
        PackError: It is no pack, one of another version, or one whose layers are the same.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise PackError(f"image {shown}: its manifest is not JSON") from None
    if not isinstance(body, Mapping) or text_at(body, "artifactType") != ARTIFACT_TYPE:
        raise PackError(
            f"image {shown} is no pack of artifact type {ARTIFACT_TYPE}; push the pack with"
            " 'securebench pack push --image'"
        )
    layers = [_descriptor(layer, shown) for layer in objects_at(body, "layers")]
    if [layer.media_type for layer in layers] != [PUBLIC_LAYER, HIDDEN_LAYER]:
        raise PackError(f"image {shown} does not have the two layers of a pack, public and hidden")
    if layers[0].digest == layers[1].digest:
        raise PackError(f"image {shown} names one layer twice; push the pack again")
    notes = object_at(body, "annotations")
    return PackArtifact(layers[0], layers[1], text_at(notes, PACK_ID), text_at(notes, _PACK_DIGEST))


def _descriptor(raw: Mapping[str, object], shown: str) -> Descriptor:
    digest, size_bytes = text_at(raw, "digest"), raw.get("size")
    if DIGEST.fullmatch(digest) is None or type(size_bytes) is not int or size_bytes < 0:
        raise PackError(f"image {shown} has a layer without a SHA-256 digest and a size")
    return Descriptor(text_at(raw, "mediaType"), digest, size_bytes)
