"""Images as archives: their files, their layers, and the repositories inside.

An archive has one of two forms, as ``docker save``, ``skopeo copy`` and ``buildah push`` write
them: an OCI layout (``index.json``) or a docker-archive (``manifest.json``), each as one tar file
without compression. Nothing is unpacked; layers are read from the archive.

Everything that an image brings is data. git runs on its objects alone, in a fresh bare repository:
configuration, hooks, attributes, alternates and the indexes of packs are the auditor's, and each
call has a time limit.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple, TypeVar

from securebench.benchmark.families.base import TaskRepository
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.patch.candidate_policy import is_hard_denied
from securebench.benchmark.patch.reader import (
    NoncanonicalPatchError,
    changed_paths,
    read_patch,
    unique_paths,
)
from securebench.errors import InvalidInputError, SecureBenchError
from securebench.json_values import object_at, object_in
from securebench.sizes import MIB

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


TIMEOUT_SECONDS = 120.0
"""For one command; a repository of 200,000 objects needs about 20 s."""

_OPTIONS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.symlinks=false",
    "-c", "safe.directory=*",
    "-c", "protocol.allow=never",
)  # fmt: skip


class GitError(SecureBenchError):
    """git is missing, or it refused the data."""


class Git:
    """git in one folder of ours.

    Args:
        git_dir: The repository; None outside of every repository.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None) -> None:
        self._folder = folder
        self._program = shutil.which("git")
        where = {} if git_dir is None else {"GIT_DIR": str(git_dir)}
        self._environment: Mapping[str, str] = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            **where,
        }

    def run(self, arguments: Sequence[str], *, given: bytes = b"") -> bytes:
        """Return what a command prints.

        Args:
            arguments: Without the program.
            given: Its standard input.

        Raises:
            GitError: There is no git, it failed or took too long.
        """
        if self._program is None:
            raise GitError("git is not installed on this machine")
        try:
            done = subprocess.run(  # noqa: S603 - fixed program, arguments of ours, no shell
                [self._program, *_OPTIONS, *arguments],
                cwd=self._folder,
                env=dict(self._environment),
                input=given,
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GitError(f"git {arguments[0]} took longer than {TIMEOUT_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise GitError(f"git {arguments[0]} failed with exit code {done.returncode}")
        return done.stdout


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that only this process can read and that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="securebench-audit-") as folder:
        yield Path(folder).resolve()


MAX_FILE_BYTES = 256 * MIB
"""Larger files of an image are not read."""

PROBE_BYTES = 32
"""So much of a value is searched first: preparing the search of a long one takes longer."""

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


class LayerScan(NamedTuple):
    """What one layer holds: values, each behind the path of its file, and files not read."""

    hits: tuple[tuple[str, bytes], ...]
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
        hits: list[tuple[str, bytes]] = []
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
                    (path, needle)
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


T = TypeVar("T")

GIT_FOLDER = ".git"
_LOOSE = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{38}|[0-9a-f]{62})")
_PACK = re.compile(r"objects/pack/[^/]+\.pack")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REMOTE = re.compile(rb"^\s*\[\s*remote\b", re.MULTILINE | re.IGNORECASE)
_SHA256_CHARACTERS = 64


