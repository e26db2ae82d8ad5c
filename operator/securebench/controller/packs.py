"""From a pack source to a frozen, content-addressed copy that no later change can reach.

The files of a pack are read from the API server, copied from a folder of the volume (bounded,
plain, never into itself), or pulled from a registry. Pulled packs are kept for runs that start
soon.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from securebench.agents.providers.endpoint import is_listed
from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.files.folders import is_folder_pack, place_folders, read_folder_pack
from securebench.benchmark.files.load import (
    load_benchmark_manifest,
    pack_digest,
    pack_file,
    read_answers,
)
from securebench.benchmark.pack.oracle import ANSWERS_FILE
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.controller.context import Context, FrozenPack
from securebench.controller.policy_from_settings import AS_PACK, is_usable, no_secret
from securebench.controller.settings import PackRegistries, Settings
from securebench.controller.volume.registers import pack_limits
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.digests import DIGEST, PREFIX
from securebench.errors import (
    ConfigError,
    ConfigErrors,
    InvalidInputError,
    InvariantViolationError,
    PackError,
    PackMissingError,
    RegistryUnavailableError,
    SpecError,
    StorageError,
)
from securebench.files import make_folder, replace_file, tree_digest
from securebench.json_values import object_at, text_at
from securebench.names import PACK_PATHS_ANNOTATION, ImageReference, image_reference
from securebench.oci.access import (
    RegistryAccess,
    RegistryAdvice,
    RegistryLogin,
    docker_credentials,
    listed_access,
)
from securebench.oci.pack_image import pull_pack
from securebench.oci.registry import Registry, registry_session
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import PACKS
from securebench.run.api.field_types import HIDDEN_NAME
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE, BenchmarkRunSpec, Pack
from securebench.run.plan.score_fields import spec_harness

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
        image: The whole reference: another registry may not offer what this one did.
    """
    return root / IMAGES / hashlib.sha256(image.encode()).hexdigest()


