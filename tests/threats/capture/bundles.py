"""Candidates as they cross: sealed and unpacked by the product, and by naive programs."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from securebench.protocol.candidate import TEXT_FILE, WORKSPACE_FILE, CandidateBounds, Extraction
from support.courier import Sealed, SealingPlaces, seal
from support.supervise_build import Edit
from threats.kit.program import Ended, run_supervise

WORKSPACE = Extraction("workspace", "workspace")


class Crossed(NamedTuple):
    """What sealing reported, and the bytes that it made."""

    sealed: Sealed
    content: bytes


def sealed_tree(root: Path, *edits: Edit) -> Crossed:
    """Seal a workspace; edits take controls out of the courier."""
    return _sealed(root, WORKSPACE, WORKSPACE_FILE, edits)


def sealed_file(root: Path, path: str, *edits: Edit) -> Crossed:
    """Seal one file of a workspace; edits take controls out of the courier."""
    return _sealed(root, Extraction("file", "text", path), TEXT_FILE, edits)


def _sealed(root: Path, extraction: Extraction, name: str, edits: tuple[Edit, ...]) -> Crossed:
    with tempfile.TemporaryDirectory() as folder:
        result = seal(
            SealingPlaces(root, Path(folder), root),
            extraction,
            CandidateBounds(),
            (),
            None,
            *edits,
        )
        made = Path(folder, name)
        return Crossed(result, made.read_bytes() if made.exists() else b"")


def entries(bundle: bytes) -> Mapping[str, tarfile.TarInfo]:
    """Return the entries of a bundle by name, each of which stands there once.

    That of the workspace itself is left out.
    """
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        members = [each for each in archive.getmembers() if each.name != "."]
    found = {member.name: member for member in members}
    assert len(found) == len(members)
    return found


def text_of(bundle: bytes, name: str) -> str:
    """Return the content of a file of a bundle."""
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read().decode()


def plain_contents(root: Path) -> Iterator[bytes]:
    """Read what a collector reads that opens files by their paths."""
    for folder, folders, files in os.walk(root, followlinks=True):
        if len(Path(folder).relative_to(root).parts) > 2:
            folders.clear()
        for name in files:
            with suppress(OSError):
                yield Path(folder, name).read_bytes()


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """Return an entry for an archive; ``fields`` are those of TarInfo."""
    header = tarfile.TarInfo()
    header.name, header.size, header.mode = name, len(content), 0o644
    for field, value in fields.items():
        setattr(header, field, value)
    return header, content


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    """Return a symbolic link for an archive."""
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def archived(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return an archive with these entries, names as they are given."""
    result = io.BytesIO()
    with tarfile.open(fileobj=result, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for header, content in members:
            archive.addfile(header, io.BytesIO(content))
    return result.getvalue()


def unpack(
    bundle: bytes, target: Path, *edits: Edit, memory_bytes: int | None = None, **spec: object
) -> Ended:
    """Unpack a bundle with supervise; its digest is right.

    Args:
        bundle: An archive.
        target: Made here.
        edits: Controls that are taken out of supervise.
        memory_bytes: What supervise may use.
        spec: More of supervise's specification.
    """
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, WORKSPACE_FILE)
        path.write_bytes(bundle)
        digest = f"sha256:{hashlib.sha256(bundle).hexdigest()}"
        candidate = {"path": str(path), "digest": digest, "to": str(target)}
        return run_supervise({"candidate": candidate, **spec}, *edits, memory_bytes=memory_bytes)


def naive_unpack(bundle: bytes, target: Path) -> None:
    """Unpack a bundle as programs do that trust names, links and modes."""
    target.mkdir(exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(bundle)) as archive:
        archive.extractall(target, filter="fully_trusted")  # noqa: S202  # the double is naive


def contents(root: Path) -> Mapping[str, bytes | str]:
    """Return what lies below a folder: files by content, links by text, others by kind."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder" if path.is_dir() else "other"
    return found
