"""repo_patch: a patch to a repository of the image, judged by a command (contract 14.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from securebench.benchmark.families.base import Advice, Family, TaskView
from securebench.benchmark.families.fields import (
    COMMAND,
    NON_NEGATIVE,
    PATTERNS,
    STRING,
    TEXT,
    TEXT_SCHEMA,
    Field,
    FieldRule,
    FieldSection,
    is_positive,
    is_text,
    object_rule,
    simple,
)
from securebench.benchmark.families.verification import CheckRequest, PatchPlan
from securebench.benchmark.resources import Lane
from securebench.core.names import REPO_PATCH


def _is_patch(value: object) -> bool:
    if not isinstance(value, Mapping):
        return is_text(value)
    return (
        value.keys() == {"source", "patch"}
        and value["source"] == "inline"
        and is_text(value["patch"])
    )


_PATCH = simple(
    {
        "anyOf": [
            TEXT_SCHEMA,
            {
                "type": "object",
                "properties": {"source": {"const": "inline"}, "patch": TEXT_SCHEMA},
                "required": ["patch", "source"],
                "additionalProperties": False,
            },
        ]
    },
    _is_patch,
    "a non-empty string or {source: inline, patch: <non-empty string>}",
)
_SOURCE = simple({"const": "command"}, lambda value: value == "command", "'command'")
CANDIDATE_POLICY: FieldRule = object_rule(
    FieldSection(
        "candidate_policy",
        (
            Field("allow_paths", PATTERNS),
            Field("allow_sensitive_paths", PATTERNS),
            Field("patch_preserved_paths", PATTERNS),
        ),
    )
)
_TESTS_SECTION = FieldSection(
    "tests",
    (
        Field("source", _SOURCE, required=True),
        Field("command", COMMAND, required=True),
        Field("workdir", TEXT),
        Field("timeout_seconds", NON_NEGATIVE),
        Field("setup_patch", _PATCH),
        Field("test_patch", _PATCH),
        Field("control", _PATCH),
        Field("candidate_policy", CANDIDATE_POLICY),
    ),
)
_TESTS = object_rule(_TESTS_SECTION)

PATCHES = ("setup_patch", "test_patch", "control")
"""Keys of ``eval.tests`` whose values are patches."""


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
    """Return why the tests cannot be run, or None."""
    tests = task.resources.value("tests")
    problem = next(_TESTS.problems("tests", tests), None)
    if problem is not None or not isinstance(tests, Mapping):
        return f"repo_patch {problem}"
    if "timeout_seconds" in tests and not is_positive(tests["timeout_seconds"]):
        return "repo_patch tests.timeout_seconds must be a positive number"
    if "workdir" not in tests and not is_text(task.environment.get("workdir")):
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
            Field("tests", _TESTS, required=True, lane=Lane.EVALUATION_INPUTS),
            Field("gold_patch", STRING, lane=Lane.HIDDEN),
            Field("candidate_policy", CANDIDATE_POLICY, lane=Lane.EVALUATION_INPUTS),
        ),
    ),
    own_problem=configuration_problem,
    check=_check,
    patches=_patches,
    advice=_advice,
    cross_problems=_cross_problems,
)
