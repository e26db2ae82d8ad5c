"""Honest work, one trial per family: what the defences must let pass."""

from __future__ import annotations

import json
from pathlib import Path

from support.release import Raw
from threats.kit.arena import Arena
from threats.kit.batch import IMAGE, TASK_SECONDS, Batch, Trial

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REPO_TASK = "pathspec-match-file-none"
CODE_TESTS = {
    "tests": {"source": "inline", "code": "assert answer(6) == 42\nassert answer(0) == 0\n"}
}
RIGHT_CODE = "def answer(number):\n    return number * 7\n"
APP = {"environment": {"image": IMAGE, "workdir": "/app", "timeout_seconds": TASK_SECONDS}}
CHECK_ANSWER = {"checker": {"command": 'test "$(cat answer.txt)" = 42'}}
WRITE_ANSWER = 'open("answer.txt", "w").write("42\\n")\n'


def _line(path: str, task: str) -> Raw:
    lines = (BENCHMARKS / path).read_text(encoding="utf-8").splitlines()
    return next(row for row in map(json.loads, lines) if row["id"] == task)


REPO_ROW = _line("real-bugs-mini/tasks.jsonl", REPO_TASK)
REPO_DEFAULTS = {"environment": {**REPO_ROW["environment"], "workdir": "/testbed"}}
REPO_INPUT = {key: value for key, value in REPO_ROW["input"].items() if key != "instructions"}
_ORACLE = _line("real-bugs-mini/oracle/answers.jsonl", REPO_TASK)["command"]
GOLD_PATCH = _ORACLE.partition("\n")[2].removesuffix("EOF\n")
"""The patch that repairs the repository of the task."""

TEXT = Batch("honest-text", "short_answer").task(
    "text", candidate="4\n", grading={"accepted_answers": ["4"]}
)
CHOICE = Batch("honest-choice", "multiple_choice").task(
    "choice", candidate="B\n", given={"choices": ["3", "4"]}, grading={"answer": "B"}
)
CODE = Batch("honest-code", "code_completion").task(
    "code", candidate=RIGHT_CODE, grading=CODE_TESTS
)
TERMINAL = Batch("honest-terminal", "terminal_task", defaults=APP).task(
    "terminal", agent=WRITE_ANSWER, grading=CHECK_ANSWER
)
REPO = Batch("honest-repo", "repo_patch", defaults=REPO_DEFAULTS).task(
    "repo", candidate=GOLD_PATCH, given=REPO_INPUT, grading=REPO_ROW["eval"]
)


def assert_passed(arena: Arena, trial: Trial) -> None:
    """Assert that a trial passed at its first attempt."""
    record = arena.record(trial)
    seen = {key: record.get(key) for key in ("outcome", "passed", "failure_message")}
    assert (seen["outcome"], seen["passed"]) == ("scored", True), seen