def freeze(root: Path, pack: Pack, source: PackSource) -> FrozenPack:
    """Copy a pack to the place that its content names. Blocks.

    Args:
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
        if is_folder_pack(copy / MANIFEST_FILE, copy / TASKS_FILE):
            copy = _placed(copy, pack)
        digest = _digest(copy)
        if pack.digest is not None and pack.digest != digest:
            raise PackError(
                f"the pack has digest {digest}, spec.pack.digest says {pack.digest}; push the pack"
                " again, or pin the digest that it has"
            )
        final = content_folder(root, digest)
        if not final.exists():
            copy.rename(final)
        os.utime(final)
    return frozen(root, digest)


def _placed(copy: Path, pack: Pack) -> Path:
    """Return a pack of task folders as an upload has it: each task in a folder, and a manifest.

    Raises:
        ConfigErrors: Lists all that is wrong with the folders, by their path in the pack.
    """
    named = copy.parent / _name(pack)
    if named != copy:
        copy.rename(named)
    found = read_folder_pack(named / MANIFEST_FILE, shown=MANIFEST_FILE)
    if found.errors:
        raise ConfigErrors([_inside(error, named) for error in found.errors])
    place_folders(found, copy.parent / ".placed")
    return copy.parent / ".placed"


def _name(pack: Pack) -> str:
    """Return what the folder of a pack is called that says no name of its own."""
    if pack.volume is not None:
        return PurePosixPath(pack.volume.path).name
    if pack.image is not None:
        return PurePosixPath(image_reference(pack.image).repository).name
    named = pack.secret or pack.config_map
    return "pack" if named is None else named.name


def _inside(error: PackError, folder: Path) -> PackError:
    path = str(Path(error.path).relative_to(folder)) if error.path else error.path
    return PackError(error.reason, path=path, line=error.line)


def frozen(root: Path, digest: str) -> FrozenPack:
    """Return the frozen copy with a digest.

    Raises:
        PackError: A file of it is not there.
        InvalidInputError: It is no digest.
    """
    folder = content_folder(root, digest)
    return FrozenPack(
        folder, pack_file(folder, MANIFEST_FILE), pack_file(folder, TASKS_FILE), digest
    )


def remove_unused(root: Path, bound: Iterable[Mapping[str, object]], now: float) -> None:
    """Remove frozen copies that no run is bound to, and what a broken-off copy left. Blocks.

    Args:
        bound: What every run is bound to of which more is left than how it ended.
        now: Seconds since the epoch.

    Raises:
        InvalidInputError: A binding cannot be read; then nothing goes.
    """
    used = {content_folder(root, str(binding["pack_digest"])) for binding in bound}
    content = root / CONTENT
    for folder in _unused_folders(content, now) if content.is_dir() else ():
        if folder not in used:
            shutil.rmtree(folder)
            logger.info("frozen pack %s: removed, no run uses it", folder.name)


def _unused_folders(parent: Path, now: float) -> list[Path]:
    """Return the folders in a cache of packs that nothing touched for ``UNUSED_SECONDS``. Blocks.

    Args:
        parent: The cache; must exist.
        now: Seconds since the epoch.
    """
    return [each for each in parent.iterdir() if now >= each.stat().st_mtime + UNUSED_SECONDS]


def content_folder(root: Path, digest: str) -> Path:
    """Return where the frozen copy with a digest is.

    Raises:
        InvalidInputError: It is no digest.
    """
    if not DIGEST.fullmatch(digest):
        raise InvalidInputError(f"{digest!r} is no digest of a pack")
    return root / CONTENT / digest.removeprefix(PREFIX)


def _digest(copy: Path) -> str:
    manifest, tasks = pack_file(copy, MANIFEST_FILE), pack_file(copy, TASKS_FILE)
    if is_folder_pack(manifest, tasks):
        return read_folder_pack(manifest).digest
    for name, path in ((MANIFEST_FILE, manifest), (TASKS_FILE, tasks)):
        if not path.is_file():
            raise PackError("the pack has no such file", path=name)
    roots = load_benchmark_manifest(manifest, shown=MANIFEST_FILE).asset_roots
    return pack_digest(manifest, tasks, roots)


def copy_folder(source: Path, target: Path, limits: BundleLimits, shown: str) -> None:
    """Copy a folder with its symlinks as they are. Blocks.

    Everything is counted before the first byte is copied, so that a folder that is too large, or
    grows while it is copied, cannot fill the volume by more than it held at that moment.

    Args:
        source: An existing folder.
        target: A place where nothing is.
        limits: Bounds of entries and of bytes, as ``settings.bounds`` has them for packs.
        shown: The folder's name for messages.

    Raises:
        PackError: There is too much, or something that is neither file, folder nor symlink.
    """
    entries = list(_counted(source, limits, shown))
    target.mkdir()
    for path, is_folder in entries:
        place = target / path.relative_to(source)
        if is_folder:
            place.mkdir()
        else:
            shutil.copy2(path, place, follow_symlinks=False)


def _counted(source: Path, limits: BundleLimits, shown: str) -> Iterator[tuple[Path, bool]]:
    count = size_bytes = 0
    folders = [source]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                is_folder = entry.is_dir(follow_symlinks=False)
                count += 1
                size_bytes += 0 if is_folder else _size_bytes(entry, source, shown)
                _check(count, size_bytes, limits, shown)
                if is_folder:
                    folders.append(Path(entry.path))
                yield Path(entry.path), is_folder


def _size_bytes(entry: os.DirEntry[str], source: Path, shown: str) -> int:
    if entry.is_symlink() or entry.is_file(follow_symlinks=False):
        return entry.stat(follow_symlinks=False).st_size
    name = Path(entry.path).relative_to(source)
    raise PackError(f"pack folder {shown!r}: {str(name)!r} is no file, folder or symlink")


def _check(count: int, size_bytes: int, limits: BundleLimits, shown: str) -> None:
    if count > limits.files:
        raise PackError(
            f"pack folder {shown!r} has more than {limits.files} entries"
            " (settings.bounds.packFiles); take away what is no part of the pack"
        )
    if size_bytes > limits.size_bytes:
        raise PackError(
            f"pack folder {shown!r} has more than {limits.size_bytes} bytes"
            " (settings.bounds.packBytes); take away what is no part of the pack"
        )


async def fetch_pack(context: Context, pack: Pack) -> PackSource:
    """Return where the files of a pack are; an image is on the volume afterwards.

    Args:
        pack: As a run or suite names it.

    Raises:
        PackMissingError: There is no such object or image, or it may not be used.
        PackError: It is refused.
        RegistryUnavailableError: The registry did not answer; transient.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    root, limits = context.settings.data_root, pack_limits(context.settings)
    if pack.volume is not None:
        return FolderSource(root, pack.volume.path, limits)
    if pack.image is not None:
        await _pull_image(context, pack.image)
        return ImageSource(root, pack.image, limits)
    return KeyedSource(await keyed_files(context.cluster, pack))


