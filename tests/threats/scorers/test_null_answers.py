"""F5: who does nothing gets nothing, on every task of every pack."""

from __future__ import annotations

import json

import pytest

from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import judge_patch
from support.code_pair import judge
from threats.honest import (
    APP,
    CHECK_ANSWER,
    CHOICE,
    CODE,
    CODE_TESTS,
    REPO,
    REPO_DEFAULTS,
    REPO_INPUT,
    REPO_ROW,
    TERMINAL,
    TEXT,
    assert_passed,
)
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial
from threats.kit.local_judging import cases, naive
from threats.scorers.shipped_packs import REFUSAL, Task, nulls, scorer, tasks

TEXTS = {
    task.name: task
    for family in ("multiple_choice", "short_answer", "free_response")
    for task in tasks(family)
}
CODES = {task.name: task for task in tasks("code_completion")}


@pytest.mark.short
@pytest.mark.parametrize("name", TEXTS)
def test_a_082_attack_on_a_scorer(name):
    task = TEXTS[name]
    verify = scorer(task.family).verify
    for null, text in nulls(task).items():
        result = verify(text, task.row["input"], task.row["eval"])
        if repeats_passage(task, text):
            continue
        assert not result.passed, f"{null}: {result.metadata}"


def repeats_passage(task: Task, text: str) -> bool:
    """A passage that holds the answer gets credit by containment (decision 0010)."""
    passage = task.row["input"].get("context", "")
    return bool(passage) and (passage in text or json.dumps(passage) in text)


PASSAGES = {name: task for name, task in TEXTS.items() if "context" in task.row["input"]}


@pytest.mark.parametrize("name", PASSAGES)
def test_a_082_attack_that_repeats_the_passage(name):
    """The record names the rule by which it got credit."""
    task = PASSAGES[name]
    result = scorer(task.family).verify(
        task.row["input"]["context"], task.row["input"], task.row["eval"]
    )
    assert not result.passed or result.metadata["match_strategy"] == "answer_span"


def contained(text: str, answer: object) -> bool:
    """A scorer that looks for the candidate in the answer."""
    return text.strip().lower() in str(answer).lower()


@pytest.mark.parametrize("name", TEXTS)
def test_a_082_twin_of_a_scorer(name):
    task = TEXTS[name]
    assert any(contained(text, task.row["eval"]) for text in nulls(task).values())


@pytest.mark.parametrize("name", cases(CODES, "code-completion-smoke/digit-sum"))
def test_a_082_attack_on_tests(name):
    row = CODES[name].row
    texts = ("{}", "pass", REFUSAL, row["input"]["prompt"], row["input"].get("starter_code", ""))
    for text in texts:
        assert judge(text, row["eval"]["tests"]["code"]).code == 1, text


def test_a_082_twin_of_tests():
    """A runner that only counts failed assertions finds none where nothing is asserted."""
    tests = "try:\n    assert answer(6) == 42\nexcept NameError: pass\n"
    assert naive("{}", tests).code == 0


REPOSITORIES = {task.name: task for task in tasks("repo_patch")}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_082_attack_on_a_repository(name):
    for text in nulls(REPOSITORIES[name]).values():
        judged = judge_patch(text, CandidatePolicy.of({}))
        assert judged.problem is not None
        assert not judged.text


GIVEN = {
    "empty": "pass",
    "blank": 'print(" \\n\\t")',
    "braces": 'print("{}")',
    "refusal": f"print({REFUSAL!r})",
    "echo": 'print(open("task.json").read())',
}
SUMS = {"accepted_answers": ["42"]}
FAMILIES = {
    "text": (Batch("f5-null-text", "short_answer"), {"grading": SUMS}),
    "choice": (
        Batch("f5-null-choice", "multiple_choice"),
        {"given": {"choices": ["3", "42"]}, "grading": {"answer": "B"}},
    ),
    "free": (
        Batch("f5-null-free", "free_response"),
        {"grading": {"rubric": {"accepted_answers": ["forty two"]}}},
    ),
    "code": (Batch("f5-null-code", "code_completion"), {"grading": CODE_TESTS}),
    "repo": (
        Batch("f5-null-repo", "repo_patch", defaults=REPO_DEFAULTS),
        {"given": REPO_INPUT, "grading": REPO_ROW["eval"]},
    ),
}
PRINTED = {
    f"{family} {null}": batch.task(f"{family}-{null}", agent=agent, **row)
    for family, (batch, row) in FAMILIES.items()
    for null, agent in GIVEN.items()
}
WORKSPACES = Batch("f5-null-workspace", "terminal_task", defaults=APP)
WRITTEN = {
    f"workspace {null}": WORKSPACES.task(
        null,
        agent=f'import sys\nsys.stdout = open("answer.txt", "w")\n{agent}\nsys.stdout.close()\n',
        grading=CHECK_ANSWER,
    )
    for null, agent in GIVEN.items()
}
NOTHING = WORKSPACES.task("nothing", grading=CHECK_ANSWER)
ALL: dict[str, Trial] = {**PRINTED, **WRITTEN, "workspace nothing": NOTHING}
SHORT = ("text empty", "text refusal")
EXISTS = WORKSPACES.task(
    "exists",
    agent='open("answer.txt", "w")',
    grading={"checker": {"command": "test -e answer.txt"}},
)


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(
            trial,
            marks=[pytest.mark.trials(trial), *([pytest.mark.short] if name in SHORT else [])],
            id=name,
        )
        for name, trial in ALL.items()
    ],
)
def test_a_082_attack_in_a_run(arena: Arena, trial) -> None:
    record = arena.record(trial)
    assert record["outcome"] in ("scored", "agent")
    assert (record["passed"], record["score"]) == (False, 0.0)
    assert arena.run(trial.batch)["status"]["score"]["passed"] == 0 or trial.batch is WORKSPACES


@pytest.mark.trials(EXISTS)
def test_a_082_twin_in_a_run(arena: Arena) -> None:
    assert arena.record(EXISTS)["passed"] is True


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(trial, marks=pytest.mark.trials(trial), id=trial.name)
        for trial in (TEXT, CHOICE, CODE, REPO, TERMINAL)
    ],
)
def test_a_082_honest(arena: Arena, trial) -> None:
    assert_passed(arena, trial)


def test_the_echo_holds_the_whole_task():
    task = next(iter(TEXTS.values()))
    assert json.loads(nulls(task)["the task"])["id"] == task.row["id"]
