"""Files of a result folder that somebody else may have prepared.

Whoever hands over results chooses what lies in the folder: a FIFO that never ends, a link to a
device or to a file of the reader, one line of many gigabytes. Only regular files are opened, no
link is followed, and what is in memory at a time is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from securebench.client.output import print_note
from securebench.client.terminal_text import shown_path
from securebench.errors import InvalidInputError
from securebench.files import UnreadableError, open_regular, open_root
from securebench.sizes import MIB

LINE_BYTES: Final = 64 * MIB
"""Bytes of a line, or of a file that is read whole. A record has some MiB at most."""


def handed_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their line feeds.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInputError: It is no regular file, or has a line of more than ``LINE_BYTES``.
    """
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    try:
        with open_root(path.parent) as root, open_regular(root, path.name) as file:
            while line := file.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    raise InvalidInputError(
                        f"{shown_path(path)} has a line of more than {LINE_BYTES // MIB} MiB: it"
                        " is no file of a run"
                    )
                yield line
    except UnreadableError as error:
        raise InvalidInputError(f"{shown_path(path.parent)}: {error}") from None


def handed_content(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInputError: It is no regular file, or has more than ``LINE_BYTES``.
    """
    content = bytearray()
    for line in handed_lines(path):
        content += line
        if len(content) > LINE_BYTES:
            raise InvalidInputError(
                f"{shown_path(path)} has more than {LINE_BYTES // MIB} MiB: it is no file of a run"
            )
    return bytes(content)


def means_folder(subject: str) -> bool:
    """Return whether an argument means a result folder and no run: it is written as a path.

    A bare name always means the run in the cluster: a folder of that name, which others may have
    put there, would answer for it.
    """
    if "/" in subject or subject in {".", ".."}:
        return True
    if Path(subject).is_dir():
        print_note(f"{subject}: the run of this name in the cluster; the folder is ./{subject}")
    return False