async def keyed_files(cluster: Cluster, pack: Pack) -> Mapping[str, bytes]:
    """Return the files of a ConfigMap or Secret pack by path.

    The object is read whole, and it alone says which key is which file: whoever may create a run
    but not read the pack could otherwise place a hidden file where the agent sees it.

    Raises:
        PackMissingError: The object does not exist or may not be used.
        PackError: Its keys and its annotation do not name files.
    """
    if pack.secret is not None:
        secret = await cluster.get(ObjectKind.SECRET, pack.secret.name)
        if secret is None or not is_usable(secret, AS_PACK):
            raise PackMissingError(*no_secret(f"Secret {pack.secret.name!r}", AS_PACK))
        return _files(pack.secret.name, secret)
    if pack.config_map is None:
        raise InvariantViolationError("a pack has no source, which its model refuses")
    name = pack.config_map.name
    raw = await cluster.get(ObjectKind.CONFIG_MAP, name)
    if raw is None:
        missing = f"ConfigMap {name!r} does not exist in this namespace"
        raise PackMissingError(missing, "create it, then a new run")
    return _files(name, raw)


FOLDER_MARK = "--"
"""In a key, where the path of the file has a slash."""


def _files(name: str, raw: Raw) -> dict[str, bytes]:
    places, content = _places(name, raw), _content(raw)
    if missing := sorted(set(places) - set(content)):
        listed = ", ".join(missing)
        raise PackError(f"{name!r} has no key {listed}, which {PACK_PATHS_ANNOTATION} names")
    files: dict[str, bytes] = {}
    for key, data in content.items():
        named = places.get(key, key.replace(FOLDER_MARK, "/"))
        path = safe_relative_path(named, f"{name!r}: the path of key {key!r}")
        if path in files:
            raise PackError(f"{name!r}: two keys are placed at {path!r}")
        files[path] = data
    for path in files:
        blocked = [str(parent) for parent in PurePosixPath(path).parents if str(parent) in files]
        if blocked:
            raise PackError(f"{name!r}: {blocked[0]!r} is a file and the folder of {path!r}")
    return files


def _places(name: str, raw: Raw) -> dict[str, str]:
    """Return the paths that the object's annotation names, by key."""
    annotations = object_at(object_at(raw, "metadata"), "annotations")
    text = text_at(annotations, PACK_PATHS_ANNOTATION)
    try:
        places = decode_object(text.encode()) if text else {}
    except ValueError:
        places = {"": None}
    if not all(isinstance(path, str) for path in places.values()):
        raise PackError(
            f"{name!r}: the annotation {PACK_PATHS_ANNOTATION} must be a JSON object of keys and"
            ' paths, such as {"answers": "oracle/answers.jsonl"}'
        )
    return {key: str(path) for key, path in places.items()}


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


CONTENT_DIGEST = "digest"
"""Beside a pulled pack: the digest of its files, written when all of them are there."""

_SECRET_KEY = ".dockerconfigjson"  # noqa: S105 - the name of a key

_ADVICE = RegistryAdvice(
    login="the administrator gives credentials with the chart's settings.packRegistries.secret",
    authority="the administrator puts the authority's certificate, in PEM, into"
    " certificateAuthority of this registry in the chart's settings.packRegistries.registries",
    plain_http="for a registry without TLS the administrator sets plainHttp in the chart's"
    " settings.packRegistries.registries",
)


async def _pull_image(context: Context, image: str) -> None:
    """Let the pack of an image be on the volume, whole.

    Args:
        image: The whole reference, as ``spec.pack.image`` has it.

    Raises:
        PackImageMissingError: The registry does not have it (yet).
        PackError: It is refused.
        RegistryUnavailableError: The registry did not answer; transient.
        ClusterError: The API server did not answer.
        OSError: The volume did not do what was asked.
    """
    reference = image_reference(image)
    registries = context.settings.pack_registries
    access = listed_access(reference, _accesses(registries))
    folder = image_folder(context.settings.data_root, image)
    async with context.pulls.of(folder.name):
        if await bulk_on_volume(_is_intact, folder):
            return
        credentials = await _credentials(context, reference)
        try:
            async with asyncio.timeout(registries.timeout_seconds):
                await _pull(context, reference, access, credentials)
        except TimeoutError:
            raise RegistryUnavailableError(
                f"image {reference} was not pulled within {registries.timeout_seconds} seconds"
                " (settings.packRegistries.timeoutSeconds)"
            ) from None


