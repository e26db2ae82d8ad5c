"""multiple_choice: choose one of up to 26 texts (contract 14.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.benchmark.families.base import Family
from securebench.benchmark.families.fields import (
    TEXT,
    TEXT_SCHEMA,
    Field,
    FieldRule,
    FieldSection,
    is_number,
    is_text,
    simple,
)
from securebench.benchmark.resources import REDACTED, Lane
from securebench.benchmark.scorers import multiple_choice as scorer

if TYPE_CHECKING:
    from collections.abc import Iterator


def _choices_problems(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, list) or not value:
        yield f"{name} must be a non-empty array"
    elif not all(map(is_text, value)):
        yield f"{name} must contain only non-empty strings"


def _is_answer(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(is_text(item) or is_number(item) for item in items)


_ONE_ANSWER = {"anyOf": [TEXT_SCHEMA, {"type": "number"}]}
_CHOICES = FieldRule({"type": "array", "minItems": 1, "items": TEXT_SCHEMA}, _choices_problems)
_ANSWER = simple(
    {"anyOf": [*_ONE_ANSWER["anyOf"], {"type": "array", "minItems": 1, "items": _ONE_ANSWER}]},
    _is_answer,
    "a non-empty string, a number or a non-empty array of those",
)


FAMILY = Family(
    name="multiple_choice",
    candidate_kind="text",
    input=FieldSection(
        "input",
        (Field("question", TEXT, required=True), Field("choices", _CHOICES, required=True)),
    ),
    eval=FieldSection("eval", (Field("answer", _ANSWER, required=True, lane=Lane.HIDDEN),)),
    scorer=scorer,
    required_resources=("question", "choices", "answer"),
    record_metadata=lambda _task: {"expected_answer": REDACTED},
)
