"""Makes untrusted text safe to display: invisible and control characters are spelled out."""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")
_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (with marks of bidirectional text), unassigned, private,
surrogates, line and paragraph separators."""


def visible(text: str) -> str:
    """Return the text with invisible characters as ``<U+202E>``; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def excerpt(text: str, characters: int) -> str:
    """Return at most so many characters, visible, with a note on what was left out."""
    rest = len(text) - characters
    if rest <= 0:
        return visible(text)
    return f"{visible(text[:characters])}\n… {rest:,} more characters in the record"


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"<U+{ord(character):04X}>"
