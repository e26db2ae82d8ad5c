"""Steps that the text scorers share (contract 14.0).

Every function takes time linear in the candidate: candidates are hostile, and a
pattern with adjacent optional blanks would backtrack for hours.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LABEL_WORDS = ("final answer", "answer", "choice", "option")
ANSWER_WORDS = ("final answer", "answer")

_ENDS = " \t\r\n\"'`.,;:"
_PRIVATE_USE = 0xE000
"""First character that Unicode leaves to its users."""
_NO_WORD_CHARACTER = re.compile(r"\W")
_AFTER_WORD = re.compile(r"\s*(?:[Ii][Ss](?!\w)\s*)?[:-]?")


def norm(text: str) -> str:
    """Return the text trimmed, lower-cased, single-spaced and without punctuation at its ends."""
    return strip_ends(fold(text))


def comparable(text: str) -> str:
    """Return the form in which two texts are compared for being equal.

    Returns:
        The normalized text; where that is empty the trimmed text itself, because otherwise every
        text of signs would equal every other one. It has signs only, a normalized text never.

    Source: contract 21.17.
    """
    return norm(text) or text.strip()


def fold(text: str) -> str:
    """Return the text trimmed, lower-cased and with every run of whitespace as one space."""
    return " ".join(text.lower().split())


def strip_ends(text: str) -> str:
    """Return the text without the blanks, quotes and signs that do not count at its ends."""
    return text.strip(_ENDS)


def label(text: str, count: int) -> str | None:
    """Return the choice that the whole text names, or None.

    The parts are disjoint in their first characters, so taking each as soon as it is
    seen finds exactly what a backtracking search would.

    Args:
        text: A candidate, a part of one, or an expected answer.
        count: Number of choices, 0 to 26.

    Returns:
        One of the first ``count`` letters of the alphabet, upper-case.
    """
    rest = text.strip()
    for group in (LABEL_WORDS, ("is",), (":", "-"), ("(", "[")):
        rest = _without_prefix(rest, group)
    letter, rest = rest[:1], rest[1:].strip()
    if rest not in {"", ")", "]", ".", ":"}:
        return None
    if len(letter) != 1 or not letter.isascii():
        return None
    upper = letter.upper()
    return upper if upper in ALPHABET[:count] else None


def focus(text: str, words: Sequence[str]) -> str:
    """Return the part of the last line that states the answer.

    Args:
        text: A candidate.
        words: ASCII words that announce an answer; found in any case.

    Returns:
        What follows the first of the words on the last non-blank line, or that line.
    """
    line = last_line(text)
    match = _word_pattern(words).search(line)
    if match is None:
        return line
    after = _AFTER_WORD.match(line, match.end())
    rest = line[after.end() if after else match.end() :].strip()
    return rest or line


def last_line(text: str) -> str:
    """Return the last line that is not blank, trimmed; empty for a blank text."""
    lines = text.rstrip().splitlines()
    return lines[-1].strip() if lines else ""


def contains_whole(text: str, part: str) -> bool:
    """Tell whether ``part`` occurs in the text with no word character touching it.

    Args:
        text: Normalized text.
        part: Normalized answer; an empty one occurs nowhere.
    """
    if not part or part not in text:
        return False
    mark = next(sign for sign in _marks() if sign not in text and sign not in part)
    return _marked(part, mark) in _marked_text(text, mark)


def _marks() -> Iterable[str]:
    """Return marks to choose from: a line feed occurs in no normalized text."""
    return chain("\n", map(chr, count(_PRIVATE_USE)))


@lru_cache(maxsize=1)
def _marked_text(text: str, mark: str) -> str:
    """Return the marked text; one candidate is asked for many answers."""
    return _marked(text, mark)


def _marked(text: str, mark: str) -> str:
    """Return the text with a mark at its ends and on both sides of each non-word character.

    Nothing of a word touches a part exactly where the marked part occurs in the marked text: a
    search for a plain string, which Python does in linear time. A pattern that looks behind begins
    anew at every character.
    """
    return mark + _NO_WORD_CHARACTER.sub(rf"{mark}\g<0>{mark}", text) + mark


def _without_prefix(text: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        if text.startswith(prefix):
            return text[len(prefix) :].lstrip()
    return text


def _word_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Match the words in either ASCII case; IGNORECASE would also fold the long s and the like."""
    spelled = ("".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in w) for w in words)
    return re.compile(rf"(?<!\w)(?:{'|'.join(spelled)})(?!\w)")
