"""Sealing: what the agent left becomes a candidate of bounded size with a digest (contract 13)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from io import BufferedIOBase
from typing import TYPE_CHECKING, NamedTuple

from securebench.core.digests import PREFIX, content_digest
from securebench.files.untrusted import (
    UnreadableError,
    new_file,
    open_root,
    read_regular,
    write_file,
)
from securebench.protocol.extraction import (
    DIFF_FILE,
    TEXT_FILE,
    WORKSPACE_FILE,
    ExtractionMode,
    Problem,
)
from securebench.sandbox.candidate.workspace import pack_workspace

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path
    from typing import BinaryIO

    from _typeshed import ReadableBuffer

    from securebench.protocol.bounds import CandidateBounds
    from securebench.protocol.extraction import CandidateKind, Extraction


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed candidate, or why there is none.

    Attributes:
        problem: Failure reason; None also where nothing was to be taken.
        message: One plain sentence where there is a problem.
        file: Name of the sealed file, None without one.
        digest: Of the file's bytes.
        size_bytes: Of the file.
        candidate_sha256: Of the candidate: its bytes, or path, mode and content of all entries.
        dropped_entries: How many entries of a workspace were left out.
    """

    problem: Problem | None = None
    message: str = ""
    file: str | None = None
    digest: str = ""
    size_bytes: int = 0
    candidate_sha256: str = ""
    dropped_entries: int = 0


class Output(NamedTuple):
    """A captured stream: its first bytes, the last ones of the rest, and its real length."""

    head: bytes
    tail: bytes
    total: int


class SealingPlaces(NamedTuple):
    """Where sealing takes from and where it puts the candidate."""

    workspace: Path
    candidate: Path
    output: Path


def seal(
    places: SealingPlaces,
    extraction: Extraction,
    bounds: CandidateBounds,
    exclude: Collection[str],
    stdout: Output | None,
) -> Sealed:
    """Seal a candidate; blocks until it is on the disk.

    Args:
        places: The agent's workspace, a folder that only we write to, and what supervise left.
        extraction: What the candidate is.
        bounds: How large it may be.
        exclude: Relative paths that never belong to a workspace candidate.
        stdout: What the command printed, None when nothing was captured.

    Returns:
        The sealed candidate; whatever the agent did wrong is a problem in it.
    """
    try:
        if extraction.mode == ExtractionMode.UNSUPPORTED:
            return Sealed()
        if extraction.mode == ExtractionMode.WORKSPACE:
            return _seal_workspace(places, bounds, exclude)
        content = _text(places, extraction, bounds, stdout)
    except UnreadableError as refused:
        return Sealed(refused.problem, refused.message)
    write_file(places.candidate, TEXT_FILE, content)
    digest = content_digest(content)
    return Sealed(file=TEXT_FILE, digest=digest, size_bytes=len(content), candidate_sha256=digest)


def _text(
    places: SealingPlaces, extraction: Extraction, bounds: CandidateBounds, stdout: Output | None
) -> bytes:
    limit = text_limit(extraction.kind, bounds)
    if extraction.mode == ExtractionMode.STDOUT:
        name, content = "stdout", _whole(stdout, limit)
    elif extraction.mode == ExtractionMode.FILE and extraction.path is not None:
        name = extraction.path
        with open_root(places.workspace) as root:
            content = read_regular(root, name, limit)
    elif extraction.mode == ExtractionMode.GIT_DIFF:
        name, content = DIFF_FILE, _diff(places.output, limit)
    else:
        raise UnreadableError(Problem.MISSING, f"nothing was made by extraction {extraction.mode}")
    _check_text(name, content)
    return content


def _diff(output: Path, limit: int) -> bytes:
    """Return the diff of the checkout; without one the agent left no repository (21.3)."""
    try:
        with open_root(output) as root:
            return read_regular(root, DIFF_FILE, limit)
    except UnreadableError as refused:
        if refused.problem is not Problem.MISSING:
            raise
        message = "git could not tell what changed in the checkout"
        raise UnreadableError(Problem.INVALID, message) from None


def text_limit(kind: CandidateKind, bounds: CandidateBounds) -> int:
    """Return how large a candidate that is text may be, in bytes."""
    return bounds.patch_bytes if kind == "patch" else bounds.text_bytes


def _whole(stdout: Output | None, limit: int) -> bytes:
    if stdout is None:
        raise UnreadableError(Problem.MISSING, "the command's output was not captured")
    if stdout.total > limit:
        raise UnreadableError(Problem.TOO_LARGE, f"stdout has more than {limit} bytes")
    content = stdout.head + stdout.tail
    if len(content) != stdout.total:
        raise UnreadableError(Problem.INVALID, "stdout was not captured completely")
    return content


def _check_text(name: str, content: bytes) -> None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            Problem.INVALID, f"{name} is not UTF-8 text at byte {error.start}"
        ) from error
    if "\0" in text:
        raise UnreadableError(Problem.INVALID, f"{name} is not text: it holds a NUL character")


def _seal_workspace(
    places: SealingPlaces, bounds: CandidateBounds, exclude: Collection[str]
) -> Sealed:
    if not places.workspace.is_dir():
        raise UnreadableError(Problem.MISSING, "the workspace directory does not exist")
    with open_root(places.workspace) as root, new_file(places.candidate, WORKSPACE_FILE) as file:
        archive = _HashedFile(file)
        packed = pack_workspace(root, archive, bounds, exclude)
    return Sealed(
        file=WORKSPACE_FILE,
        digest=PREFIX + archive.hash.hexdigest(),
        size_bytes=archive.size,
        candidate_sha256=packed.candidate_sha256,
        dropped_entries=packed.dropped_entries,
    )


class _HashedFile(BufferedIOBase):
    """A file that hashes what is written."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write and hash all of it."""
        self.hash.update(data)
        count = self._target.write(data)
        self.size += count
        return count

    def tell(self) -> int:
        """Return the position, which is the size: nothing seeks."""
        return self.size
