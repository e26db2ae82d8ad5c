"""The courier's copy of what an agent prints while it works."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from securebench.files.durable import FILE_MODE
from securebench.files.untrusted import UnreadableError, open_regular, open_root
from securebench.protocol.volume import LIVE_BYTES, LIVE_OUTPUT

if TYPE_CHECKING:
    from pathlib import Path

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = _APPEND | os.O_CREAT | os.O_EXCL


class LiveCopy:
    """Copies what was added to a stream; trouble ends the copying and nothing else.

    A courier that is started again adds nothing: how far the copy has come is not known then.

    Args:
        source: Folder where supervise captures; untrusted code can reach it.
        name: The stream.
        target: Folder of the courier's own on the results volume.
    """

    def __init__(self, source: Path, name: str, target: Path) -> None:
        self._source = source
        self._name = name
        self._target = target / LIVE_OUTPUT
        self._flags = _CREATE
        self._inode: int | None = None
        self._position = 0
        self._left = LIVE_BYTES

    def step(self) -> None:
        """Copy what is new, up to the bound."""
        if not self._left:
            return
        try:
            self._append(self._added())
        except UnreadableError:
            return
        except OSError:
            self._left = 0

    def _added(self) -> bytes:
        with open_root(self._source) as folder, open_regular(folder, self._name) as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._inode:
                # The next command of the container has a new file.
                self._inode, self._position = inode, 0
            file.seek(self._position)
            data = file.read(self._left)
        self._position += len(data)
        return data

    def _append(self, data: bytes) -> None:
        if not data:
            return
        # Opened anew each time: on a network volume others see the bytes when it is closed.
        with os.fdopen(os.open(self._target, self._flags, FILE_MODE), "wb") as file:
            file.write(data)
        self._flags = _APPEND
        self._left -= len(data)
