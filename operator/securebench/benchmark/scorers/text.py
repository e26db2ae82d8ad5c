"""Steps that the text scorers share (contract 14.0).

Every function takes time linear in the candidate: candidates are hostile, and a
pattern with adjacent optional blanks would backtrack for hours.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.scorers.typography import BOX_END, BOX_START, plain, typeset

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ENDS = f" \n\"'`.,;:{BOX_START}{BOX_END}"
_PRIVATE_USE = 0xE000
"""First character that Unicode leaves to its users."""
_NO_WORD_CHARACTER = re.compile(r"[^\w^]")

_WORDS = r"(?:final +)?(?:answers?|ans|choice|option)"
"""Words that announce an answer."""
_STATED = re.compile(
    rf"(?:(?<!\w){_WORDS}(?!\w)[\"']?(?: (?:choice|option|letter|key|value)(?!\w))?"
    r"(?: (?:to|for) (?:the|this|your) (?:question|problem|task|puzzle|exercise)(?!\w))?"
    r"(?: ?\([^()]{0,40}\))?"
    r"(?: (?:is|are|would be|should be|must be)(?!\w) ?:?| ?(?:->|=>|[\u2192:=])| - )"
    r"|\u7b54\u6848 ?(?:\u662f|\u4e3a|\u70ba)? ?:?) ?",
    re.IGNORECASE,
)
_ONLY_LABEL = re.compile(
    rf"[#>*+\u00b7 -]*(?:(?:the|my|our|your|correct|right|best) )*(?:{_WORDS}|\u7b54\u6848)[ :]*",
    re.IGNORECASE,
)
_NO_LABEL = re.compile(
    r"(?:\b(?:not|never|no|wrong|incorrect|false|invalid|bad|worst|tempting|rejected|eliminated)"
    r"|n't)\b[^.;:,!?]*\Z|[\u4e0d\u9519\u8aa4][^,.;:!?]*\Z",
    re.IGNORECASE,
)
_CLAUSE = 80
"""Characters before a label that are searched for a word that takes it back."""
_BOX_DENIED = re.compile(
    r"(?:\b(?:not|never)\b|n't\b|[\u2260<>\u2265\u2264\u00b1])[^.;,]*\Z", re.IGNORECASE
)
_PLAIN_NUMBER = re.compile(
    r"#{4} ?([-+]?[$\u20ac\u00a3]?[0-9][0-9.,'_ /eE^%+-]*(?: ?[^\W\d_]{1,12})?)"
)
_RULE = re.compile(r"[-=_*~#$\\\[\](){}` ]*")
_BULLET = re.compile(r"(?:#{1,6} |[*+\u00b7>] |-(?! ?[0-9.$\u20ac\u00a3]) ?)+")
_POINTERS = " \u2705\u2713\u2714\u2611\u2192\u27a1\U0001f449"
_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`", BOX_START: BOX_END}


class Candidate(NamedTuple):
    """A candidate as scorers read it.

    Attributes:
        raw: Typeset only.
        text: Without formatting marks.
        lines: Lines of the text that hold something, trimmed and single-spaced.
        stated: What the last labelled line says; None where no line is labelled.
    """

    raw: str
    text: str
    lines: tuple[str, ...]
    stated: str | None

    @property
    def conclusion(self) -> str:
        """What the last labelled line says, else the last line."""
        return self.last_line if self.stated is None else self.stated

    @property
    def last_line(self) -> str:
        """Empty for a blank text."""
        return self.lines[-1] if self.lines else ""


def read(candidate_text: str) -> Candidate:
    """Read a candidate: typography, marks, lines, label."""
    raw = typeset(candidate_text).strip()
    text = plain(raw)
    lines = tuple(" ".join(line.split()) for line in text.split("\n") if line.strip())
    return Candidate(raw, text, lines, _last_stated(lines))


def _last_stated(lines: tuple[str, ...]) -> str | None:
    for index in range(len(lines) - 1, -1, -1):
        value = _value(lines[index])
        if value is None:
            continue
        if value and not value.endswith(":"):
            return value
        following = next((line for line in lines[index + 1 :] if not _is_rule(line)), None)
        if following is not None:
            boxed = _boxed(following)
            return following if boxed is None else boxed
    return None


def _is_rule(line: str) -> bool:
    return _RULE.fullmatch(line) is not None


def _value(line: str) -> str | None:
    """Return what a labelled line says, empty where the next line says it; None without a label."""
    boxed = _boxed(line)
    if boxed is not None:
        return boxed
    if _ONLY_LABEL.fullmatch(line) is not None:
        return ""
    for label in _STATED.finditer(line):
        if _NO_LABEL.search(line[max(label.start() - _CLAUSE, 0) : label.start()]) is None:
            value = line[label.end() :].strip()
            is_json = label[0].rstrip(": ").endswith('"')
            return value.rstrip(" ,}") if is_json else value
    number = _PLAIN_NUMBER.fullmatch(line)
    return number[1] if number is not None else None


def _boxed(line: str) -> str | None:
    """Return the contents of the boxes of a line, with a sign or "not" that stands before."""
    start = line.find(BOX_START)
    end = line.rfind(BOX_END)
    if start < 0 or end < start:
        return None
    before = line[max(start - _CLAUSE, 0) : start]
    lead = "not " if _BOX_DENIED.search(before) else ""
    sign = "-" if before.endswith("-") else ""
    content = line[start + 1 : end].replace(BOX_END, " ").replace(BOX_START, " ")
    return lead + sign + " ".join(content.split())


def layers(value: str) -> Iterator[str]:
    """Yield a value, then without what stands around it, one layer after the other.

    Leading bullets and label words go, and balanced brackets and quotes.
    """
    value = value.strip(_POINTERS)
    yield value
    for _ in range(_MAX_LAYERS):
        bare = _behind(_LEAD, _behind(_BULLET, value)).strip(_POINTERS)
        inner = bare.rstrip(".,;: ")
        if len(inner) > 1 and _PAIRS.get(inner[0]) == inner[-1]:
            between = inner[1:-1]
            if inner[0] not in between and inner[-1] not in between:
                bare = between.strip()
        if bare == value:
            return
        value = bare
        yield value


def _behind(lead: re.Pattern[str], value: str) -> str:
    found = lead.match(value)
    return value[found.end() :] if found else value


_MAX_LAYERS = 8
"""Marks around an answer that are taken off."""
_LEAD = re.compile(
    rf"(?:(?:the|my) )?(?:(?:correct|right|best) )?(?:{_WORDS}|letter)(?!\w) ?"
    r"(?:is(?!\w) ?)?[:=]? ?"
    r"|is(?!\w) ?:? ?|: ?",
    re.IGNORECASE,
)


def norm(text: str) -> str:
    """Return the text lower-cased, single-spaced and without punctuation at its ends.

    Args:
        text: Typeset or plain.
    """
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


def contains_whole(text: str, part: str) -> bool:
    """Tell whether ``part`` occurs in the text with no word character or ``^`` touching it.

    A part that begins or ends with a digit is not found inside a longer number.

    Args:
        text: Normalized text.
        part: Normalized answer; an empty one occurs nowhere.
    """
    if not part or part not in text:
        return False
    mark = next(sign for sign in _marks() if sign not in text and sign not in part)
    marked, wanted = _marked_text(text, mark), _marked(part, mark)
    if not (part[0].isdecimal() or part[-1].isdecimal()):
        return wanted in marked
    return any(_is_no_digit_cut(text, part, place) for place in _occurrences(marked, wanted, mark))


def _occurrences(marked: str, wanted: str, mark: str) -> Iterator[int]:
    """Yield where a part stands alone, as places of the unmarked text."""
    done = start = seen = 0
    while (start := marked.find(wanted, start)) >= 0:
        seen += start - done - marked.count(mark, done, start)
        done = start
        yield seen
        start += len(wanted) - 1


_CUT_BEFORE = re.compile(r"(?:[0-9][.,'/:-]|(?<!\w)[-+.]|(?<!\w)[-+][$\u20ac\u00a3])\Z")
_CUT_BEHIND = re.compile(r"[.,'/:-][0-9]|%|/[0-9]")


def _is_no_digit_cut(text: str, part: str, place: int) -> bool:
    before, behind = (
        text[max(place - 3, 0) : place],
        text[place + len(part) : place + len(part) + 2],
    )
    if part[0].isdecimal() and _CUT_BEFORE.search(before):
        return False
    return not (part[-1].isdecimal() and _CUT_BEHIND.match(behind))


def _marks() -> Iterable[str]:
    """Return marks to choose from: a line feed occurs in no normalized text."""
    return chain("\n", map(chr, count(_PRIVATE_USE)))


@lru_cache(maxsize=2)
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
