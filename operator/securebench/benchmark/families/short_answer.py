"""short_answer: a short text or number (contract 14.2)."""

from __future__ import annotations

from securebench.benchmark.families.base import Family
from securebench.benchmark.families.fields import (
    NON_NEGATIVE,
    TEXT,
    TEXT_OR_NUMBER,
    TEXT_OR_OBJECT,
    Field,
    FieldSection,
    non_empty_list,
)
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers import short_answer as scorer

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
            Field(
                "accepted_answers",
                non_empty_list(TEXT_OR_NUMBER),
                required=True,
                lane=Lane.HIDDEN,
            ),
            Field("tolerance", NON_NEGATIVE, lane=Lane.HIDDEN),
        ),
    ),
    scorer=scorer,
)
