"""From a pack source to a frozen, content-addressed copy that no later change can reach."""

from __future__ import annotations

import base64
import binascii
import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from securebench.api.models import KeyedPack, Pack
from securebench.durable import make_folder
from securebench.errors import PackError
from securebench.kube.port import Cluster, Kind, Raw
from securebench.manifests.layout import PACKS
from securebench.names import USABLE, USABLE_BY_GATEWAY, USABLE_LABEL
from securebench.packs.digest import pack_digest
from securebench.packs.load import load_benchmark_manifest, pack_file, read_answers
from securebench.packs.oracle import ANSWERS_FILE

CONTENT = f"{PACKS}/.content"


@dataclass(frozen=True, slots=True)
class FrozenPack:
    """A pack that cannot change any more.

    Attributes:
        folder: Its folder on the volume.
        manifest: The manifest file below it.
        tasks: The task file below it.
        digest: ``sha256:…`` of contract 15.6.
    """

    folder: Path
    manifest: Path
    tasks: Path
    digest: str


async def fetch_keyed(cluster: Cluster, pack: Pack) -> Mapping[str, bytes] | None:
    """Return the files of a ConfigMap or Secret pack by path, None for a pack on the volume.

    Raises:
        PackError: The object does not exist, may not be used, or a path is named twice.
    """
    if pack.config_map is not None:
        raw = await cluster.get(Kind.CONFIG_MAP, pack.config_map.name)
        return _files(pack.config_map, _found(raw, f"ConfigMap {pack.config_map.name!r}"))
    if pack.secret is not None:
        what = f"Secret {pack.secret.name!r}"
        raw = _found(await cluster.get(Kind.SECRET, pack.secret.name), what)
        require_usable(raw, what)
        return _files(pack.secret, raw)
    return None


def require_usable(secret: Raw, what: str, *, by_gateway: bool = False) -> None:
    """Refuse a Secret that nobody meant for runs: creating a run is no right to read all.

    Args:
        secret: As the API server has it.
        what: Begins the message.
        by_gateway: Whether only a gateway gets its values.

    Raises:
        PackError: The label is missing.
    """
    metadata = secret.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    value = labels.get(USABLE_LABEL) if isinstance(labels, Mapping) else None
    if value != USABLE and not (by_gateway and value == USABLE_BY_GATEWAY):
        raise PackError(f'{what} lacks the label {USABLE_LABEL}: "{USABLE}"')


def answers_content(root: Path, pack: Pack, files: Mapping[str, bytes] | None) -> bytes | None:
    """Return the reference answers of a pack, or None where it has none. Blocks.

    They are no part of what is frozen: the pack's digest does not cover them.

    Args:
        root: Where the volume is mounted.
        pack: The source.
        files: Content of a keyed pack by path, None for a folder of the volume.

    Raises:
        PackError: The file is reached by a symlink or cannot be read.
    """
    folder = PurePosixPath(pack.manifest).parent
    if files is not None:
        return files.get(str(folder / ANSWERS_FILE))
    path = pack.volume.path if pack.volume is not None else ""
    return read_answers(root / PACKS / path / folder)


def freeze(root: Path, pack: Pack, files: Mapping[str, bytes] | None) -> FrozenPack:
    """Copy a pack to the place that its content names. Blocks.

    Args:
        root: Where the volume is mounted.
        pack: The source.
        files: Content of a keyed pack by path, None for a folder of the volume.

    Raises:
        PackError: There is no such folder or file, or the pinned digest differs.
        ConfigErrors: The manifest does not hold.
    """
    content = root / CONTENT
    make_folder(content)
    with tempfile.TemporaryDirectory(dir=content, prefix=".incoming-") as scratch:
        copy = Path(scratch) / "pack"
        if files is None:
            _copy_folder(root, pack, copy)
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


def _content_folder(root: Path, pack: Pack, digest: str) -> Path:
    """Return the place of a content; the digest does not cover the two files' names."""
    names = f"{digest}\0{pack.manifest}\0{pack.tasks}"
    return root / CONTENT / hashlib.sha256(names.encode()).hexdigest()


def _found(raw: Raw | None, what: str) -> Raw:
    if raw is None:
        raise PackError(f"{what} does not exist in this namespace; create it, then a new run")
    return raw


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
    is_secret = raw.get("kind") == Kind.SECRET
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


def _copy_folder(root: Path, pack: Pack, copy: Path) -> None:
    path = pack.volume.path if pack.volume is not None else ""
    source = root / PACKS / path
    if not source.is_dir() or source.resolve() != (root / PACKS).resolve() / path:
        raise PackError(
            f"there is no pack folder {path!r} on the volume; push it with 'securebench pack push'"
        )
    shutil.copytree(source, copy, symlinks=True)


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
