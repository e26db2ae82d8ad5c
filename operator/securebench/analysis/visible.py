"""Makes untrusted text safe to display: invisible and control characters are spelled out."""

from __future__ import annotations

from securebench.core.unsafe_text import LINES, without_unsafe


def visible(text: str) -> str:
    """Return the text with unsafe characters as ``<U+202E>``; line ends and tabs stay."""
    return without_unsafe(text, _spelled_out, kept=LINES)


def excerpt(text: str, characters: int) -> str:
    """Return at most so many characters, visible, with a note on what was left out."""
    rest = len(text) - characters
    if rest <= 0:
        return visible(text)
    return f"{visible(text[:characters])}\n… {rest:,} more characters in the record"


def _spelled_out(character: str) -> str:
    return f"<U+{ord(character):04X}>"
