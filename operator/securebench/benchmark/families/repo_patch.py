"""repo_patch: a patch to a repository of the image, judged by a command (contract 14.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from securebench.benchmark.families.base import Advice, Family, TaskView
from securebench.benchmark.families.fields import (
    COMMAND,
    NON_NEGATIVE,
    PATTERNS,
    POSITIVE,
    STRING,
    TEXT,
    Field,
    FieldSection,
    Schema,
    is_text,
    object_of,
)
from securebench.benchmark.families.verification import CheckRequest, PatchPlan
from securebench.benchmark.resources import Lane
from securebench.core.names import REPO_PATCH

PATCHES = ("setup_patch", "test_patch", "control")
"""Keys of ``eval.tests`` whose values are patches."""

_PATCH: Schema = {
    **object_of({"source": {"const": "inline"}, "patch": TEXT}, "source", "patch"),
    "type": ["string", "object"],
    "pattern": "\\S",
    "description": "a non-empty string or {source: inline, patch: <non-empty string>}",
}
CANDIDATE_POLICY: Schema = object_of(
    dict.fromkeys(("allow_paths", "allow_sensitive_paths", "patch_preserved_paths"), PATTERNS)
)


def _tests_of(timeout: Schema) -> Schema:
    return object_of(
        {
            "source": {"const": "command"},
            "command": COMMAND,
            "workdir": TEXT,
            "timeout_seconds": timeout,
            **dict.fromkeys(PATCHES, _PATCH),
            "candidate_policy": CANDIDATE_POLICY,
        },
        "source",
        "command",
    )


def candidate_policy(tests: object, separate: object) -> Mapping[str, object]:
    """Return the policy of a task, wherever its author put it.

    Args:
        tests: Value of ``eval.tests``.
        separate: Value of ``eval.candidate_policy``, or None.
    """
    inside = tests.get("candidate_policy") if isinstance(tests, Mapping) else None
    policy = inside if separate is None else separate
    return policy if isinstance(policy, Mapping) else {}


def _cross_problems(
    _row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Iterator[str]:
    tests = row_eval.get("tests")
    if not isinstance(tests, Mapping) or "candidate_policy" not in row_eval:
        return
    if "candidate_policy" in tests and tests["candidate_policy"] != row_eval["candidate_policy"]:
        yield "eval.candidate_policy and eval.tests.candidate_policy differ; keep one of them"


def configuration_problem(task: TaskView) -> str | None:
    """Return why the tests, which hold, cannot be run, or None."""
    if "workdir" not in _tests(task) and not is_text(task.environment.get("workdir")):
        return "repo_patch requires tests.workdir or environment.workdir"
    return None


def _check(task: TaskView) -> CheckRequest:
    tests = _tests(task)
    return CheckRequest(
        command=tests.get("command"),
        base=str(task.environment.get("workdir") or ""),
        workdir=tests.get("workdir"),
        timeouts=(tests.get("timeout_seconds"),),
        patch=patch_plan(task),
    )


def patch_plan(task: TaskView) -> PatchPlan:
    """Return how candidates of a task are judged and applied; the row holds."""
    tests = _tests(task)
    return PatchPlan(
        policy=candidate_policy(tests, task.resources.value("candidate_policy")),
        base_commit=str(task.resources.value("base_commit")),
        has_setup="setup_patch" in tests,
        has_test="test_patch" in tests,
        has_control="control" in tests,
    )


def _patches(task: TaskView) -> Iterator[tuple[str, str]]:
    tests = _tests(task)
    for name in PATCHES:
        value = tests.get(name)
        text = value.get("patch") if isinstance(value, Mapping) else value
        if isinstance(text, str):
            yield f"eval.tests.{name}", text


def _tests(task: TaskView) -> Mapping[str, object]:
    tests = task.resources.value("tests")
    return tests if isinstance(tests, Mapping) else {}


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    policy = candidate_policy(row_eval["tests"], row_eval.get("candidate_policy"))
    if not policy.get("allow_paths"):
        message = "without allow_paths only the default deny list protects the tests"
        yield Advice("allow-paths", message)


FAMILY = Family(
    name=REPO_PATCH,
    candidate_kind="patch",
    input=FieldSection(
        "input",
        (
            Field("repo", TEXT, required=True),
            Field("base_commit", TEXT, required=True),
            Field("instructions", TEXT, required=True),
            Field("hints", TEXT),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field("tests", _tests_of(NON_NEGATIVE), required=True, lane=Lane.EVALUATION_INPUTS),
            Field("gold_patch", STRING, lane=Lane.HIDDEN),
            Field("candidate_policy", CANDIDATE_POLICY, lane=Lane.EVALUATION_INPUTS),
        ),
    ),
    needs={"tests": _tests_of(POSITIVE)},
    own_problem=configuration_problem,
    check=_check,
    patches=_patches,
    advice=_advice,
    cross_problems=_cross_problems,
)
