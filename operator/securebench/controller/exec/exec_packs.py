"""Packs on the results volume, for the exec protocol (``securebench.controller.exec.exec_io``)."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from securebench.benchmark.files.bundle import (
    CHUNK_BYTES,
    BundleLimits,
    files_receipt,
    folder_files,
    received_folder,
    require_digest,
    unpack_bundle,
)
from securebench.digests import DIGEST
from securebench.errors import InvalidInputError, StorageError, TooLargeError
from securebench.protocol.exec_calls import Operation
from securebench.run import layout

_INCOMING = ".incoming"
_STALE_SECONDS = 24 * 3600
"""No upload takes so long; what an end of the Pod left behind is removed after that."""

_PACK_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,126}[a-z0-9])?")
_SIZE = re.compile(r"[0-9]{1,15}")

Answer = Mapping[str, object]

UNKNOWN_OPERATION = "operator-io does not know this operation; the versions differ"


@dataclass(frozen=True, slots=True)
class Volume:
    """The results volume and what an upload may take of it.

    Attributes:
        root: Where it is mounted.
        pack_limits: Bounds of one uploaded pack.
    """

    root: Path
    pack_limits: BundleLimits


def pack_answer(
    arguments: Sequence[str], volume: Volume, stdin: IO[bytes], stdout: IO[bytes]
) -> Answer:
    """Answer one of ``PACK_OPERATIONS``."""
    match list(arguments):
        case [Operation.PUT_PACK, name, digest, size]:
            return put_pack(volume, name, digest, _size(size), stdin)
        case [Operation.SHOW_PACK, name]:
            return show_pack(volume, name)
        case [Operation.LIST_PACKS]:
            return list_packs(volume.root, stdout)
        case [Operation.REMOVE_PACK, name]:
            return remove_pack(volume.root, name)
        case _:
            raise InvalidInputError(UNKNOWN_OPERATION)


def put_pack(volume: Volume, name: str, digest: str, size: int, source: IO[bytes]) -> Answer:
    """Receive a pack; a folder of that name appears, or is replaced, when all of it is right.

    Args:
        volume: The results volume.
        name: Folder below ``packs/``.
        digest: Tree digest of what is sent.
        size: Bytes of the tar; the stream need not end there.
        source: The tar.

    Raises:
        InvalidInputError: A bad argument or a bad entry.
        StorageError: Damaged on the way, or too large.
    """
    packs, limits = volume.root / layout.PACKS, volume.pack_limits
    incoming, bounded = packs / _INCOMING, _BoundedReader(source, size)
    try:
        target = packs / checked(_PACK_NAME, name, "pack name")
        checked(DIGEST, digest, "digest")
        if size > limits.tar_bytes:
            raise TooLargeError(f"the pack has more than {limits.size_bytes} bytes")
        _remove_stale(incoming)
        with received_folder(target, incoming) as folder:
            receipt = unpack_bundle(bounded, folder, limits)
            bounded.finish()
            require_digest("the pack", expected=digest, found=receipt.digest)
    finally:
        bounded.drain()
    return {"digest": receipt.digest, "files": receipt.files, "size_bytes": receipt.size_bytes}


def show_pack(volume: Volume, name: str) -> Answer:
    """Say what lies in a pack's folder, its digest computed now."""
    folder = volume.root / layout.PACKS / checked(_PACK_NAME, name, "pack name")
    if not folder.is_dir():
        return {"present": False}
    receipt = files_receipt(folder_files(folder), volume.pack_limits)
    return {
        "present": True,
        "digest": receipt.digest,
        "files": receipt.files,
        "size_bytes": receipt.size_bytes,
    }


def list_packs(root: Path, sink: IO[bytes]) -> Answer:
    """Send name, files and bytes of every uploaded pack as a JSON list, in order of name."""
    packs = root / layout.PACKS
    names = sorted(path.name for path in packs.iterdir()) if packs.is_dir() else []
    found = [_listed(packs / name) for name in names if _PACK_NAME.fullmatch(name)]
    sink.write(json.dumps(found, sort_keys=True).encode() + b"\n")
    return {"packs": len(found)}


def remove_pack(root: Path, name: str) -> Answer:
    """Remove an uploaded pack; it is gone as a whole at once.

    Bound runs continue: they read a frozen copy. The caller checks for runs that are not bound.
    """
    packs = root / layout.PACKS
    folder = packs / checked(_PACK_NAME, name, "pack name")
    if not folder.is_dir() or folder.is_symlink():
        return {"present": False}
    incoming = packs / _INCOMING
    incoming.mkdir(exist_ok=True)
    grave = Path(mkdtemp(dir=incoming))
    folder.rename(grave / name)
    shutil.rmtree(grave, ignore_errors=True)
    return {"present": True}


def _listed(folder: Path) -> Answer:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    return {"name": folder.name, "files": len(files), "size_bytes": size}


class _BoundedReader:
    """At most so many bytes of a stream that may never end."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self._source = source
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted) if wanted else b""
        self._left -= len(data)
        return data

    def drain(self) -> None:
        """Read on to the end: a command that ends with unread input is never seen to end."""
        while self.read(CHUNK_BYTES):
            pass

    def finish(self) -> None:
        self.drain()
        if self._left:
            raise StorageError(f"the upload ended {self._left} bytes early; send it again")


def _remove_stale(incoming: Path) -> None:
    if not incoming.is_dir():
        return
    for work in incoming.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - work.lstat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(work, ignore_errors=True)


def _size(text: str) -> int:
    """Return the number of bytes that the asker announces."""
    return int(checked(_SIZE, text, "size"))


def checked(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return an argument that has the right form.

    Raises:
        InvalidInputError: It has another.
    """
    if pattern.fullmatch(text) is None:
        raise InvalidInputError(f"{text!r} is no {what}")
    return text
