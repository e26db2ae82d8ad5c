"""short_answer: a short text or number (contract 14.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.benchmark.families.base import Family
from securebench.benchmark.families.fields import (
    NON_NEGATIVE,
    TEXT,
    TEXT_OR_OBJECT,
    TEXT_SCHEMA,
    Field,
    FieldRule,
    FieldSection,
    is_number,
    is_text,
)
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers import short_answer as scorer

if TYPE_CHECKING:
    from collections.abc import Iterator


def _is_accepted(item: object) -> bool:
    return is_text(item) or is_number(item)


def _accepted_problems(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, list) or not value:
        yield f"{name} must be a non-empty array"
    elif not all(map(_is_accepted, value)):
        yield f"{name} must contain only non-empty strings or numbers"


_ACCEPTED = FieldRule(
    {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [TEXT_SCHEMA, {"type": "number"}]},
    },
    _accepted_problems,
)


FAMILY = Family(
    name="short_answer",
    candidate_kind="text",
    input=FieldSection(
        "input",
        (
            Field("question", TEXT, required=True),
            Field("context", TEXT_OR_OBJECT),
            Field("answer_format", TEXT),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field("accepted_answers", _ACCEPTED, required=True, lane=Lane.HIDDEN),
            Field("tolerance", NON_NEGATIVE, lane=Lane.HIDDEN),
        ),
    ),
    scorer=scorer,
)
