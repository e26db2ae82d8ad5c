"""From a pack source to a frozen, content-addressed copy that no later change can reach."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.files.load import load_benchmark_manifest, pack_file, read_answers
from securebench.benchmark.files.pack_digest import pack_digest
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.controller.admission.copies import copy_folder
from securebench.controller.runtime.prepared_run import FrozenPack
from securebench.core.errors import PackError, PackMissingError
from securebench.core.json_values import object_at, text_at
from securebench.core.names import USABLE, USABLE_BY_GATEWAY, USABLE_LABEL
from securebench.files.durable import make_folder
from securebench.run.api.field_types import HIDDEN_NAME
from securebench.run.api.models import BenchmarkRunSpec, KeyedPack, Pack
from securebench.run.layout import PACKS

logger = logging.getLogger(__name__)

CONTENT = f"{PACKS}/.content"
IMAGES = f"{PACKS}/.images"
"""Packs as they were pulled from registries, one folder for each image."""

IMAGE_PACK = "pack"
"""In the folder of an image: the pack's files."""

LIMITS = BundleLimits()

UNUSED_SECONDS = 3600.0
"""How long a frozen copy stays that no run is bound to: a run may be about to bind itself. A copy
that is being made takes less."""


async def fetch_keyed(cluster: Cluster, pack: Pack) -> Mapping[str, bytes] | None:
    """Return the files of a ConfigMap or Secret pack by path, None for any other pack.

    Raises:
        PackMissingError: The object does not exist or may not be used.
        PackError: A path is named twice, or a key is not there.
    """
    if pack.config_map is not None:
        name = pack.config_map.name
        raw = await cluster.get(ObjectKind.CONFIG_MAP, name)
        if raw is None:
            missing = f"ConfigMap {name!r} does not exist in this namespace"
            raise PackMissingError(missing, "create it, then a new run")
        return _files(pack.config_map, raw)
    if pack.secret is not None:
        secret = await cluster.get(ObjectKind.SECRET, pack.secret.name)
        if secret is None or not is_usable(secret):
            raise PackMissingError(*no_secret(f"Secret {pack.secret.name!r}"))
        return _files(pack.secret, secret)
    return None


def is_usable(secret: Raw, *, by_gateway: bool = False) -> bool:
    """Return whether a Secret is meant for runs: creating a run is no right to read all.

    Args:
        secret: As the API server has it.
        by_gateway: Whether only a gateway gets its values.
    """
    labels = object_at(object_at(secret, "metadata"), "labels")
    value = text_at(labels, USABLE_LABEL)
    return value == USABLE or (by_gateway and value == USABLE_BY_GATEWAY)


def no_secret(what: str) -> tuple[str, str]:
    """Return what is missing and the remedy; both are the same whether the Secret exists or not.

    Args:
        what: Names the Secret.
    """
    label = f'{USABLE_LABEL}: "{USABLE}"'
    missing = f"{what} does not exist in this namespace or lacks the label {label}"
    return missing, "create or label it, then create a new run"


def answers_content(root: Path, pack: Pack, files: Mapping[str, bytes] | None) -> bytes | None:
    """Return the reference answers of a pack, or None where it has none. Blocks.

    They are no part of what is frozen: the pack's digest does not cover them.

    Args:
        root: Where the volume is mounted.
        pack: The source.
        files: Content of a keyed pack by path, None for one whose files are on the volume.

    Raises:
        PackError: The file is reached by a symlink or cannot be read.
    """
    folder = PurePosixPath(pack.manifest).parent
    if files is not None:
        return files.get(str(folder / ANSWERS_FILE))
    return read_answers(_source_folder(root, pack) / folder)


def image_folder(root: Path, image: str) -> Path:
    """Return where the operator keeps what it pulled of an image.

    Args:
        root: Where the volume is mounted.
        image: The whole reference: another registry may not offer what this one did.
    """
    return root / IMAGES / hashlib.sha256(image.encode()).hexdigest()


def freeze(
    root: Path, pack: Pack, files: Mapping[str, bytes] | None, limits: BundleLimits = LIMITS
) -> FrozenPack:
    """Copy a pack to the place that its content names. Blocks.

    Args:
        root: Where the volume is mounted.
        pack: The source.
        files: Content of a keyed pack by path, None for one whose files are on the volume.
        limits: Bounds of files on the volume.

    Raises:
        PackMissingError: There is no such folder.
        PackError: There is no such file, it is too large, or the pinned digest differs.
        ConfigErrors: The manifest does not hold.
    """
    content = root / CONTENT
    make_folder(content)
    with tempfile.TemporaryDirectory(dir=content, prefix=".incoming-") as scratch:
        copy = Path(scratch) / "pack"
        if files is None:
            _copy_pack(root, pack, copy, limits)
        else:
            _write_files(copy, files)
        digest = _digest(pack, copy)
        if pack.digest is not None and pack.digest != digest:
            raise PackError(
                f"the pack has digest {digest}, spec.pack.digest says {pack.digest}; push the pack"
                " again, or pin the digest that it has"
            )
        final = _content_folder(root, pack, digest)
        if not final.exists():
            copy.rename(final)
        os.utime(final)
    return frozen(root, pack, digest)