def refuse_registry_domains(settings: Settings, spec: BenchmarkRunSpec) -> None:
    """Refuse an agent that could reach a registry of packs, and so pull their hidden data itself.

    Raises:
        SpecError: A domain of the harness leads there.
        ConfigError: The harness's configuration does not hold.
    """
    domains = spec_harness(spec).allowed_domains
    for registry in settings.pack_registries.registries:
        for host in (registry.host, *registry.other_hosts):
            if is_listed(host.partition(":")[0], domains):
                raise SpecError(
                    f"spec.harness.config.allowed_domains leads to {host}, a registry of packs"
                    " (settings.packRegistries): the agent could pull answers; take the domain away"
                )


def _accesses(registries: PackRegistries) -> list[RegistryAccess]:
    return [
        RegistryAccess(
            host=each.host,
            repositories=each.repositories,
            plain_http=each.plain_http,
            authority=each.certificate_authority,
            other_hosts=frozenset(each.other_hosts),
            advice=_ADVICE,
        )
        for each in registries.registries
    ]


async def _credentials(context: Context, reference: ImageReference) -> RegistryLogin | None:
    """Return the administrator's credentials for a registry.

    Raises:
        RegistryUnavailableError: The Secret cannot be used; the run waits for it.
    """
    name = context.settings.pack_registries.secret
    if not name:
        return None
    what = f"Secret {name} (settings.packRegistries.secret)"
    found = await context.cluster.get(ObjectKind.SECRET, name)
    encoded = text_at(object_at(found or {}, "data"), _SECRET_KEY)
    if not encoded:
        raise RegistryUnavailableError(
            f"{what} does not exist or has no key {_SECRET_KEY}; create it for the registry"
            f" {reference.host}"
        )
    try:
        content = base64.b64decode(encoded, validate=True)
        return docker_credentials(content, reference.host, what)
    except (binascii.Error, ConfigError) as error:
        raise RegistryUnavailableError(f"{what} cannot be read: {error}") from None


async def _pull(
    context: Context,
    reference: ImageReference,
    access: RegistryAccess,
    credentials: RegistryLogin | None,
) -> None:
    root = context.settings.data_root
    await bulk_on_volume(_evict_unused, root)
    async with _scratch(root / IMAGES) as scratch:
        new = scratch / "new"
        await on_volume(new.mkdir)
        async with registry_session(access) as session:
            registry = Registry(session, access, reference.repository, credentials)
            limits = pack_limits(context.settings)
            await pull_pack(registry, reference, new / IMAGE_PACK, limits)
        await bulk_on_volume(_install, new, image_folder(root, str(reference)))


@asynccontextmanager
async def _scratch(parent: Path) -> AsyncIterator[Path]:
    """Make a folder that is gone afterwards."""
    made = await on_volume(partial(TemporaryDirectory, dir=parent, prefix=".incoming-"))
    try:
        yield Path(made.name)
    finally:
        await bulk_on_volume(made.cleanup)


def _evict_unused(root: Path) -> None:
    """Remove what no run used lately: a bound run reads its frozen copy."""
    make_folder(root / IMAGES)
    for folder in _unused_folders(root / IMAGES, time.time()):
        shutil.rmtree(folder, ignore_errors=True)


def _install(new: Path, folder: Path) -> None:
    replace_file(new / CONTENT_DIGEST, tree_digest(new / IMAGE_PACK).encode())
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def _is_intact(folder: Path) -> bool:
    """Return whether an image was pulled and all of it is on the disk still."""
    try:
        want = (folder / CONTENT_DIGEST).read_text(encoding="utf-8")
        found = tree_digest(folder / IMAGE_PACK)
        os.utime(folder)
    except (OSError, UnicodeDecodeError, StorageError):
        return False
    return want == found
