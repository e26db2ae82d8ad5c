"""code_completion: a Python module judged by tests in another process (contract 14.4)."""

from __future__ import annotations

from collections.abc import Mapping

from securebench.families.base import Family, FamilyContract, TaskView
from securebench.families.fields import (
    ANYTHING,
    STRING,
    TEXT,
    Field,
    Section,
    is_positive,
    is_text,
    object_rule,
)
from securebench.names import CODE_COMPLETION
from securebench.resources import Lane

LANGUAGE = "python"
SEPARATE, SHARED = ISOLATIONS = ("separate", "shared")
"""Values of ``tests.isolation``: candidate and tests in containers of their own, or in one."""
REPEATS = 8
"""``tests.repeat`` is at most so much."""

_TESTS = object_rule(
    Section(
        "tests",
        tuple(
            Field(name, ANYTHING)
            for name in ("source", "code", "timeout_seconds", "isolation", "repeat")
        ),
    )
)
"""Values that do not hold are a verifier's configuration error (VC of contract 14.4)."""


def configuration_problem(task: TaskView) -> str | None:
    """Return why the tests cannot be run, or None."""
    language = task.resources.value("language")
    if language is not None and language != LANGUAGE:
        return f"code_completion supports the language {LANGUAGE} only"
    tests = task.resources.value("tests")
    if (
        not isinstance(tests, Mapping)
        or tests.get("source") != "inline"
        or not is_text(tests.get("code"))
    ):
        return "code_completion requires structured inline tests"
    if "timeout_seconds" in tests and not is_positive(tests["timeout_seconds"]):
        return "code_completion tests.timeout_seconds must be a positive number"
    if tests.get("isolation", SEPARATE) not in ISOLATIONS:
        return f"code_completion tests.isolation must be one of {', '.join(ISOLATIONS)}"
    return _repeat_problem(tests)


def _repeat_problem(tests: Mapping[str, object]) -> str | None:
    repeat = tests.get("repeat", 0)
    if type(repeat) is not int or not 0 <= repeat <= REPEATS:
        return f"code_completion tests.repeat must be a whole number from 0 to {REPEATS}"
    if repeat and tests.get("isolation") == SHARED:
        return f"code_completion tests.repeat needs tests.isolation: {SEPARATE}"
    return None


FAMILY = Family(
    contract=FamilyContract(CODE_COMPLETION, "code", workspace_required=False),
    input=Section(
        "input",
        (
            Field("prompt", TEXT, required=True),
            Field("language", TEXT),
            Field("starter_code", STRING),
        ),
    ),
    eval=Section(
        "eval",
        (
            Field("tests", _TESTS, required=True, lane=Lane.EVALUATION_INPUTS),
            Field("reference_solution", STRING, lane=Lane.HIDDEN),
            Field("canonical_solution", STRING, lane=Lane.HIDDEN),
        ),
    ),
    configuration_problem=configuration_problem,
    required_resources=("prompt",),
)
