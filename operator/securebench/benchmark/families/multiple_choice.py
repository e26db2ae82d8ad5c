"""multiple_choice: choose one of up to 26 texts (contract 14.1)."""

from __future__ import annotations

from securebench.benchmark.families.base import Family
from securebench.benchmark.families.fields import (
    TEXT,
    TEXT_OR_NUMBER,
    Field,
    FieldSection,
    Schema,
    non_empty_list,
)
from securebench.benchmark.resources import REDACTED, Lane
from securebench.benchmark.scorers import multiple_choice as scorer

_CHOICE: Schema = {
    **TEXT,
    "description": "a text: choices must contain only non-empty strings",
}
_ANSWER: Schema = {
    "type": ["string", "number", "array"],
    "pattern": "\\S",
    "minItems": 1,
    "items": TEXT_OR_NUMBER,
    "description": "a non-empty string, a number or a non-empty array of those",
}


FAMILY = Family(
    name="multiple_choice",
    candidate_kind="text",
    input=FieldSection(
        "input",
        (
            Field("question", TEXT, required=True),
            Field("choices", non_empty_list(_CHOICE), required=True),
        ),
    ),
    eval=FieldSection("eval", (Field("answer", _ANSWER, required=True, lane=Lane.HIDDEN),)),
    scorer=scorer,
    required_resources=("question", "choices", "answer"),
    record_metadata=lambda _task: {"expected_answer": REDACTED},
)
