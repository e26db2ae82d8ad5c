from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import pytest

from securebench.benchmark.families.registry import (
    DEFERRED_EVAL_VISIBILITY,
    EVAL_VISIBILITY,
    FAMILIES,
    eval_visibility_for,
    row_families,
)
from securebench.benchmark.families.repo_patch import candidate_policy, patch_plan
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.rows import row_problems, verifier_configuration_problem
from securebench.benchmark.resources import Lane, Resource, ResourceBundle

GOOD = {
    "multiple_choice": ({"question": "q", "choices": ["a", "b"]}, {"answer": 1}),
    "short_answer": ({"question": "q"}, {"accepted_answers": ["x", 3]}),
    "free_response": ({"prompt": "p"}, {"rubric": {"accepted_answers": ["x"]}}),
    "code_completion": ({"prompt": "p"}, {"tests": {"source": "inline", "code": "f()"}}),
    "repo_patch": (
        {"repo": "r", "base_commit": "c", "instructions": "i"},
        {"tests": {"source": "command", "command": "true", "workdir": "/testbed"}},
    ),
    "terminal_task": ({"instructions": "i"}, {"checker": {"command": ["true"]}}),
}


def problems(family, row_input, row_eval):
    return list(row_problems(family, row_input, row_eval))


@pytest.mark.parametrize("family", GOOD)
def test_good_rows_pass(family):
    assert problems(family, *GOOD[family]) == []


@pytest.mark.parametrize("family", DEFERRED_EVAL_VISIBILITY)
def test_deferred_families_are_permissive(family):
    assert problems(family, {"x": 1}, {"y": 2}) == []


KNOWN = sorted(EVAL_VISIBILITY)
UNKNOWN = {
    "short-answer": "unknown family 'short-answer', did you mean 'short_answer'?",
    "Multiple Choice": "unknown family 'Multiple Choice', did you mean 'multiple_choice'?",
    "terminal": "unknown family 'terminal', did you mean 'terminal_task'?",
    "code_generation": f"unknown family 'code_generation'; known are {', '.join(KNOWN)}",
}


@pytest.mark.parametrize("family", UNKNOWN)
def test_unknown_families_are_refused(family):
    assert problems(family, {"x": 1}, {"y": 2}) == [UNKNOWN[family]]


