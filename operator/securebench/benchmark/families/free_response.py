"""free_response: a text judged by a rubric of accepted and rejected answers (contract 14.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from securebench.benchmark.families.base import Advice, Family
from securebench.benchmark.families.fields import TEXT, TEXT_OR_OBJECT, Field, FieldSection
from securebench.benchmark.resources import Lane
from securebench.benchmark.scorers import free_response as scorer
from securebench.core.spelling import meant


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    """Yield the keys of a rubric that nothing reads (contract 21.18)."""
    rubric, known = row_eval.get("rubric"), scorer.RUBRIC_KEYS
    if isinstance(rubric, Mapping):
        for key in sorted(rubric.keys() - known):
            yield Advice("unknown-key", f"unknown key eval.rubric.{key}{meant([key], known)}")


FAMILY = Family(
    name="free_response",
    candidate_kind="text",
    input=FieldSection(
        "input", (Field("prompt", TEXT, required=True), Field("context", TEXT_OR_OBJECT))
    ),
    eval=FieldSection(
        "eval",
        (
            Field("rubric", TEXT_OR_OBJECT, required=True, lane=Lane.HIDDEN),
            Field("reference_answer", TEXT, lane=Lane.HIDDEN),
        ),
    ),
    scorer=scorer,
    advice=_advice,
)
