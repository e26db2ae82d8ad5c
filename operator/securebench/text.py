"""Text for people and from strangers: what may be displayed, and how messages word lists and typos.

One rule decides for a page and for a terminal which characters of untrusted text are unsafe to
display. Messages name a few of many values, and the known word that an unknown one could have
meant. The last part finds the forms in which a secret shows itself in output.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
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


MAX_LISTED: Final = 5
"""Texts that a message names where nothing else is said."""


def listed(texts: Sequence[str], limit: int = MAX_LISTED, *, separator: str = ", ") -> str:
    """Return the first few of some texts, and how many more there are.

    Args:
        texts: All of them.
        limit: How many are named.
        separator: Stands between them; one other than a comma also stands before the number.
    """
    rest = len(texts) - limit
    named = separator.join(texts[:limit])
    before = " " if separator == ", " else separator
    return f"{named}{before}and {rest} more" if rest > 0 else named


_CUTOFF = 0.7
"""Similarity of ``difflib`` from 0 to 1: `runs` and `run` have 0.86, `meta` and `metadata` 0.67."""

_TRIED = 100
"""Words that are compared; a hostile row may have a hundred thousand unknown keys."""


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that a word most likely misspells or cuts short, or None.

    Args:
        word: As written; case, ``-`` and blanks for ``_`` make no difference.
        known: All words that have a meaning.
    """
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    close = get_close_matches(plain, sorted(known), n=1, cutoff=_CUTOFF)
    longer = [name for name in known if plain and name.startswith(f"{plain}_")]
    if close or len(longer) != 1:
        return next(iter(close), None)
    return longer[0]


def near_words(unknown: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return the nearest known word of the first unknown ones that have one."""
    found = {word: nearest(word, known) for word in islice(unknown, _TRIED)}
    return {word: near for word, near in found.items() if near is not None}


def did_you_mean(unknown: Sequence[str], known: Collection[str]) -> str:
    """Return the end of a message about unknown words: what they could have meant, or nothing.

    Args:
        unknown: At least one word, as written.
        known: All words that have a meaning.
    """
    near = near_words(unknown, known)
    if not near:
        return ""
    if len(unknown) == 1:
        return f", did you mean {near[unknown[0]]!r}?"
    pairs = (f"{word!r} for {written!r}" for written, word in near.items())
    return f", did you mean {', '.join(pairs)}?"


def did_you_mean_or_known(unknown: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known one, else all."""
    return did_you_mean([unknown], known) or f"; known are {', '.join(sorted(known))}"


FILLER: Final = b"*"
"""Takes the place of each byte: lengths and bounds still hold."""

MINIMUM_BYTES: Final = 8
"""Shorter values are left alone: their bytes occur anywhere (contract 8.1 draws the same line)."""

_FIRST: Final = (0, 2, 3)
"""Characters of base64 that also depend on the bytes before, by how many of these there are."""


def base64_forms(value: bytes) -> set[bytes]:
    """Return the characters of base64 that follow from a value alone, at each of its offsets."""
    return {
        text[_FIRST[offset] : (offset + len(value)) // 3 * 4]
        for offset in range(3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for text in (encode(b"\0" * offset + value),)
    }


def any_of(forms: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return the pattern that finds each of some forms, the longest first; of none, nothing."""
    longest_first = sorted(set(forms), key=lambda form: (-len(form), form))
    return re.compile(b"|".join(map(re.escape, longest_first)) or rb"(?!)")


def filled(found: re.Match[bytes]) -> bytes:
    """Return what takes the place of a form that was found."""
    return FILLER * len(found[0])