def frozen(root: Path, pack: Pack, digest: str) -> FrozenPack:
    """Return the frozen copy with a digest.

    Raises:
        PackError: A file of it is not there.
    """
    folder = _content_folder(root, pack, digest)
    return FrozenPack(
        folder, pack_file(folder, pack.manifest), pack_file(folder, pack.tasks), digest
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
    used = {
        _content_folder(root, BenchmarkRunSpec.parse(spec).pack, str(binding["pack_digest"]))
        for binding in bound
        if isinstance(spec := binding["spec"], dict)
    }
    content = root / CONTENT
    for folder in content.iterdir() if content.is_dir() else ():
        is_fresh = now < folder.stat().st_mtime + UNUSED_SECONDS
        if folder in used or is_fresh:
            continue
        shutil.rmtree(folder)
        logger.info("frozen pack %s: removed, no run uses it", folder.name)


def _content_folder(root: Path, pack: Pack, digest: str) -> Path:
    """Return the place of a content; the digest does not cover the two files' names."""
    names = f"{digest}\0{pack.manifest}\0{pack.tasks}"
    return root / CONTENT / hashlib.sha256(names.encode()).hexdigest()


def _files(pack: KeyedPack, raw: Raw) -> dict[str, bytes]:
    places = {item.key: item.path for item in pack.items}
    content = _content(raw)
    missing = sorted(set(places) - set(content))
    if missing:
        raise PackError(f"{pack.name!r} has no key {', '.join(missing)}")
    files: dict[str, bytes] = {}
    for key, data in content.items():
        path = places.get(key, key)
        if path in files:
            raise PackError(f"{pack.name!r}: two keys are placed at {path!r}")
        files[path] = data
    for path in files:
        blocked = [str(parent) for parent in PurePosixPath(path).parents if str(parent) in files]
        if blocked:
            raise PackError(f"{pack.name!r}: {blocked[0]!r} is a file and the folder of {path!r}")
    return files


def _content(raw: Raw) -> dict[str, bytes]:
    is_secret = raw.get("kind") == ObjectKind.SECRET
    data, binary = raw.get("data"), raw.get("binaryData")
    content: dict[str, bytes] = {}
    for part, encoded in ((data, is_secret), (binary, True)):
        for key, value in part.items() if isinstance(part, Mapping) else ():
            content[str(key)] = _decode(str(value)) if encoded else str(value).encode()
    return content


def _decode(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise PackError("a value is not base64") from error


def _source_folder(root: Path, pack: Pack) -> Path:
    if pack.image is not None:
        return image_folder(root, pack.image) / IMAGE_PACK
    return root / PACKS / (pack.volume.path if pack.volume is not None else "")


def _copy_pack(root: Path, pack: Pack, copy: Path, limits: BundleLimits) -> None:
    source = _source_folder(root, pack)
    if pack.image is not None:
        copy_folder(source, copy, limits, pack.image)
        return
    path = pack.volume.path if pack.volume is not None else ""
    if re.search(HIDDEN_NAME, path):
        raise PackError(f"pack folder {path!r}: names that begin with a dot are the operator's own")
    if not source.is_dir() or source.resolve() != (root / PACKS).resolve() / path:
        missing = f"there is no pack folder {path!r} on the volume"
        raise PackMissingError(missing, "push it with 'securebench pack push', then a new run")
    copy_folder(source, copy, limits, path)


def _write_files(copy: Path, files: Mapping[str, bytes]) -> None:
    copy.mkdir()
    for path, data in files.items():
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _digest(pack: Pack, copy: Path) -> str:
    manifest, tasks = pack_file(copy, pack.manifest), pack_file(copy, pack.tasks)
    for name, path in ((pack.manifest, manifest), (pack.tasks, tasks)):
        if not path.is_file():
            raise PackError("the pack has no such file", path=name)
    roots = load_benchmark_manifest(manifest, shown=pack.manifest).asset_roots
    return pack_digest(manifest, tasks, roots)
