"""Sealing of a workspace into a deterministic archive (contract 13.3, 21.2).

The tree is read twice, in the byte order of its paths: once to measure it, once to write. Nothing
is kept of an entry that has been passed but its share in the digests.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from securebench.core.digests import PREFIX
from securebench.files.untrusted import UnreadableError, open_file_at
from securebench.sandbox.candidate.archive import Archive
from securebench.sandbox.candidate.tree import EntryKind, TreeEntry, Walk

if TYPE_CHECKING:
    from collections.abc import Collection
    from io import BufferedIOBase

    from securebench.protocol.bounds import CandidateBounds


class Packed(NamedTuple):
    """What an archive holds: digest of the sorted list of path, mode and content, and a count."""

    candidate_sha256: str
    dropped_entries: int


def pack_workspace(
    root: int, target: BufferedIOBase, bounds: CandidateBounds, exclude: Collection[str]
) -> Packed:
    """Write a workspace as an archive whose bytes depend on the tree alone.

    Args:
        root: Descriptor of the workspace; nobody changes it any more.
        target: Where the archive is written.
        bounds: How much is taken.
        exclude: Relative paths that are left out with all that is below, without being counted.

    Returns:
        Digest and number of dropped entries.

    Raises:
        UnreadableError: A bound is crossed, or the tree changes while it is read.
    """
    excluded = frozenset(exclude)
    _measure(root, bounds, excluded)
    walk = Walk(root, bounds, excluded)
    archive = Archive(target)
    total = hashlib.sha256()
    with closing(walk.entries()) as entries:
        for entry in entries:
            digest = _add(archive, entry)
            if digest is None:
                walk.dropped += 1
                continue
            total.update(f"{entry.path}\0{entry.kind.value}\0{digest}\n".encode())
    archive.end()
    return Packed(PREFIX + total.hexdigest(), walk.dropped)


def _measure(root: int, bounds: CandidateBounds, exclude: Collection[str]) -> None:
    """Refuse what is too large before anything is written."""
    with closing(Walk(root, bounds, exclude).entries()) as entries:
        for _ in entries:
            pass


def _add(archive: Archive, entry: TreeEntry) -> str | None:
    """Add one entry and return the digest of its content; None when it cannot be read."""
    if entry.kind is EntryKind.FOLDER:
        archive.add_folder(entry.path)
        return hashlib.sha256().hexdigest()
    if entry.kind is EntryKind.LINK:
        archive.add_link(entry.path, entry.target)
        return hashlib.sha256(entry.target.encode("utf-8")).hexdigest()
    try:
        descriptor = open_file_at(entry.parent, entry.name, "a file")
    except UnreadableError:
        return None
    is_program = entry.kind is EntryKind.PROGRAM
    return archive.add_file(entry.path, descriptor, entry.size, is_program=is_program)