class Trace(NamedTuple):
    """Something that must not be there, and what removes it."""

    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of a git directory, by path below it.

    Attributes:
        ever: Content of every path in any layer.
    """

    final: Mapping[str, bytes]
    ever: Mapping[str, tuple[bytes, ...]]

    @classmethod
    def of(cls, kept: KeptLayers, workdir: str) -> Repository:
        """Return the repository of a folder of an image."""
        prefix = f"{workdir.strip('/')}/{GIT_FOLDER}/"
        return cls(_below(kept.final, prefix), _below(kept.ever, prefix))

    @property
    def is_empty(self) -> bool:
        """Tell whether there is no repository of the usual form."""
        return "HEAD" not in self.final


def traces(
    repository: Repository, base_commit: str, gold: Mapping[str, bytes]
) -> tuple[Trace, ...]:
    """Return everything that tells of what came after the base commit.

    Args:
        repository: Not empty.
        base_commit: Full hash.
        gold: Content of the gold-patched files by path.

    Raises:
        GitError: git cannot read the repository.
    """
    return (*_stores(repository), *_logs(repository), *_objects(repository, base_commit, gold))


def _stores(repository: Repository) -> Iterator[Trace]:
    """Yield places of further objects, here or elsewhere."""
    if "objects/info/alternates" in repository.final:
        yield Trace("it borrows objects from another folder", "remove .git/objects/info/alternates")
    if any(path.startswith("modules/") for path in repository.final):
        yield Trace("it has repositories of submodules", "remove .git/modules")
    if _REMOTE.search(repository.final.get("config", b"")):
        yield Trace("it has a remote", "run git remote remove for each one in the Dockerfile")


def _logs(repository: Repository) -> Iterator[Trace]:
    logs = sorted(p for p, content in repository.final.items() if p.startswith("logs/") and content)
    if logs:
        yield Trace(f"it has a reflog: {_some(logs)}", "remove .git/logs and refs/stash")
    for name in ("FETCH_HEAD", "ORIG_HEAD"):
        if repository.final.get(name):
            yield Trace(f"it has {name}", f"remove .git/{name}")


def _objects(
    repository: Repository, base_commit: str, gold: Mapping[str, bytes]
) -> Iterator[Trace]:
    with temporary_folder() as folder:
        git = _bare(repository, folder, base_commit)
        present = set(_ids(git.run(["cat-file", "--batch-all-objects", "--batch-check"])))
        if base_commit not in present:
            yield Trace(
                f"it does not hold the base commit {base_commit}",
                "check base_commit of the row, and that the image has the right repository",
            )
            return
        reachable = set(_ids(git.run(["rev-list", "--objects", base_commit])))
        reachable |= set(_earlier_tags(git, repository, present, reachable))
        further = present - reachable
        if further:
            yield Trace(
                f"it holds {len(further)} objects that the base commit does not reach,"
                f" for instance {_some(sorted(further))}",
                "make the repository in one layer, from the base commit alone",
            )
        yield from _references(repository, reachable)
        for path, content in gold.items():
            blob = git.run(["hash-object", "--stdin"], given=content).decode().strip()
            if blob in reachable:
                yield Trace(
                    f"the gold-patched {path!r} is an object of the history",
                    "take another base commit, or a repository without its history",
                )


def _earlier_tags(
    git: Git, repository: Repository, present: set[str], reachable: set[str]
) -> Iterator[str]:
    """Yield the annotated tags of commits that the base commit reaches."""
    for _, target in _targets(repository.final):
        if target in present - reachable:
            peeled = git.run(["rev-parse", "--verify", f"{target}^{{}}"]).decode().strip()
            if peeled in reachable:
                yield target


def _references(repository: Repository, reachable: set[str]) -> Iterator[Trace]:
    """Yield names of commits that the base commit does not reach, and all stashes and remotes."""
    for name, target in sorted(_targets(repository.final)):
        remedy = f"run git update-ref -d {name} in the Dockerfile"
        if name == "refs/stash" or name.startswith("refs/remotes/"):
            yield Trace(f"it has {name}", remedy)
        elif target not in reachable:
            yield Trace(f"{name} names an object that the base commit does not reach", remedy)


def _targets(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for path, content in files.items():
        text = content.decode("utf-8", "replace").strip()
        if path.startswith("refs/") and _COMMIT.fullmatch(text):
            yield path, text
    for line in files.get("packed-refs", b"").decode("utf-8", "replace").splitlines():
        target, _, name = line.partition(" ")
        if _COMMIT.fullmatch(target) and name not in files:
            yield name, target


def _bare(repository: Repository, folder: Path, base_commit: str) -> Git:
    """Return a fresh repository with the objects of all layers."""
    git_dir = folder / "repository"
    form = "sha256" if len(base_commit) == _SHA256_CHARACTERS else "sha1"
    Git(folder).run(
        ["init", "-q", "--bare", f"--object-format={form}", "--template=", "repository"]
    )
    git = Git(folder, git_dir)
    shallow = repository.final.get("shallow", b"").decode("ascii", "replace").split()
    if shallow and all(map(_COMMIT.fullmatch, shallow)):
        (git_dir / "shallow").write_text("".join(f"{commit}\n" for commit in shallow))
    number = 0
    for path, contents in repository.ever.items():
        loose = _LOOSE.fullmatch(path)
        if loose:
            target = git_dir / "objects" / loose[1] / loose[2]
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(contents[-1])
        elif _PACK.fullmatch(path):
            for content in contents:
                number += 1
                pack = git_dir / "objects" / "pack" / f"pack-{number:040x}.pack"
                pack.parent.mkdir(exist_ok=True)
                pack.write_bytes(content)
                git.run(["index-pack", "--threads=1", str(pack)])
    return git


def _ids(output: bytes) -> Iterator[str]:
    return (line.split()[0].decode() for line in output.splitlines() if line.strip())


def _below(files: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {p.removeprefix(prefix): files[p] for p in files if p.startswith(prefix)}


def _some(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")  # noqa: PLR2004


def touched_paths(patch: str) -> tuple[str, ...]:
    """Return the paths that a patch names, relative to the repository.

    Raises:
        GitError: It is no canonical patch, or a path leads out of the repository.
    """
    return _paths(patch, unique_paths)


def patched_files(files: Mapping[str, bytes], patches: Sequence[str]) -> dict[str, bytes]:
    """Return what the last of some patches leaves at the paths that it changes.

    Args:
        files: Content of the touched files in the image, by path in the repository.
        patches: Applied one after another, for instance the setup patch and the gold patch.

    Raises:
        GitError: A patch does not apply.
    """
    with temporary_folder() as folder:
        for path in {path for patch in patches for path in touched_paths(patch)}:
            if path in files:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(files[path])
        git = Git(folder)
        for patch in patches:
            git.run(["apply", "--whitespace=nowarn", "-"], given=patch.encode())
        changed = _paths(patches[-1], changed_paths)
        return {path: (folder / path).read_bytes() for path in changed if (folder / path).is_file()}


def _paths(patch: str, select: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    try:
        paths = select(read_patch(patch))
    except NoncanonicalPatchError as error:
        raise GitError(f"the patch is not canonical: {error}") from None
    if any(map(is_hard_denied, paths)):
        raise GitError("the patch touches a path outside of the repository")
    return paths


def image_reference(task: SecureBenchTask) -> str:
    """Return the image of a task as its row has it."""
    return str(task.environment.get("image") or "")


def images_of(task: SecureBenchTask, archives: Catalogue | None) -> tuple[Image, ...]:
    """Return the images that a task's reference may mean; none where there is no archive."""
    return () if archives is None else tuple(archives.of(image_reference(task)))


def repository_files(repository: TaskRepository, image: Image) -> KeptLayers:
    """Return the git directory of a task's image, and the files that its patches touch.

    Raises:
        GitError: A patch is not canonical.
        UnreadableImageError: A layer cannot be read.
    """
    folder = repository.folder
    touched = {f"{folder}/{path}" for patch in repository.patches for path in touched_paths(patch)}
    prefix = f"{folder}/{GIT_FOLDER}/"
    return keep_files(image, lambda path: path in touched or path.startswith(prefix))


def gold_files(repository: TaskRepository, kept: KeptLayers) -> dict[str, bytes]:
    """Return the files that differ between an image and its solution, in the latter.

    Args:
        repository: Without patches nothing is known to differ.
        kept: Of ``repository_files``.

    Raises:
        GitError: A patch does not apply.
    """
    if not repository.patches:
        return {}
    prefix = f"{repository.folder}/"
    files = {path.removeprefix(prefix): content for path, content in kept.final.items()}
    return patched_files(files, repository.patches)
