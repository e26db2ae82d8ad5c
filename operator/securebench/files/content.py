"""The content of files, a piece at a time; what may take long tells of its progress."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from securebench.files.progress import note_progress
from securebench.sizes import MIB

PIECE_BYTES = MIB
"""Bytes that are in memory at a time."""


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    """Yield what is left of an open file; after each piece that its user has done with, tell so."""
    while piece := source.read(PIECE_BYTES):
        yield piece
        note_progress()


def content_sha256(source: IO[bytes]) -> str:
    """Return the hex SHA-256 of what is left of an open file."""
    digest = hashlib.sha256()
    for piece in pieces(source):
        digest.update(piece)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's content."""
    with path.open("rb") as content:
        return content_sha256(content)
