"""Which characters of untrusted text are unsafe to display, on a page and on a terminal alike."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LINES: Final = "\n\t"
"""Line end and tab, which texts of several lines keep."""

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (bidirectional marks, zero widths, soft hyphen, tags),
unassigned, private, surrogates (which no stream can write), line and paragraph separators."""


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
