"""Make untrusted text safe to print, and format paths for users."""

from __future__ import annotations

import os.path
import re
from pathlib import Path

SNIPPET_CHARACTERS = 1000
"""Longest stdout or stderr snippet on the terminal (contract 16.2)."""

_UNSAFE = r"\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Among them halves of surrogate pairs, which no stream can write."""
_CONTROL = re.compile(rf"[\x00-\x1f{_UNSAFE}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSAFE}]")
_NUMBERS = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")


def printable(text: str) -> str:
    """Return the text on one line, without terminal control characters."""
    return _CONTROL.sub("\ufffd", text)


def printable_lines(text: str) -> str:
    """Return the text without control characters except line ends and tabs."""
    return _CONTROL_IN_LINES.sub("\ufffd", text)


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
