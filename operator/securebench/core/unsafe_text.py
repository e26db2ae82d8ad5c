"""Which characters of untrusted text are unsafe to display, on a page and on a terminal alike."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LINES: Final = "\n\t"
"""Line end and tab, which texts of several lines keep."""

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (bidirectional marks, zero widths, soft hyphen, tags),
unassigned, private, surrogates (which no stream can write), line and paragraph separators."""

SNIPPET_CHARACTERS: Final = 1000
"""Longest stdout or stderr snippet on the terminal (contract 16.2)."""

_REPLACEMENT: Final = "\ufffd"
_SPACES: Final = re.compile(r"\s+")


def printable(text: str) -> str:
    """Return the text on one line, without control and invisible characters."""
    return without_unsafe(text, _replaced)


def printable_lines(text: str) -> str:
    """Return the text without control and invisible characters except line ends and tabs."""
    return without_unsafe(text, _replaced, kept=LINES)


def snippet(text: str) -> str:
    """Return command output on one line, at most ``SNIPPET_CHARACTERS`` long."""
    return printable(_SPACES.sub(" ", text).strip())[:SNIPPET_CHARACTERS]


def without_unsafe(text: str, shown: Callable[[str], str], *, kept: str = "") -> str:
    """Return the text with each unsafe character replaced.

    Args:
        text: Untrusted.
        shown: Returns what stands for an unsafe character.
        kept: Unsafe characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        shown(character) if _is_unsafe(character) and character not in kept else character
        for character in text
    )


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE


def _replaced(_: str) -> str:
    return _REPLACEMENT
