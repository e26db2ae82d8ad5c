"""Make untrusted text safe to print, and format paths for users."""

from __future__ import annotations

import os.path
import re
from pathlib import Path

from securebench.core.unsafe_text import LINES, without_unsafe

SNIPPET_CHARACTERS = 1000
"""Longest stdout or stderr snippet on the terminal (contract 16.2)."""

_REPLACEMENT = "\ufffd"
_NUMBERS = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")


def printable(text: str) -> str:
    """Return the text on one line, without control and invisible characters."""
    return without_unsafe(text, _replaced)


def printable_lines(text: str) -> str:
    """Return the text without control and invisible characters except line ends and tabs."""
    return without_unsafe(text, _replaced, kept=LINES)


def snippet(text: str) -> str:
    """Return command output on one line, at most ``SNIPPET_CHARACTERS`` long."""
    return printable(_SPACES.sub(" ", text).strip())[:SNIPPET_CHARACTERS]


def without_numbers(text: str) -> str:
    """Mask numbers, so that messages that differ only in seconds or counts compare equal."""
    return _NUMBERS.sub("", text)


def shown_path(path: Path) -> str:
    """Return the absolute path without ``..`` and without resolving links.

    A ``..`` after a symlink is kept, because removing it would name another folder.
    """
    normal = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    return str(normal if normal.resolve() == path.resolve() else path.absolute())


def _replaced(_: str) -> str:
    return _REPLACEMENT
