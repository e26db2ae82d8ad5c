"""short_answer: a short text or number (contract 14.2)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.base import (
    Advice,
    AuditRules,
    Family,
    Field,
    FieldSection,
    TextVerifier,
)
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers.numbers import (
    MAX_DIGITS,
    Number,
    Place,
    sole_number,
    whole_number,
)
from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.benchmark.scorers.text import (
    Candidate,
    comparable,
    contains_whole,
    fold,
    layers,
    norm,
    plain,
    read,
    typeset,
)
from securebench.json_values import (
    NON_NEGATIVE,
    TEXT,
    TEXT_OR_NUMBER,
    TEXT_OR_OBJECT,
    described,
    non_empty_list,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = "short_answer"

_LARGEST_TOLERANCE = 10**308
_CURRENCIES = frozenset("$\u20ac\u00a3\u00a5\u20b9")
_MANY_DIGITS = 3
"""Digits of a number from which on people round it."""
_BEHIND = 4
"""Characters behind a number that are read beside its unit."""


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
    hit = _first_hit(text, answers, tolerance)
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


class _Accepted(NamedTuple):
    """An accepted answer as candidates are compared with it.

    Attributes:
        number: The number that the answer is, or the only one in it.
        is_number: Whether it is a number and nothing else; then no text is compared.
        currency: The sign before the number of a quantity.
        unit: What stands behind the number of a quantity.
        forms: The text as written and without marks, for comparison.
    """

    number: Number | None
    is_number: bool
    currency: str
    unit: str
    forms: tuple[str, str]


@lru_cache(maxsize=1024)
def _accepted(answer: str | float) -> _Accepted:
    raw = typeset(str(answer)).strip()
    text = plain(raw).strip()
    whole, place = whole_number(text), sole_number(text)
    if whole is not None or place is None:
        return _Accepted(
            whole, is_number=whole is not None, currency="", unit="", forms=(raw, text)
        )
    before, behind = text[: place.start].strip(), norm(text[place.end :])
    currency = before if before in _CURRENCIES and not behind else ""
    unit = "" if before else behind
    return _Accepted(place.number, is_number=False, currency=currency, unit=unit, forms=(raw, text))


def _given_number(given: Candidate) -> tuple[Place, str] | None:
    """Return the number that a candidate gives, and the text in which it stands.

    It is that of the last labelled line, else the only one of the text, else that of the last line.
    """
    unlabelled = dict.fromkeys((given.text, given.last_line))
    for text in unlabelled if given.stated is None else (given.stated,):
        place = sole_number(text)
        if place is not None:
            return place, text
    return None


def _first_hit(text: str, answers: Sequence[str | float], tolerance: Fraction | None) -> Hit | None:
    given = read(text)
    number = _given_number(given)
    whole = {comparable(value) for value in (given.raw, given.text, *layers(given.conclusion))}
    whole.discard("")
    spans = (norm(given.raw), norm(given.text))
    for index, answer in enumerate(answers):
        accepted = _accepted(answer)
        if number is not None and _is_same_number(accepted, *number, tolerance):
            return Hit(index, "numeric_exact" if tolerance is None else "numeric_tolerance")
        if accepted.is_number:
            continue
        if not whole.isdisjoint(map(comparable, accepted.forms)):
            return Hit(index, "normalized_exact")
        if any(map(contains_whole, spans, map(norm, accepted.forms))):
            return Hit(index, "answer_span")
    return None


def _is_same_number(
    accepted: _Accepted, place: Place, text: str, tolerance: Fraction | None
) -> bool:
    """Tell whether a number is accepted; of a quantity without a tolerance its unit counts, too."""
    if accepted.number is None or place.number is None:
        return False
    if not accepted.number.is_near(place.number, tolerance or Fraction(0)):
        return False
    if accepted.is_number or tolerance is not None:
        return True
    if accepted.currency:
        return text[: place.start].rstrip().endswith(accepted.currency)
    behind = fold(text[place.end : place.end + len(accepted.unit) + _BEHIND]).lstrip(" -")
    follows = behind[len(accepted.unit) :][:1]
    is_unit = bool(accepted.unit) and behind.startswith(accepted.unit)
    return is_unit and not (follows.isalnum() or follows in {"^", "/", "_", "-"})


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    """Yield the numbers that candidates will hardly give to the last digit."""
    answers = _accepted_answers(row_eval)
    if answers is None or row_eval.get("tolerance") is not None:
        return
    for index, answer in enumerate(answers):
        accepted = _accepted(answer)
        if accepted.is_number and accepted.number and _is_rounded(accepted.number.value):
            name = f"eval.accepted_answers[{index}]"
            yield Advice(
                "tolerance", f"{name} is a number of many decimals and is compared exactly"
            )


def _is_rounded(value: Fraction) -> bool:
    """Tell whether people round a number: its decimals have no end, or they are three and more.

    Whole eighths have an end that people write, and 1e-7 has one digit.
    """
    if 10**MAX_DIGITS % value.denominator:
        return True
    has_decimals = (value * 100).denominator != 1 and (value * 8).denominator != 1
    return (
        has_decimals and len(f"{abs(value * 10**MAX_DIGITS).numerator}".rstrip("0")) >= _MANY_DIGITS
    )


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


def _tolerance(hidden: Mapping[str, object]) -> Fraction | None:
    raw = hidden.get("tolerance")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    if not isinstance(raw, int) and not math.isfinite(raw):
        return None
    return Fraction(str(raw)) if 0 <= raw <= _LARGEST_TOLERANCE else None


FAMILY = Family(
    name=NAME,
    candidate_kind="text",
    verification="text",
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
                    "How far a number may be off; without it numbers are compared exactly.",
                    0.5,
                ),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    scorer=TextVerifier(verify, configuration_problem),
    advice=_advice,
    audit=AuditRules(asks=("question",)),
)
