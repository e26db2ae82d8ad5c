"""The repository inside an image: what it holds beyond its base commit (A-003).

Everything that an image brings is data here. Objects go into a fresh bare repository; its
configuration, hooks, attributes, alternates and the indexes of packs are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from securebench.audit.images.git import Git, temporary_folder
from securebench.audit.images.layers import KeptLayers

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
