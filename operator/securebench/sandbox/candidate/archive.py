"""An archive that is written entry by entry: nothing is kept of an entry that is in it."""

from __future__ import annotations

import hashlib
import os
import tarfile
from typing import TYPE_CHECKING

from securebench.files.untrusted import DISK_ERRORS, UnreadableError
from securebench.protocol.extraction import Problem

if TYPE_CHECKING:
    from io import BufferedIOBase
    from typing import BinaryIO

EXECUTABLE = 0o755
PLAIN = 0o644

COPY_BYTES = 1 << 18


class Archive:
    """A tar of form pax; ``tarfile.TarFile`` would keep every header that it has written.

    Args:
        target: Takes all that is written to it.
    """

    def __init__(self, target: BufferedIOBase) -> None:
        self._target = target
        self._size = 0

    def add_folder(self, path: str) -> None:
        """Add an entry for a folder, without its content."""
        self._begin(path, tarfile.DIRTYPE, EXECUTABLE)

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._begin(path, tarfile.SYMTYPE, EXECUTABLE, linkname=target)

    def add_file(self, path: str, descriptor: int, size: int, *, is_program: bool) -> str:
        """Add a file and return the hex SHA-256 of its content.

        Args:
            path: Its path.
            descriptor: Open for reading; closed here.
            size: How long it is.
            is_program: Whether it may be executed.

        Raises:
            RefusedError: It is longer or shorter, or cannot be read.
        """
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            mode = EXECUTABLE if is_program else PLAIN
            self._begin(path, tarfile.REGTYPE, mode, size=size)
            digest = hashlib.sha256()
            left = size
            while left and (data := _read(file, min(left, COPY_BYTES))):
                digest.update(data)
                self._write(data)
                left -= len(data)
            if left or _read(file, 1):
                raise UnreadableError(Problem.INVALID, "a file changed while it was read")
        self._fill(tarfile.BLOCKSIZE)
        return digest.hexdigest()

    def end(self) -> None:
        """Write what marks the end."""
        self._write(b"\0" * (2 * tarfile.BLOCKSIZE))
        self._fill(tarfile.RECORDSIZE)

    def _begin(
        self, path: str, kind: bytes, mode: int, *, size: int = 0, linkname: str = ""
    ) -> None:
        header = tarfile.TarInfo(path)
        header.type, header.mode, header.size, header.linkname = kind, mode, size, linkname
        self._write(header.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))

    def _fill(self, block: int) -> None:
        self._write(b"\0" * (-self._size % block))

    def _write(self, data: bytes) -> None:
        self._target.write(data)
        self._size += len(data)


def _read(file: BinaryIO, count: int) -> bytes:
    try:
        return file.read(count)
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise
        raise UnreadableError(Problem.INVALID, "a file cannot be read") from error
