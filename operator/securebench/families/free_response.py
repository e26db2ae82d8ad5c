"""free_response: a text judged by a rubric of accepted and rejected answers (contract 14.3)."""

from __future__ import annotations

from securebench.families.base import Family, FamilyContract, scorer_problem
from securebench.families.fields import (
    TEXT,
    TEXT_OR_OBJECT,
    Field,
    Section,
)
from securebench.resources import Lane
from securebench.verifiers import free_response as scorer

FAMILY = Family(
    contract=FamilyContract("free_response", "text", workspace_required=False),
    input=Section(
        "input", (Field("prompt", TEXT, required=True), Field("context", TEXT_OR_OBJECT))
    ),
    eval=Section(
        "eval",
        (
            Field("rubric", TEXT_OR_OBJECT, required=True, lane=Lane.HIDDEN),
            Field("reference_answer", TEXT, lane=Lane.HIDDEN),
        ),
    ),
    configuration_problem=scorer_problem(scorer),
)
