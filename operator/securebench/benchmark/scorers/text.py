"""Steps that the text scorers share (contract 14.0).

How a text is set decides nothing: ``typeset`` folds forms of one character; ``plain`` also takes
balanced formatting marks off. Both keep lines, case, digits and the place of superscripts.
``read`` then finds the stated answer.

Every function takes time linear in the candidate: candidates are hostile, and a pattern with
adjacent optional blanks would backtrack for hours.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain, count
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BOX_START, BOX_END = "\x02", "\x03"
"""Around what stood in ``\\boxed{}``; no other control characters are in a folded text."""

_INVISIBLE = (
    *(0x00AD, 0x034F, 0x061C, 0x180E, 0xFEFF, 0x3164, 0xFFA0),
    *(*range(0x115F, 0x1161), *range(0x17B4, 0x17B6), *range(0x180B, 0x1810)),
    *(*range(0x200B, 0x2010), *range(0x202A, 0x202D), 0x2060, *range(0x2065, 0x2070)),
    *(*range(0xFE00, 0xFE10), *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0200)),
)
"""Characters that show nothing; overrides of direction, U+202D and U+202E, show another text."""
_ALIKE = {
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63",
    "'": "\u2018\u2019\u201a\u201b\u2032\u00b4\u02b9\u02bc\u2039\u203a",
    '"': "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\u301f\u300c\u300d\u300e\u300f",
    "/": "\u2044\u2215",
    "\u00b7": "\u22c5\u2219\u2022",
    "\u00d7": "\u2715\u2a2f",
    "\u03bc": "\u00b5",
    ".": "\u3002",
    ",": "\u3001",
    "[": "\u3010",
    "]": "\u3011",
    "...": "\u2026",
    " ": "\u2800",
}


def _folded_signs() -> dict[int, str | None]:
    """Return what stands for a character; None for nothing."""
    table: dict[int, str | None] = dict.fromkeys(_INVISIBLE)
    for code in range(0x3001):
        sign = chr(code)
        if sign.isspace():
            table[code] = " " if f"a{sign}a".splitlines() == [f"a{sign}a"] else "\n"
        elif category(sign) == "Cc":
            table[code] = None
    table |= {ord(sign): plain for plain, signs in _ALIKE.items() for sign in signs}
    compatible = (*range(0xFB00, 0xFB07), *range(0x1D400, 0x1D800))
    for code in compatible:
        form = normalize("NFKC", chr(code))
        if form.isascii():
            table[code] = form
    return table | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}


_FOLDED = _folded_signs()
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_SUPERSCRIPT = re.compile(f"[{''.join(_RAISED)}]+(?=(\\d?))")
_SUBSCRIPT = re.compile(rf"(?<=[^\W\d_]|\))([{''.join(_LOWERED)}]+)(?!\d)")
_VULGAR = re.compile("(?<=(\\d))?([¼-¾⅐-⅞])")
_RANGE = re.compile(r"(?<=\d) - (?=\d)")


def typeset(text: str) -> str:
    """Return the text with one form for each dash, quote, apostrophe, width and fraction.

    Blanks of all widths become blanks, all line ends line feeds. Invisible characters go.
    Superscripts become ``^n`` and lowered digits behind a letter become plain ones: x² is x^2 and
    never x2, H₂O is H2O.
    """
    if text.isascii():
        return _RANGE.sub("-", text.translate(_FOLDED))
    text = normalize("NFC", text.translate(_FOLDED))
    text = _SUPERSCRIPT.sub(_raised, text)
    text = _SUBSCRIPT.sub(lambda run: "".join(map(_LOWERED.__getitem__, run[1])), text)
    text = _VULGAR.sub(_fraction, text)
    return _RANGE.sub("-", text)


def _raised(run: re.Match[str]) -> str:
    return "^" + "".join(map(_RAISED.__getitem__, run[0])) + (" " if run[1] else "")


def _fraction(sign: re.Match[str]) -> str:
    return (" " if sign[1] else "") + normalize("NFKC", sign[2]).replace("\u2044", "/")


_COMMANDS = (
    "text|textbf|textit|textrm|textsf|texttt|emph|underline|mathrm|mathbf|mathit|mathsf|mathtt"
    "|mbox|operatorname|boldsymbol|bm|boxed|fbox"
)
_TAGS = "b|i|u|em|strong|code|pre|p|span|div|mark|tt|kbd|center|font|big|small|h[1-6]|sup|sub"
_MARK = re.compile(
    rf"\\(?:{_COMMANDS})[ ]?\{{|(?:(?<=\^)|(?<=_))\{{|[{{}}]|\\[()\[\]]"
    rf"|\*+|(?<!\w)_+(?=[^\s_])|(?<=\S)_+(?!\w)|`+|\$+|</?(?:{_TAGS})(?: [^<>]{{0,99}})?>",
    re.IGNORECASE,
)
_ANSWER_TAG = re.compile(r"<(/?)(?:final_?)?answer>", re.IGNORECASE)
_BREAK = re.compile(r"<br ?/?>", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*\w*[ \t]*$", re.MULTILINE)
_SPACING = re.compile(r"\\(?:[,;:!]|left(?![a-z])|right(?![a-z])|displaystyle(?![a-z])|quad)")
_FRACTION = re.compile(
    r"([0-9])?\\[dt]?frac(?:\{([+-]?[0-9]+)\}\{([0-9]+)\}|[ ]?([0-9])([0-9])(?![0-9])"
    r"|\{([^{}\n]{1,40})\}\{([^{}\n]{1,40})\})"
)
_SIGNS = {
    "times": "\u00d7",
    "cdot": "\u00b7",
    "pi": "\u03c0",
    "sqrt": "\u221a",
    "pm": "\u00b1",
    "approx": "\u2248",
    "le": "\u2264",
    "leq": "\u2264",
    "ge": "\u2265",
    "geq": "\u2265",
    "ne": "\u2260",
    "neq": "\u2260",
    "to": "\u2192",
    "rightarrow": "\u2192",
    "Rightarrow": "\u2192",
    "infty": "\u221e",
    "mu": "\u03bc",
}
_SIGN = re.compile(rf"\\({'|'.join(_SIGNS)})(?![a-zA-Z]) ?")
_DEGREES = re.compile(r"\^(?:\\circ(?![a-z])|\{\\circ\})")
_LOW = re.compile(r"_\{(\d+)\}")


def plain(text: str) -> str:
    r"""Return a typeset text without balanced formatting marks.

    Emphasis, code marks and fences, ``$``, ``\(…\)``, ``\text{}`` and its like and simple HTML
    tags go; ``\boxed{}`` becomes ``BOX_START`` … ``BOX_END``. A mark without its partner stays.
    """
    if "<" in text:
        text = _BREAK.sub("\n", _ANSWER_TAG.sub(_answer_line, text))
    if "`" in text or "~" in text:
        text = _FENCE.sub("", text)
    if "\\" in text:
        text = _SPACING.sub("", text.replace("\\%", "%").replace("\\$", "$"))
        text = _SIGN.sub(lambda sign: _SIGNS[sign[1]], _DEGREES.sub("\u00b0", text))
        text = _FRACTION.sub(_as_slash, text)
    return _without_marks(_LOW.sub(r"\1", text.replace("{,}", ",")))


def _answer_line(tag: re.Match[str]) -> str:
    return "\n" if tag[1] else "\nAnswer: "


def _as_slash(found: re.Match[str]) -> str:
    """Return a fraction with a slash; what is no number keeps its braces as brackets."""
    before = found[1] or ""
    whole = f"{before} " if before else ""
    if found[2] or found[4]:
        return f"{whole}{found[2] or found[4]}/{found[3] or found[5]}"
    return f"{before}({found[6]})/({found[7]})"


def _without_marks(text: str) -> str:
    """Drop the pairs of marks; an opening one is forgotten at the end of its line, braces are not.

    Each mark is seen once, so the time is linear however many have no partner.
    """
    replaced: dict[int, tuple[int, str]] = {}
    braces: list[re.Match[str]] = []
    opened: dict[str, re.Match[str]] = {}
    line_end = -1
    for mark in _MARK.finditer(text):
        if mark.start() > line_end:
            opened = {kind: first for kind, first in opened.items() if kind in _ACROSS_LINES}
            line_end = _end_of_line(text, mark.start())
        kind = mark[0]
        if kind.endswith("{"):
            braces.append(mark)
        elif kind == "}":
            if braces:
                _close_brace(text, braces.pop(), mark, replaced)
        else:
            _pair(text, mark, opened, replaced)
    return _rebuilt(text, replaced) if replaced else text


_ACROSS_LINES = frozenset({"\\(", "\\[", "$$"})
_CLOSING = {"\\)": "\\(", "\\]": "\\["}


def _close_brace(
    text: str, first: re.Match[str], last: re.Match[str], replaced: dict[int, tuple[int, str]]
) -> None:
    """Replace the braces of a command or of an exponent; others belong to the text."""
    is_box = first[0].strip("\\{ ").lower() in {"boxed", "fbox"}
    is_exponent = first.start() > 0 and text[first.start() - 1] == "^"
    if len(first[0]) > 1 or is_exponent:
        replaced[first.start()] = (first.end(), BOX_START if is_box else "")
        replaced[last.start()] = (last.end(), BOX_END if is_box else "")


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _pair(
    text: str,
    mark: re.Match[str],
    opened: dict[str, re.Match[str]],
    replaced: dict[int, tuple[int, str]],
) -> None:
    """Take note of an opening mark, or replace a closing one together with its partner."""
    kind = mark[0].lower()
    if kind.startswith("<"):
        name = kind.strip("</>").partition(" ")[0]
        opening, closes, opens = f"<{name}", kind.startswith("</"), not kind.startswith("</")
    elif kind.startswith("\\"):
        opening, closes, opens = _CLOSING.get(kind, kind), kind in _CLOSING, kind not in _CLOSING
    else:
        opening, (closes, opens) = kind, _flanks(text, mark)
    first = opened.get(opening)
    if closes and first is not None:
        del opened[opening]
        replaced[first.start()] = (first.end(), "^" if opening == "<sup" else "")
        replaced[mark.start()] = (mark.end(), "")
    elif opens:
        opened[opening] = mark


def _flanks(text: str, mark: re.Match[str]) -> tuple[bool, bool]:
    """Tell whether a mark may close and whether it may open, by the characters beside it."""
    before, after = text[max(mark.start() - 1, 0) : mark.start()], text[mark.end() : mark.end() + 1]
    if mark[0] == "$$":
        return True, True
    is_word_before, is_word_after = before.isalnum(), after.isalnum()
    if mark[0].startswith("$"):
        return bool(before.strip()) and not after.isdecimal(), bool(after.strip())
    closes = bool(before.strip()) and not (is_word_before and is_word_after)
    return closes, bool(after.strip()) and not is_word_before


def _rebuilt(text: str, replaced: dict[int, tuple[int, str]]) -> str:
    parts: list[str] = []
    done = 0
    for start in sorted(replaced):
        end, new = replaced[start]
        parts += (text[done:start], new)
        done = end
    return "".join((*parts, text[done:]))


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
