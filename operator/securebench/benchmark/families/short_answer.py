"""short_answer: a short text or number (contract 14.2)."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from securebench.benchmark.families.audit_rules import AuditRules
from securebench.benchmark.families.base import Family
from securebench.benchmark.families.fields import Field, FieldSection
from securebench.benchmark.families.verification import TextVerifier
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.benchmark.scorers.text import ANSWER_WORDS, comparable, contains_whole, focus, norm
from securebench.core.json_schema import (
    NON_NEGATIVE,
    TEXT,
    TEXT_OR_NUMBER,
    TEXT_OR_OBJECT,
    described,
    non_empty_list,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "short_answer"


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")
_MINUS_SIGNS = "\u2212\ufe63\uff0d"
"""Read as the ASCII sign (contract 21.17)."""
_RELATIVE_TOLERANCE = 1e-9
"""Share of the larger number that always counts as rounding (contract 14.2)."""


class Hit(NamedTuple):
    """The accepted answer that matched, and by which strategy."""

    position: int
    strategy: str


def configuration_problem(public: Mapping[str, object], hidden: Mapping[str, object]) -> str | None:
    """Return why this verifier cannot work with the row, or None."""
    del public
    if _accepted_answers(hidden) is None:
        return "short_answer requires accepted_answers: non-empty strings or numbers"
    if hidden.get("tolerance") is not None and _tolerance(hidden) is None:
        return "short_answer tolerance must be a finite non-negative number"
    return None


def verify(
    candidate_text: str | None, public: Mapping[str, object], hidden: Mapping[str, object]
) -> VerificationResult:
    """Judge a candidate against the accepted answers.

    Returns:
        The verdict with the first answer and strategy that matched.

    Raises:
        VerifierConfigurationError: There is no usable accepted answer.
    """
    problem = configuration_problem(public, hidden)
    answers = _accepted_answers(hidden)
    if problem is not None or answers is None:
        raise VerifierConfigurationError(problem or "short_answer requires accepted_answers")
    text = (candidate_text or "").strip()
    tolerance = _tolerance(hidden)
    hit = _first_hit(text, answers, tolerance) if text else None
    return VerificationResult(
        passed=hit is not None,
        metadata={
            "verifier": NAME,
            "candidate_answer": text,
            "accepted_answer_count": len(answers),
            "matched_answer_index": hit.position if hit else None,
            "match_strategy": hit.strategy if hit else None,
            "tolerance": hidden.get("tolerance"),
        },
    )


def number_in(value: str | float) -> float | None:
    """Return a finite number: the value itself, or the first decimal in a text.

    A text of many digits would become infinite and then be near to every answer.
    """
    if isinstance(value, str):
        match = _DECIMAL.search(_ascii_numbers(value).replace(",", ""))
        if match is None:
            return None
        number = float(match.group())
    else:
        try:
            number = float(value)
        except OverflowError:
            return None
    return number if math.isfinite(number) else None


def _ascii_numbers(text: str) -> str:
    """Return the text with minus signs and forms of decimal digits as ASCII (21.17)."""
    return text if text.isascii() else "".join(map(_ascii_sign, text))


@lru_cache(maxsize=1024)
def _ascii_sign(sign: str) -> str:
    if sign in _MINUS_SIGNS:
        return "-"
    plain = normalize("NFKC", sign)
    return plain if sign.isdecimal() and plain.isascii() else sign


def _first_hit(text: str, answers: Sequence[str | float], tolerance: float | None) -> Hit | None:
    for value in (text, focus(text, ANSWER_WORDS)):
        given, whole, number = norm(value), comparable(value), number_in(value)
        for index, answer in enumerate(answers):
            if tolerance is not None and _is_near(number, number_in(answer), tolerance):
                return Hit(index, "numeric_tolerance")
            if whole == comparable(str(answer)):
                return Hit(index, "normalized_exact")
            if contains_whole(given, norm(str(answer))):
                return Hit(index, "answer_span")
    return None


def _is_near(left: float | None, right: float | None, tolerance: float) -> bool:
    if left is None or right is None:
        return False
    return abs(left - right) <= max(tolerance, _RELATIVE_TOLERANCE * max(abs(left), abs(right)))


def _accepted_answers(hidden: Mapping[str, object]) -> Sequence[str | float] | None:
    raw = hidden.get("accepted_answers")
    if not isinstance(raw, list | tuple) or not raw:
        return None
    return raw if all(_is_answer(item) for item in raw) else None


def _is_answer(item: object) -> bool:
    if isinstance(item, str):
        return bool(item.strip())
    if isinstance(item, float):
        return math.isfinite(item)
    return isinstance(item, int) and not isinstance(item, bool)


def _tolerance(hidden: Mapping[str, object]) -> float | None:
    raw = hidden.get("tolerance")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    number = number_in(raw)
    return number if number is not None and number >= 0 else None


FAMILY = Family(
    name=NAME,
    candidate_kind="text",
    input=FieldSection(
        "input",
        (
            Field(
                "question",
                described(TEXT, "What is asked.", "How many metres are 2.5 km?"),
                required=True,
            ),
            Field(
                "context",
                described(
                    TEXT_OR_OBJECT,
                    "A passage or data that the question is about.",
                    "A kilometre has 1,000 metres.",
                ),
            ),
            Field(
                "answer_format",
                described(
                    TEXT,
                    "How the answer is to be written; for the agent only.",
                    "a number without a unit",
                ),
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "accepted_answers",
                described(
                    non_empty_list(TEXT_OR_NUMBER), "Each of them is right.", [2500, "2500 m"]
                ),
                required=True,
                lane=Lane.HIDDEN,
            ),
            Field(
                "tolerance",
                described(
                    NON_NEGATIVE,
                    "Numbers are compared, and may differ by so much; without it only texts are.",
                    0.5,
                ),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    scorer=TextVerifier(verify, configuration_problem),
    audit=AuditRules(asks=("question",)),
)
