"""A second implementation of the text scorers, written from contract 14.0 to 14.3.

It shares nothing with the product: no regular expressions, character loops instead. Slow and plain.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isfinite, isinf
from typing import NamedTuple

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ENDS = " \t\r\n\"'`.,;:"
LABEL_WORDS = ("final answer", "answer", "choice", "option")
ANSWER_WORDS = ("final answer", "answer")
STOP_TEXT = (
    "a an and are as at be because been before being by did do does due for from how if in into is "
    "it its no not of on or over that the their this through to was were what when where which who "
    "whom whose why with you your"
)
STOP_WORDS = frozenset(STOP_TEXT.split())


class BadTaskError(Exception):
    """The verifier cannot work with this row (VC)."""


class Score(NamedTuple):
    passed: bool
    metadata: dict[str, object]


# 14.0


def trim(text: str) -> str:
    first, end = 0, len(text)
    while first < end and text[first].isspace():
        first += 1
    while end > first and text[end - 1].isspace():
        end -= 1
    return text[first:end]


def squeeze(text: str) -> str:
    out: list[str] = []
    for sign in text:
        if not sign.isspace():
            out.append(sign)
        elif out and out[-1] != " ":
            out.append(" ")
    return "".join(out)


def strip_ends(text: str) -> str:
    while text and text[0] in ENDS:
        text = text[1:]
    while text and text[-1] in ENDS:
        text = text[:-1]
    return text


def norm(text: str) -> str:
    return strip_ends(squeeze(trim(text).lower()))


def equal_form(text: str) -> str:
    """Return what has to be equal: a text of nothing but signs stands for itself (21.17)."""
    return norm(text) or trim(text)


def label(text: str, n: int) -> str | None:
    rests = {trim(text)}
    for part in (LABEL_WORDS, ("is",), (":", "-"), ("(", "[")):
        rests |= {
            trim(rest[len(form) :]) for rest in rests for form in part if rest[: len(form)] == form
        }
    for rest in rests:
        letter, close = rest[:1], trim(rest[1:])
        if letter and close in {"", ")", "]", ".", ":"} and letter.isascii():
            found = letter.upper()
            if found in ALPHABET[:n]:
                return found
    return None


def is_word_sign(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


def stands_alone(text: str, first: int, length: int) -> bool:
    return not is_word_sign(text, first - 1) and not is_word_sign(text, first + length)


def ascii_lower(text: str) -> str:
    return "".join(sign.lower() if sign.isascii() else sign for sign in text)


def word_at(line: str, place: int, words: Sequence[str]) -> int:
    """Return the length of the longest word that stands here, 0 if none does."""
    lengths = [len(word) for word in words if ascii_lower(line[place : place + len(word)]) == word]
    return max((each for each in lengths if stands_alone(line, place, each)), default=0)


def focus(text: str, words: Sequence[str]) -> str:
    lines = [trim(line) for line in text.splitlines() if trim(line)]
    if not lines:
        return ""
    line = lines[-1]
    for place in range(len(line)):
        length = word_at(line, place, words)
        if length:
            return after_word(line[place + length :]) or line
    return line


def after_word(rest: str) -> str:
    rest = trim(rest)
    if word_at(rest, 0, ("is",)):
        rest = trim(rest[2:])
    if rest[:1] in {":", "-"}:
        rest = trim(rest[1:])
    return rest


# 14.1


def expected_set(answer: object, choices: Sequence[str]) -> set[str]:
    if isinstance(answer, list):
        return set().union(*(expected_set(item, choices) for item in answer))
    if isinstance(answer, bool):
        return set()
    if isinstance(answer, int | float):
        if not isfinite(answer) or answer != int(answer):
            return set()
        index = int(answer)
        if not 0 <= index < len(choices):
            return set()
        return {ALPHABET[index], equal_form(choices[index])} - {""}
    if not isinstance(answer, str):
        return set()
    letter = label(answer, len(choices))
    if letter is not None:
        return {letter, equal_form(choices[ALPHABET.index(letter)])} - {""}
    wanted = equal_form(answer)
    same = {ALPHABET[index] for index, choice in enumerate(choices) if equal_form(choice) == wanted}
    return {wanted} | same if same or norm(answer) else set()


def multiple_choice(row: Mapping[str, object], text: str) -> Score:
    given, evaluation = row["input"], row["eval"]
    assert isinstance(given, dict)
    assert isinstance(evaluation, dict)
    choices = given["choices"]
    if len(choices) > 26:
        raise BadTaskError("more than 26 choices")
    expected = expected_set(evaluation["answer"], choices)
    if not expected:
        raise BadTaskError("requires at least one valid answer")
    point = focus(text, LABEL_WORDS)
    found = {
        equal_form(text),
        equal_form(point),
        label(point, len(choices)),
        label(text, len(choices)),
    }
    passed = bool(trim(text)) and bool((found - {"", None}) & expected)
    metadata = {
        "verifier": "multiple_choice",
        "candidate_answer": trim(text),
        "expected_answer": evaluation["answer"],
    }
    return Score(passed, metadata)


# 14.2

DIGITS = "0123456789"


def digits_at(text: str, place: int) -> int:
    length = 0
    while place + length < len(text) and text[place + length] in DIGITS:
        length += 1
    return length


def decimal_at(text: str, place: int) -> str:
    """Return the optionally signed decimal that begins here, or nothing."""
    first = place
    if text[place] in "+-":
        place += 1
    whole = digits_at(text, place)
    end = place + whole
    part = digits_at(text, end + 1) if text[end : end + 1] == "." else 0
    if part:
        end += 1 + part
    return text[first:end] if whole or part else ""


def ascii_form(sign: str) -> str:
    """Return the digits that a sign is another form of, or ``-`` for a minus (21.17)."""
    if sign in {"\N{MINUS SIGN}", "\N{SMALL HYPHEN-MINUS}", "\N{FULLWIDTH HYPHEN-MINUS}"}:
        return "-"
    if unicodedata.decimal(sign, None) is None:
        return sign
    plain = unicodedata.normalize("NFKC", sign)
    return plain if plain in DIGITS else sign


def number_in(text: str) -> float | None:
    """Return the first decimal. One that no double holds is none: it would be near to all."""
    text = "".join(ascii_form(sign) for sign in text if sign != ",")
    for place in range(len(text)):
        found = decimal_at(text, place)
        if found:
            return None if isinf(float(found)) else float(found)
    return None


def contains_alone(text: str, part: str) -> bool:
    return bool(part) and any(
        text[place : place + len(part)] == part and stands_alone(text, place, len(part))
        for place in range(len(text))
    )


def is_near(value: str, answer: object, tolerance: float) -> bool:
    left = number_in(value)
    right = number_in(answer) if isinstance(answer, str) else answer
    if left is None or right is None:
        return False
    assert isinstance(right, int | float)
    return abs(left - right) <= max(tolerance, 1e-9 * max(abs(left), abs(right)))


def strategy(value: str, answer: object, tolerance: float | None) -> str | None:
    if tolerance is not None and is_near(value, answer, tolerance):
        return "numeric_tolerance"
    if equal_form(str(answer)) == equal_form(value):
        return "normalized_exact"
    return "answer_span" if contains_alone(norm(value), norm(str(answer))) else None


def short_answer(row: Mapping[str, object], text: str) -> Score:
    evaluation = row["eval"]
    assert isinstance(evaluation, dict)
    accepted = evaluation["accepted_answers"]
    tolerance = evaluation.get("tolerance")
    if not accepted:
        raise BadTaskError("accepted_answers")
    metadata: dict[str, object] = {
        "verifier": "short_answer",
        "candidate_answer": trim(text),
        "accepted_answer_count": len(accepted),
        "matched_answer_index": None,
        "match_strategy": None,
        "tolerance": tolerance,
    }
    if not trim(text):
        return Score(passed=False, metadata=metadata)
    for value in (trim(text), focus(text, ANSWER_WORDS)):
        for index, answer in enumerate(accepted):
            hit = strategy(value, answer, tolerance)
            if hit:
                metadata |= {"matched_answer_index": index, "match_strategy": hit}
                return Score(passed=True, metadata=metadata)
    return Score(passed=False, metadata=metadata)


# 14.3


def long_country(text: str) -> str:
    out, place = "", 0
    while place < len(text):
        if text[place : place + 4] == "u.s.":
            out, place = out + "united states", place + 4
        else:
            out, place = out + text[place], place + 1
    return out


def free_norm(text: str) -> str:
    return strip_ends(long_country(squeeze(trim(text).lower())))


def tokens(text: str) -> Counter[str]:
    spaced = "".join(sign if sign.isalnum() else " " for sign in long_country(text.lower()))
    return Counter(word for word in spaced.split(" ") if word and word not in STOP_WORDS)


def token_f1(candidate: str, answer: str) -> float:
    left, right = tokens(candidate), tokens(answer)
    overlap = sum(min(count, right[word]) for word, count in left.items())
    if not overlap:
        return 0.0
    precision = Fraction(overlap, left.total())
    recall = Fraction(overlap, right.total())
    return float(2 * precision * recall / (precision + recall))


def is_given(candidate: str, answer: str) -> bool:
    if not free_norm(answer):
        return trim(candidate) == trim(answer)
    return contains_alone(free_norm(candidate), free_norm(answer))


class Side(NamedTuple):
    contained: int | None
    best: int | None
    f1: float


def side_of(candidate: str, answers: Sequence[str]) -> Side:
    contained = best = None
    f1 = 0.0
    for index, answer in enumerate(answers):
        if contained is None and is_given(candidate, answer):
            contained = index
        this = token_f1(candidate, answer)
        if this > f1:
            best, f1 = index, this
    return Side(contained, best, f1)


def is_answer_list(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, str) and bool(trim(each)) for each in value)


class Rubric(NamedTuple):
    accepted: Sequence[str]
    rejected: Sequence[str]
    minimum: float


def rubric_of(raw: object) -> Rubric:
    if not isinstance(raw, dict):
        raise BadTaskError("structured rubric")
    if "type" in raw and raw["type"] != "contains_any":
        raise BadTaskError("type")
    if not is_answer_list(raw.get("accepted_answers")):
        raise BadTaskError("accepted_answers")
    rejected = raw.get("rejected_answers")
    if rejected is not None and not is_answer_list(rejected):
        raise BadTaskError("rejected_answers")
    minimum = raw.get("min_token_f1", 1.0)
    if isinstance(minimum, bool) or not isinstance(minimum, int | float) or not 0 <= minimum <= 1:
        raise BadTaskError("min_token_f1")
    return Rubric(raw["accepted_answers"], rejected or [], minimum)


def free_response(row: Mapping[str, object], text: str) -> Score:
    evaluation = row["eval"]
    assert isinstance(evaluation, dict)
    rubric = rubric_of(evaluation["rubric"])
    accepted, rejected = side_of(text, rubric.accepted), side_of(text, rubric.rejected)
    matched, refused = accepted.contained, rejected.contained
    if matched is None and accepted.best is not None and accepted.f1 >= rubric.minimum:
        matched = accepted.best
    enough = rejected.f1 >= max(rubric.minimum, accepted.f1)
    if refused is None and rejected.best is not None and enough:
        refused = rejected.best
    metadata: dict[str, object] = {
        "verifier": "free_response",
        "rubric_type": "contains_any",
        "candidate_answer": trim(text),
        "accepted_answer_count": len(rubric.accepted),
        "rejected_answer_count": len(rubric.rejected),
        "matched_answer_index": matched,
        "rejected_answer_index": refused,
        "accepted_token_f1": accepted.f1,
        "rejected_token_f1": rejected.f1,
        "min_token_f1": rubric.minimum,
    }
    return Score(matched is not None and refused is None, metadata)


SCORERS = {
    "multiple_choice": multiple_choice,
    "short_answer": short_answer,
    "free_response": free_response,
}