MISSPELT = {
    "eval": (
        "multiple_choice", {}, {"answer": ..., "answerz": 0},
        "eval has unknown field(s): answerz, did you mean 'answer'?"),
    "two of eval": (
        "short_answer", {}, {"tolerance": ..., "tolerancy": 1, "x": 2},
        "eval has unknown field(s): tolerancy, x, did you mean 'tolerance' for 'tolerancy'?"),
    "tests of code": (
        "code_completion", {}, {"tests": {"source": "inline", "code": "f()", "isolaton": "shared"}},
        "eval.tests has unknown field(s): isolaton, did you mean 'isolation'?"),
    "tests of a patch": (
        "repo_patch", {}, {"tests": {"source": "command", "commandd": "true"}},
        "eval.tests has unknown field(s): commandd, did you mean 'command'?"),
    "candidate policy": (
        "repo_patch", {},
        {"tests": {"source": "command", "command": "x", "candidate_polcy": {"allow_paths": []}}},
        "eval.tests has unknown field(s): candidate_polcy, did you mean 'candidate_policy'?"),
    "in the candidate policy": (
        "repo_patch", {}, {"candidate_policy": {"allow_path": ["src"]}},
        "eval.candidate_policy has unknown field(s): allow_path, did you mean 'allow_paths'?"),
    "checker": (
        "terminal_task", {}, {"checker": {"command": "true", "time_out_seconds": 3}},
        "eval.checker has unknown field(s): time_out_seconds, did you mean 'timeout_seconds'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISSPELT)
def test_an_unknown_key_is_named_once_with_the_nearest_known_one(case):
    family, input_changes, eval_changes, want = MISSPELT[case]
    row_input, row_eval = GOOD[family]
    assert problems(family, changed(row_input, input_changes), changed(row_eval, eval_changes)) == [
        want
    ]


BAD = {
    # family, change of input, change of eval, wanted problems
    "missing question": ("multiple_choice", {"question": ...}, {}, ["input.question is required"]),
    "blank question": (
        "multiple_choice", {"question": " "}, {},
        ["input.question must be a non-empty string"]),
    "unknown input": (
        "multiple_choice", {"b": 1, "a": 1}, {}, ["input has unknown field(s): a, b"]),
    "unknown eval": (
        "code_completion", {}, {"timeout_seconds": 1},
        ["eval has unknown field(s): timeout_seconds"]),
    "empty choices": ("multiple_choice", {"choices": []}, {},
                      ["input.choices must be a non-empty array"]),
    "blank choice": ("multiple_choice", {"choices": ["a", " "]}, {},
                     [("input.choices[1] must be a text: choices must contain only non-empty"
                       " strings")]),
    "bool answer": (
        "multiple_choice", {}, {"answer": True},
        [("eval.answer must be a non-empty string, a number or a non-empty array of those: it is a"
          " boolean; put it in quotes")]),
    "empty answers": (
        "multiple_choice", {}, {"answer": []},
        ["eval.answer must be a non-empty string, a number or a non-empty array of those"]),
    "accepted empty": ("short_answer", {}, {"accepted_answers": []},
                       ["eval.accepted_answers must be a non-empty array"]),
    "accepted bool": ("short_answer", {}, {"accepted_answers": [True]},
                      [("eval.accepted_answers[0] must be a non-empty string or a number: it is a"
                        " boolean; put it in quotes")]),
    "tolerance negative": ("short_answer", {}, {"tolerance": -1},
                           ["eval.tolerance must be a non-negative number"]),
    "tolerance bool": ("short_answer", {}, {"tolerance": True},
                       ["eval.tolerance must be a non-negative number"]),
    "context": ("short_answer", {"context": 3}, {},
                ["input.context must be a non-empty string or an object: put it in quotes"]),
    "rubric missing": ("free_response", {}, {"rubric": ...}, ["eval.rubric is required"]),
    "rubric list": ("free_response", {}, {"rubric": ["x"]},
                    ["eval.rubric must be a non-empty string or an object"]),
    "tests text": ("code_completion", {}, {"tests": "x"}, ["eval.tests must be an object"]),
    "starter code": ("code_completion", {"starter_code": 1}, {},
                     ["input.starter_code must be a string: put it in quotes"]),
    "repo tests text": ("repo_patch", {}, {"tests": "x"}, ["eval.tests must be an object"]),
    "repo tests": (
        "repo_patch", {}, {"tests": {"source": "inline", "command": [], "timeout_seconds": -1}},
        ["eval.tests.source must be 'command'",
         "eval.tests.command must be a non-empty string or a non-empty array of non-empty strings",
         "eval.tests.timeout_seconds must be a non-negative number"]),
    "repo patches": (
        "repo_patch", {},
        {"tests": {"source": "command", "command": "x", "setup_patch": " ",
                   "test_patch": {"source": "inline", "patch": "x", "more": 1},
                   "control": {"source": "file", "patch": "x"}}},
        [("eval.tests.setup_patch must be a non-empty string or"
          " {source: inline, patch: <non-empty string>}"),
         "eval.tests.test_patch has unknown field(s): more",
         "eval.tests.control.source must be 'inline'"]),
    "policy": (
        "repo_patch", {}, {"candidate_policy": {"allow_paths": "a", "deny": [],
                                                "patch_preserved_paths": ["a", " "]}},
        ["eval.candidate_policy.allow_paths must be an array",
         "eval.candidate_policy.patch_preserved_paths[1] must be a non-empty string",
         "eval.candidate_policy has unknown field(s): deny"]),
    "policy no object": ("repo_patch", {}, {"candidate_policy": []},
                         ["eval.candidate_policy must be an object"]),
    "two policies": (
        "repo_patch", {},
        {"tests": {"source": "command", "command": "x", "candidate_policy": {}},
         "candidate_policy": {"allow_paths": ["a"]}},
        ["eval.candidate_policy and eval.tests.candidate_policy differ; keep one of them"]),
    "checker missing": ("terminal_task", {}, {"checker": ...}, ["eval.checker is required"]),
    "checker text": ("terminal_task", {}, {"checker": "x"}, ["eval.checker must be an object"]),
    "checker mixed": (
        "terminal_task", {}, {"checker": {"command": "x", "source": "pytest", "path": "p"}},
        ["eval.checker has unknown field(s): command"]),
    "checker other key": ("terminal_task", {}, {"checker": {"command": "x", "env": {}}},
                          ["eval.checker has unknown field(s): env"]),
    "checker timeout": (
        "terminal_task", {}, {"checker": {"command": "x", "timeout_seconds": 0}},
        ["eval.checker.timeout_seconds must be a positive number of seconds, at most 31536000"]),
    "checker source": ("terminal_task", {}, {"checker": {"source": "make", "path": "p"}},
                       ["eval.checker.source must be one of pytest, script"]),
    "checker path": ("terminal_task", {}, {"checker": {"source": "script"}},
                     ["eval.checker.path is required"]),
    "commands no list": ("terminal_task", {}, {"needed_commands": "chroot"},
                         ["eval.needed_commands must be a list"]),
    "commands": (
        "terminal_task", {}, {"needed_commands": ["chroot", "", "mount"]},
        ["eval.needed_commands[1] must be a non-empty string, one of chroot",
         "eval.needed_commands[2] must be one of chroot"]),
}  # fmt: skip


def changed(values, change):
    merged = {**values, **change}
    return {key: value for key, value in merged.items() if value is not ...}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case):
    family, input_change, eval_change, want = BAD[case]
    row_input, row_eval = GOOD[family]
    found = problems(family, changed(row_input, input_change), changed(row_eval, eval_change))
    assert found == want


ACCEPTED = {
    "fractional answer": ("multiple_choice", {}, {"answer": [1.5, "b"]}),
    "tolerance zero": ("short_answer", {}, {"tolerance": 0}),
    "text rubric": ("free_response", {}, {"rubric": "be kind"}),
    "empty starter code": ("code_completion", {"starter_code": ""}, {}),
    "any tests": ("code_completion", {}, {"tests": {}}),
    "timeout zero": (
        "repo_patch", {}, {"tests": {"source": "command", "command": "x", "timeout_seconds": 0}}),
    "equal policies": (
        "repo_patch", {},
        {"tests": {"source": "command", "command": "x", "candidate_policy": {}},
         "candidate_policy": {}}),
    "one policy": ("repo_patch", {}, {"candidate_policy": {"allow_paths": ["src/**"]}}),
    "inline patch": (
        "repo_patch", {},
        {"tests": {"source": "command", "command": "x",
                   "test_patch": {"source": "inline", "patch": "diff"}}}),
    "source form": ("terminal_task", {}, {"checker": {"source": "pytest", "path": "t.py",
                                                      "timeout_seconds": 2.5}}),
    "chroot": ("terminal_task", {}, {"needed_commands": ["chroot"]}),
    "anything expected": ("terminal_task", {}, {"expected_state": None}),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted_rows(case):
    family, input_change, eval_change = ACCEPTED[case]
    row_input, row_eval = GOOD[family]
    assert problems(family, {**row_input, **input_change}, {**row_eval, **eval_change}) == []


def test_all_problems_of_a_row_are_told_together():
    assert problems("multiple_choice", {}, {}) == [
        "input.question is required",
        "input.choices is required",
        "eval.answer is required",
    ]


LANES = {
    "multiple_choice": ({}, {"answer"}),
    "short_answer": ({}, {"accepted_answers", "tolerance"}),
    "free_response": ({}, {"reference_answer", "rubric"}),
    "code_completion": ({"tests", "entry_point"}, {"reference_solution", "canonical_solution"}),
    "repo_patch": ({"tests", "candidate_policy"}, {"gold_patch"}),
    "terminal_task": (
        {"checker", "needed_commands", "run_tests", "test_files"}, {"expected_state"}),
    "tool_call": ({"initial_state"}, {"expected_calls", "expected_final_state"}),
    "browser_task": ({"credentials"}, {"success_check"}),
    "desktop_task": ({}, {"success_check"}),
    "artifact_task": ({}, {"reference_artifact", "rubric"}),
    "multimodal_qa": ({}, {"answer", "rubric"}),
    "preference_pair": ({}, {"preference", "rubric"}),
}  # fmt: skip


def test_every_family_has_lanes():
    assert EVAL_VISIBILITY.keys() == LANES.keys()


@pytest.mark.parametrize("family", LANES)
def test_lanes(family):
    inputs, hidden = LANES[family]
    want = dict.fromkeys(inputs, Lane.EVALUATION_INPUTS) | dict.fromkeys(hidden, Lane.HIDDEN)
    assert EVAL_VISIBILITY[family] == want
    for key, lane in want.items():
        assert eval_visibility_for(family, key) is lane


def test_unknown_means_hidden():
    assert eval_visibility_for("repo_patch", "test") is Lane.HIDDEN
    assert eval_visibility_for("code_generation", "tests") is Lane.HIDDEN


KINDS = {
    "multiple_choice": "text",
    "short_answer": "text",
    "free_response": "text",
    "code_completion": "code",
    "repo_patch": "patch",
    "terminal_task": "workspace",
    "harbor_task": "root",
}


@pytest.mark.parametrize("family", KINDS)
def test_what_is_handed_in(family):
    assert FAMILIES[family].candidate_kind == KINDS[family]
    with pytest.raises(FrozenInstanceError):
        FAMILIES[family].candidate_kind = "none"


@pytest.mark.parametrize("family", row_families())
def test_exactly_one_thing_verifies(family):
    known = FAMILIES[family]
    assert [known.scorer, known.check, known.code].count(None) == 2


def task(family, input_change=None, eval_change=None, environment=None):
    row_input, row_eval = GOOD.get(family, ({}, {}))
    values = changed(row_input, input_change or {})
    private = changed(row_eval, eval_change or {})
    return SecureBenchTask(
        id="t",
        benchmark_id="b",
        task_type=family,
        metadata={"environment": environment or {}},
        resources=ResourceBundle(
            (
                *(Resource(k, Lane.PUBLIC, "json", v) for k, v in values.items()),
                *(Resource(k, eval_visibility_for(family, k), "json", v)
                  for k, v in private.items()),
            )
        ),
    )  # fmt: skip


REPO = {"source": "command", "command": "x"}
CONFIGURATION = {
    "27 choices": ("multiple_choice", {"choices": ["x"] * 27}, {}, "26"),
    "out of range": ("multiple_choice", {}, {"answer": 9}, "requires at least one valid answer"),
    "no answers": ("short_answer", {}, {"accepted_answers": []}, "accepted_answers"),
    "text rubric": ("free_response", {}, {"rubric": "x"}, "structured rubric"),
    "rejected empty": (
        "free_response", {}, {"rubric": {"accepted_answers": ["a"], "rejected_answers": []}},
        "rejected_answers"),
    "language": ("code_completion", {"language": "rust"}, {}, "python"),
    "no inline tests": ("code_completion", {}, {"tests": {}}, "requires structured inline tests"),
    "blank code": ("code_completion", {}, {"tests": {"source": "inline", "code": " "}},
                   "requires structured inline tests"),
    "tests no object": ("code_completion", {}, {"tests": "x"}, "requires structured inline tests"),
    "code timeout": (
        "code_completion", {}, {"tests": {"source": "inline", "code": "x", "timeout_seconds": 0}},
        "timeout_seconds"),
    "isolation": (
        "code_completion", {}, {"tests": {"source": "inline", "code": "x", "isolation": "no"}},
        "separate, shared"),
    **{
        f"repeat {value}": (
            "code_completion", {}, {"tests": {"source": "inline", "code": "x", "repeat": value}},
            "tests.repeat must be a whole number from 0 to 8")
        for value in (-1, 9, 1.0, True, "2", None)
    },
    "repeat in one process": (
        "code_completion", {},
        {"tests": {"source": "inline", "code": "x", "isolation": "shared", "repeat": 1}},
        "tests.repeat needs tests.isolation: separate"),
    "repo timeout 0": ("repo_patch", {}, {"tests": {**REPO, "timeout_seconds": 0}},
                       "timeout_seconds"),
    "repo workdir": ("repo_patch", {}, {"tests": REPO}, "environment.workdir"),
    "repo tests": ("repo_patch", {}, {"tests": "x"}, "must be an object"),
    "checker": ("terminal_task", {}, {"checker": {}}, "command is required"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGURATION)
def test_configuration_problems(case):
    family, input_change, eval_change, want = CONFIGURATION[case]
    problem = verifier_configuration_problem(task(family, input_change, eval_change))
    assert problem is not None
    assert want in problem


@pytest.mark.parametrize("family", [*GOOD, "tool_call"])
def test_no_configuration_problem(family):
    assert verifier_configuration_problem(task(family)) is None


def test_repo_workdir_of_the_environment_counts():
    repo = task("repo_patch", {}, {"tests": REPO}, {"workdir": "/testbed"})
    assert verifier_configuration_problem(repo) is None


POLICIES = {
    "inside": ({"candidate_policy": {"allow_paths": ["a"]}}, None, {"allow_paths": ["a"]}),
    "separate": ({}, {"allow_paths": ["b"]}, {"allow_paths": ["b"]}),
    "none": ({}, None, {}),
    "tests no object": ("x", None, {}),
}


@pytest.mark.parametrize("case", POLICIES)
def test_candidate_policy(case):
    tests, separate, want = POLICIES[case]
    assert candidate_policy(tests, separate) == want


def bundle(**tests):
    lane = Lane.EVALUATION_INPUTS
    return ResourceBundle((Resource("tests", lane, "json", {"source": "command", **tests}),))


def touching(path):
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("workdir", "folder"),
    [(None, ""), ("/testbed", ""), ("/testbed/backend", "backend"), ("backend/", "backend"),
     ("/elsewhere", ""), (".", "")],
)  # fmt: skip
def test_what_a_patch_plan_knows_of_the_rows_tests(workdir, folder):
    given = {"workdir": workdir} if workdir else {}
    patches = {
        "setup_patch": touching("lib/num.py"),
        "test_patch": {"source": "inline", "patch": touching("checks/half.py")},
        "control": touching("checks/control.py"),
    }
    task = SimpleNamespace(
        resources=bundle(**given, **patches), environment={"workdir": "/testbed"}
    )
    plan = patch_plan(task)
    assert plan.test_paths == {"checks/half.py", "checks/control.py"}
    assert plan.folder == folder
    judgement = plan.judged(touching("lib/num.py") + touching("checks/half.py"))
    assert judgement.text == touching("lib/num.py").encode()
