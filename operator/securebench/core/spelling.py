"""Known words that an unknown one could have meant, for the messages that refuse it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import islice

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
