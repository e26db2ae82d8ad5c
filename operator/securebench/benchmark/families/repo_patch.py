"""repo_patch: a patch to a repository of the image, judged by a command (contract 14.5)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from securebench.benchmark.families.base import (
    SKIPS,
    Advice,
    AnswerRule,
    AuditProblem,
    AuditRules,
    CheckRequest,
    Family,
    Field,
    FieldSection,
    PatchPlan,
    TaskRepository,
    TaskRule,
    TaskView,
    TrialRule,
    texts_in,
)
from securebench.benchmark.families.counted_commands import argv_of, counted_calls, exit_code_alone
from securebench.benchmark.patch.candidate_policy import DROP, REFUSE
from securebench.benchmark.patch.judgement import patch_without_effect, test_paths, why_not_whole
from securebench.benchmark.resources import Lane
from securebench.json_values import (
    COMMAND,
    NON_NEGATIVE,
    PATTERNS,
    SECONDS,
    STRING,
    TEXT,
    Schema,
    described,
    is_text,
    object_at,
    object_of,
)

PATCHES = ("setup_patch", "test_patch", "control")
"""Keys of ``eval.tests`` whose values are patches."""

_LISTS_OF_POLICY = ("allow_paths", "allow_sensitive_paths", "patch_preserved_paths")
_ON_DENIED = "on_denied"

_EXAMPLE_PATCH = "diff --git a/tests/test_x.py b/tests/test_x.py\n…"
_PATCH: Schema = {
    **object_of(
        {
            "source": described({"const": "inline"}, "Always `inline`.", "inline"),
            "patch": described(TEXT, "The patch, as `git diff` prints it.", _EXAMPLE_PATCH),
        },
        "source",
        "patch",
    ),
    "type": ["string", "object"],
    "pattern": "\\S",
    "description": "a non-empty string or {source: inline, patch: <non-empty string>}",
}
_ABOUT_POLICY = (
    ("What the patch may change; `*` crosses `/`, a folder stands for what is in it.", "src"),
    ("Files that are no source by the default rules and count all the same.", "setup.cfg"),
    ("Changes here are left out of the patch, whatever the other lists say.", "CHANGELOG.md"),
)
CANDIDATE_POLICY: Schema = object_of(
    {
        name: described(PATTERNS, about, [example], [])
        for name, (about, example) in zip(_LISTS_OF_POLICY, _ABOUT_POLICY, strict=True)
    }
    | {
        _ON_DENIED: described(
            {"enum": [DROP, REFUSE]},
            "What becomes of denied changes: they are left out and named in the record, or the"
            " candidate fails. Without it: `refuse` with `allow_paths`, else `drop`.",
            REFUSE,
        )
    }
)
_POLICY: Schema = described(
    CANDIDATE_POLICY, "Which paths a candidate may change.", {"allow_paths": ["src"]}
)


def _tests_of(timeout: Schema) -> Schema:
    return object_of(
        {
            "source": described({"const": "command"}, "Always `command`.", "command"),
            "command": described(
                COMMAND,
                "Runs in the repository with the candidate and the patches; exit code 0 is a pass."
                " A text runs by `sh -lc`.",
                ["python3", "-m", "pytest", "tests/test_x.py"],
            ),
            "workdir": described(
                TEXT, "Folder to run in; without it `environment.workdir`.", "/testbed"
            ),
            "timeout_seconds": described(
                timeout, "Of each step of git and of the command.", 120, 300
            ),
            "setup_patch": described(_PATCH, "Applied before the candidate.", _EXAMPLE_PATCH),
            "test_patch": described(
                _PATCH, "Applied behind the candidate: the hidden tests.", _EXAMPLE_PATCH
            ),
            "control": described(
                _PATCH,
                "Adds a test that must fail: where the command passes with it, the candidate has"
                " tampered with the tests.",
                _EXAMPLE_PATCH,
            ),
            "candidate_policy": _POLICY,
            "skips": SKIPS,
        },
        "source",
        "command",
    )


def candidate_policy(tests: object, separate: object) -> Mapping[str, object]:
    """Return the policy of a task, wherever its author put it."""
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
        skips=texts_in(tests, "skips"),
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
        test_paths=_test_paths(task),
        folder=_folder(task),
    )


def _test_paths(task: TaskView) -> frozenset[str]:
    """Return what only the hidden tests change; a setup patch may change source."""
    texts = map(_text_of, map(_tests(task).get, ("test_patch", "control")))
    return test_paths((text for text in texts if text is not None), gold_patch(task, None))


def _folder(task: TaskView) -> str:
    """Return where the tests start, seen from the repository; empty for its root."""
    own, base = _tests(task).get("workdir"), str(task.environment.get("workdir") or "")
    folder = posixpath.normpath(own if isinstance(own, str) else ".")
    below = posixpath.relpath(folder, base or "/") if folder.startswith("/") else folder
    return "" if below.split("/")[0] in {".", ".."} else below


def _patches(task: TaskView) -> Iterator[tuple[str, str]]:
    tests = _tests(task)
    for name in PATCHES:
        text = _text_of(tests.get(name))
        if text is not None:
            yield f"eval.tests.{name}", text


def _text_of(patch: object) -> str | None:
    text = patch.get("patch") if isinstance(patch, Mapping) else patch
    return text if isinstance(text, str) else None


def _tests(task: TaskView) -> Mapping[str, object]:
    tests = task.resources.value("tests")
    return tests if isinstance(tests, Mapping) else {}


def _advice(row_eval: Mapping[str, object]) -> Iterator[Advice]:
    policy = candidate_policy(row_eval["tests"], row_eval.get("candidate_policy"))
    if not policy.get("allow_paths"):
        message = "without allow_paths only the default rules say what of a patch is source"
        yield Advice("allow-paths", message)
    tests = row_eval["tests"]
    command = tests.get("command") if isinstance(tests, Mapping) else None
    if command is not None and not counted_calls(argv_of(command)):
        yield Advice("exit-code", f"eval.tests.command: {exit_code_alone(command)}")


CHECKS_PHASE = "checks"
"""Phase of a record whose tests ran (contract 14.5.1)."""


def gold_patch(task: TaskView, reference: str | None) -> str | None:
    """Return the patch that solves a task: of its row, else the reference answer if it is one."""
    written = task.resources.value("gold_patch")
    if isinstance(written, str) and written.strip():
        return written
    return reference if reference is not None and reference.startswith("diff --git ") else None


def _allow_paths(task: TaskView, reference: str | None) -> Iterator[AuditProblem]:
    """Judge the gold patch as a candidate would be judged (contract 14.5.3)."""
    policy = patch_plan(task).candidate_policy
    if not policy.allow:
        message = "the row has no allow_paths; an agent may change all that looks like source"
        yield AuditProblem(message, "list the folders that a solution needs in allow_paths")
    gold = gold_patch(task, reference)
    if gold is None:
        message = "there is no gold patch to compare with allow_paths"
        remedy = "add eval.gold_patch, or a reference answer in oracle/answers.jsonl"
        yield AuditProblem(message, remedy, checked=False)
    elif reason := why_not_whole(gold, policy):
        message = f"the gold patch would be refused or cut: {reason}"
        yield AuditProblem(message, "correct candidate_policy, or the gold patch")


def _base_candidates(task: TaskView, reference: str | None) -> Mapping[str, str]:
    gold = gold_patch(task, reference)
    idle = None if gold is None else patch_without_effect(gold, patch_plan(task).candidate_policy)
    return {} if idle is None else {"": idle}


def _base_problem(record: Mapping[str, object]) -> AuditProblem | None:
    if record["passed"]:
        message = "its tests pass on the base, without any fix"
        return AuditProblem(message, "add a test that needs the fix")
    if object_at(record, "verifier_metadata").get("phase") != CHECKS_PHASE:
        return AuditProblem("its tests did not run on the base", "correct tests and image")
    return None


def _repository(task: TaskView, reference: str | None) -> TaskRepository:
    tests, gold = _tests(task), gold_patch(task, reference)
    own = tests.get("workdir")
    base = str(task.environment.get("workdir") or "")
    folder = own if isinstance(own, str) else base
    patches = () if gold is None else (_text_of(tests.get("setup_patch")), gold)
    return TaskRepository(
        folder=(folder if folder.startswith("/") else f"{base}/{folder}").strip("/"),
        base_commit=str(task.resources.value("base_commit")),
        patches=tuple(patch for patch in patches if patch is not None),
    )


AUDIT = AuditRules(
    rules=(TaskRule("allow-paths", "{} gold patches are permitted whole", _allow_paths),),
    answers=AnswerRule(
        "gold-passes",
        "the tests of {} gold patches pass",
        AuditProblem(
            "its tests fail with the gold patch",
            "correct the gold patch, the tests, base_commit or the image",
        ),
    ),
    trials=(
        TrialRule(
            "base-fails",
            "the tests of {} bases fail",
            _base_candidates,
            AuditProblem(
                "the pack has no gold patch that changes a file,"
                " so no patch without effect is known",
                "add the gold patch, or see yourself that the tests fail on the base",
                checked=False,
            ),
            _base_problem,
        ),
    ),
    settings=frozenset((*_LISTS_OF_POLICY, _ON_DENIED)),
    repository=_repository,
)

FAMILY = Family(
    name="repo_patch",
    candidate_kind="patch",
    verification="patch",
    input=FieldSection(
        "input",
        (
            Field(
                "repo",
                described(TEXT, "Name of the repository, for people and agents.", "example/slugs"),
                required=True,
            ),
            Field(
                "base_commit",
                described(
                    TEXT,
                    "Commit of the image; a full hash is compared with it.",
                    "74f9230ba70769aa1df3c3092f775b61713d32b2",
                ),
                required=True,
            ),
            Field(
                "instructions",
                described(TEXT, "What is to be changed.", "slug() keeps signs. Mend it."),
                required=True,
            ),
            Field("hints", described(TEXT, "More help for the agent.", "Look at slugs.py.")),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                "tests",
                described(
                    _tests_of(NON_NEGATIVE),
                    "What judges the candidate.",
                    {"source": "command", "command": ["python3", "-m", "pytest"]},
                ),
                required=True,
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                "gold_patch",
                described(
                    STRING,
                    "The patch that solves the task, for audits; it never scores.",
                    "diff --git a/slugs.py b/slugs.py\n…",
                ),
                lane=Lane.HIDDEN,
            ),
            Field(
                "candidate_policy",
                described(
                    _POLICY,
                    "The same as `tests.candidate_policy`, in its other place.",
                    {"allow_paths": ["src"]},
                ),
                lane=Lane.EVALUATION_INPUTS,
            ),
        ),
    ),
    needs={"tests": _tests_of(SECONDS)},
    own_problem=configuration_problem,
    check=_check,
    patches=_patches,
    advice=_advice,
    cross_problems=_cross_problems,
    audit=AUDIT,
)
