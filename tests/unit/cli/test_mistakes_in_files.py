"""Mistakes in the files of a user: what is printed, and the exit code.

Every case goes through the command line. What is printed is the whole of it, without the folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from securebench.agents.registry import AGENTS
from securebench.benchmark.files.bundle import BundleLimits
from support import fake_operator
from support.build import inline
from support.cli_shell import Shell
from support.fake_operator import OperatorRun
from support.operator_world import World

Mistake = Callable[[Path], None]

MANIFEST, TASKS, YAML = "pack/manifest.yaml", "pack/tasks.jsonl", "tester.yaml"
ROW = {"id": "a", "input": {"question": "a?"}, "eval": {"accepted_answers": ["x"]}}
CHOICE = {
    "id": "a",
    "family": "multiple_choice",
    "input": {"question": "?", "choices": ["x", "y"]},
    "eval": {"answer": 0},
}
FULL_MANIFEST = """\
id: capitals
version: 1
defaults:
  family: short_answer
  environment:
    image: python:3.11-slim
"""


def edit(name: str, old: str, new: str) -> Mistake:
    def mistake(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return mistake


def write(name: str, content: str | bytes) -> Mistake:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data) and None


def rows(*values: object) -> Mistake:
    return write(TASKS, "".join(f"{json.dumps(value)}\n" for value in values))


def many(count: int, **changes: object) -> list[dict[str, object]]:
    return [{**ROW, "id": f"t{number}", **changes} for number in range(1, count + 1)]


def without(row: dict[str, object], *keys: str) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in keys}


CONFIG = 'config: {command: "python3 answer.py"}'
IMAGE = '  environment: {image: "python:3.11-slim"}'
SECONDS = "a positive number of seconds, at most 31536000"

MISTAKES: dict[str, tuple[Mistake, list[str]]] = {
    "a time limit in quotes": (
        edit(MANIFEST, "-slim", '-slim", timeout_seconds: "60'),
        [
            (
                f"{MANIFEST}:5: environment.timeout_seconds must be {SECONDS}: write the number"
                " without quotes (defaults.environment.timeout_seconds; rows: 3)"
            )
        ],
    ),
    "a time limit beyond a Pod's": (
        edit(MANIFEST, '-slim"', '-slim", timeout_seconds: 1.0e+15'),
        [
            (
                f"{MANIFEST}:5: environment.timeout_seconds must be {SECONDS}"
                " (defaults.environment.timeout_seconds; rows: 3)"
            )
        ],
    ),
    "an image one level too high": (
        edit(MANIFEST, IMAGE, "  image: python:3.11-slim"),
        [
            (
                f"{MANIFEST}:3: benchmark environment.image is required: a non-empty string"
                " (defaults.environment.image; rows: 3); image stands under defaults: write it one"
                " level deeper, under environment"
            )
        ],
    ),
    "an answer that the agent would see": (
        rows({**ROW, "input": {"question": "a?", "answer": "x"}}),
        [
            (
                f"{TASKS}:1: task 'a' (short_answer): input.answer belongs to eval: the agent sees"
                " all of input"
            )
        ],
    ),
    "an id that is a number": (
        rows({**ROW, "id": 1}),
        [f"{TASKS}:1: benchmark row line 1.id must be a non-empty string: put it in quotes"],
    ),
    "a run's id that is a number": (
        edit(YAML, '"My run"', "7"),
        [f"{YAML}:2: run.id must be a non-empty string: put it in quotes"],
    ),
    "attempts in quotes": (
        edit(YAML, "run: {", 'run: {attempts: "3", '),
        [
            (
                f"{YAML}:2: run.attempts must be an integer from 1 to 100: write the number"
                " without quotes"
            )
        ],
    ),
    "an agent that is not here": (
        edit(YAML, "type: command", "type: openai"),
        [
            (
                f"{YAML}:5: harness.type must be one of {', '.join(sorted(AGENTS))}; for another"
                " agent write command, with harness.config.command and provider"
            )
        ],
    ),
    "yes as a command": (
        edit(YAML, CONFIG, "config: {command: yes}"),
        [
            (
                f"{YAML}:6: harness.config.command must be a non-empty string or a non-empty array"
                f" of non-empty strings: it is a boolean; put it in quotes"
            )
        ],
    ),
    "a command one level too high": (
        edit(YAML, CONFIG, "command: python3 answer.py"),
        [
            (
                f"{YAML}:6: harness contains unsupported field(s): command; write command one level"
                " deeper, under harness.config"
            )
        ],
    ),
    "variables as a mapping": (
        edit(YAML, "type: command", "type: command\n  env: {A: b}"),
        [
            (
                f"{YAML}:6: harness.env must be a list of names of environment variables: write"
                " one item per line, each after '- '"
            )
        ],
    ),
    "rows of another data set": (
        rows({"question": "q", "choices": ["a", "b"], "answer": 0}),
        [
            (
                f"{TASKS}:1: benchmark row line 1: a row has the keys id, input and eval; this one"
                " has 'question', 'choices', 'answer'"
            )
        ],
    ),
    "CSV": (
        write(TASKS, "id,question,answer\n1,a,b\n2,c,d\n"),
        [f"{TASKS}:1: this looks like CSV; write one JSON object per line"],
    ),
    "an answer that is no choice": (
        rows({**CHOICE, "eval": {"answer": "Paris"}}),
        [
            (
                f"{TASKS}:1: task 'a' (multiple_choice): eval.answer is no letter A to B, text or"
                " position (a number from 0) of a choice; correct it"
            )
        ],
    ),
    "a rubric that is a text": (
        rows({**ROW, "family": "free_response", "input": {"prompt": "p"}, "eval": {"rubric": "x"}}),
        [
            (
                f"{TASKS}:1: task 'a' (free_response): this task can never score: free_response"
                " requires a structured rubric (an object); correct eval of the row"
            )
        ],
    ),
    "a manifest for the tester YAML": (
        lambda folder: write(YAML, (folder / MANIFEST).read_bytes())(folder),
        [f"{YAML}: this is a pack's manifest; give the tester YAML that names it"],
    ),
    "duplicate id": (
        rows(ROW, {**ROW, "id": "b"}, ROW),
        [f"{TASKS}:3: duplicate task id 'a' on lines 1 and 3"],
    ),
    "wrong known family": (
        rows({**ROW, "family": "multiple_choice"}),
        [
            f"{TASKS}:1: task 'a' (multiple_choice): input.choices is required",
            f"{TASKS}:1: task 'a' (multiple_choice): eval.answer is required",
            (f"{TASKS}:1: task 'a' (multiple_choice): eval has unknown field(s): accepted_answers"),
        ],
    ),
    "answers missing": (
        rows({**ROW, "eval": {}}),
        [f"{TASKS}:1: task 'a' (short_answer): eval.accepted_answers is required"],
    ),
    "misspelt eval field": (
        rows({**ROW, "eval": {"accepted_answer": ["x"]}}),
        [
            (
                f"{TASKS}:1: task 'a' (short_answer): eval has unknown field(s): accepted_answer,"
                " did you mean 'accepted_answers'?"
            )
        ],
    ),
    "broken bracket in a row": (
        write(TASKS, '{"id": "a", "input": {"question": "a?"}\n'),
        [f"{TASKS}:1: invalid JSON: Expecting ',' delimiter (column 40)"],
    ),
    "comma behind a row": (
        write(TASKS, f"{json.dumps(ROW)},\n"),
        [
            (
                f"{TASKS}:1: invalid JSON: Extra data (column {len(json.dumps(ROW)) + 1});"
                " remove the comma behind the object"
            )
        ],
    ),
    "heredoc that is not indented": (
        edit(
            YAML,
            '{command: "python3 answer.py"}',
            "\n    command: |\n      cat <<EOF\nanswer\nEOF\n",
        ),
        [f"{YAML}:9: invalid YAML: the line has no ':'; indent the line like the block above it"],
    ),
    "broken bracket in the manifest": (
        edit(MANIFEST, "}", ""),
        [f"{MANIFEST}:6: invalid YAML: expected ',' or '}}', but got '<stream end>'"],
    ),
    "unquoted schema_version": (
        edit(YAML, '"0.2"', "0.2"),
        [f'{YAML}:1: schema_version must be a string: write "0.2" in quotes'],
    ),
    "harness type": (
        edit(YAML, "type: command", "type: comand_"),
        [
            (
                f"{YAML}:5: harness.type must be one of {', '.join(sorted(AGENTS))}, did you mean"
                " 'command'?"
            )
        ],
    ),
    "config key": (
        edit(YAML, "command: ", "task_file: t.json, time_out_seconds: 3, command: "),
        [
            (
                f"{YAML}:6: harness.config contains unsupported field(s): time_out_seconds,"
                " did you mean 'timeout_seconds'?"
            )
        ],
    ),
    "config key cut short": (
        edit(YAML, "command: ", "timeout: 3, command: "),
        [
            (
                f"{YAML}:6: harness.config contains unsupported field(s): timeout, did you mean"
                " 'timeout_seconds'?"
            )
        ],
    ),
    "misspelt section of the tester YAML": (
        edit(YAML, "harness:\n", "verificaton: {}\nharness:\n"),
        [
            (
                f"{YAML}:4: root contains unsupported field(s): verificaton, did you mean"
                " 'verification'?"
            )
        ],
    ),
    "section twice in the tester YAML": (
        edit(YAML, "harness:\n", "run: {id: x, output_dir: y}\nharness:\n"),
        [f"{YAML}:4: invalid YAML: duplicate key 'run'"],
    ),
    "manifest and task file elsewhere": (
        edit(YAML, "benchmark: {", "benchmark: {manifest: m.yaml, tasks: t.jsonl}\n#"),
        [
            (
                f"{YAML}:3: benchmark.{key}: there is no file {name}; the path is relative to the"
                " tester YAML"
            )
            for key, name in (("manifest", "m.yaml"), ("tasks", "t.jsonl"))
        ],
    ),
    "harness and files": (
        lambda folder: (
            edit(YAML, "config: {", "config: {x: 1, ")(folder),
            edit(YAML, "pack/tasks.jsonl", "t.jsonl")(folder),
        )[0],
        [
            f"{YAML}:6: harness.config contains unsupported field(s): x",
            (
                f"{YAML}:3: benchmark.tasks: there is no file t.jsonl; the path is relative to the"
                " tester YAML"
            ),
        ],
    ),
    "image with capitals and a blank": (
        edit(MANIFEST, '"python:3.11-slim"', '"Python:3.11 slim"'),
        [
            (
                f"{MANIFEST}:5: environment.image 'Python:3.11 slim' is no image reference: it"
                " holds a blank (defaults.environment.image; rows: 3)"
            )
        ],
    ),
    "asset that is not there": (
        rows({**ROW, "assets": [{"path": "notes.txt"}]}),
        [
            (
                f"{TASKS}:1: task 'a' (short_answer): asset source does not exist: assets[0].path"
                " 'notes.txt' below 'assets/'"
            )
        ],
    ),
    "default for defaults": (
        edit(MANIFEST, "defaults:", "default:"),
        [f"{MANIFEST}:3: unknown manifest key 'default', did you mean 'defaults'?"],
    ),
    "runs for run": (
        edit(YAML, "run: {", "runs: {"),
        [f"{YAML}:2: root contains unsupported field(s): runs, did you mean 'run'?"],
    ),
    "misspelt key below run": (
        edit(YAML, "output_dir", "output-dir"),
        [f"{YAML}:2: run contains unsupported field(s): output-dir, did you mean 'output_dir'?"],
    ),
    "indentation": (
        write(MANIFEST, FULL_MANIFEST.replace("  environment", " environment")),
        [
            (
                f"{MANIFEST}:5: invalid YAML: the line is indented otherwise than those that it"
                " belongs to"
            )
        ],
    ),
    "deeper indentation": (
        write(MANIFEST, FULL_MANIFEST.replace("  environment", "    environment")),
        [
            (
                f"{MANIFEST}:5: invalid YAML: a key cannot stand here; indent the line like those"
                " beside it, put a blank behind every ':' and quotes around text that holds ': '"
            )
        ],
    ),
    "tab": (
        write(MANIFEST, FULL_MANIFEST.replace("    image", "\timage")),
        [f"{MANIFEST}:6: invalid YAML: a tab in the indentation; indent with spaces"],
    ),
    "tab in the tester YAML": (
        edit(YAML, "  type", "\ttype"),
        [f"{YAML}:5: invalid YAML: a tab in the indentation; indent with spaces"],
    ),
    "mis-indented heredoc": (
        write(MANIFEST, "    id: capitals\n    version: 1\ndefaults:\n  family: short_answer\n"),
        [f"{MANIFEST}:3: invalid YAML: the line is indented otherwise than those before it"],
    ),
    "open quote": (
        write(MANIFEST, 'id: capitals\nversion: 1\ndefaults: {family: "short_answer}\n'),
        [f"{MANIFEST}:3: invalid YAML: the quote that is opened here is never closed"],
    ),
    "UTF-16 in JSONL": (
        write(TASKS, json.dumps(ROW).encode("utf-16")),
        [f"{TASKS}:1: the file is UTF-16; save it as UTF-8"],
    ),
    "UTF-16 in the manifest": (
        write(MANIFEST, FULL_MANIFEST.encode("utf-16")),
        [f"{MANIFEST}:1: the file is UTF-16; save it as UTF-8"],
    ),
    "Latin-1 in the manifest": (
        write(MANIFEST, b"version: 1\nid: f\xfcr\n"),
        [f"{MANIFEST}:2: not UTF-8 text; save the file as UTF-8"],
    ),
    "no image": (
        write(MANIFEST, "id: capitals\nversion: 1\ndefaults:\n  family: short_answer\n"),
        [
            (
                f"{MANIFEST}:3: benchmark environment.image is required: a non-empty string"
                " (defaults.environment.image; rows: 3)"
            )
        ],
    ),
    "imgae": (
        edit(MANIFEST, "image", "imgae"),
        [f"{MANIFEST}:5: unknown key 'imgae' in environment, did you mean 'image'?"],
    ),
    "imgae in every row": (
        rows(*many(3, environment={"imgae": "x"})),
        [
            (
                f"{TASKS}:1: task 't1' (short_answer): unknown key 'imgae' in environment, did you"
                " mean 'image'? (the same in 2 more rows: line 2, 3)"
            )
        ],
    ),
    "inputs for input": (
        rows(*({**without(row, "input"), "inputs": row["input"]} for row in many(38))),
        [
            (
                f"{TASKS}:1: benchmark row line 1: unknown key 'inputs', did you mean 'input'?"
                " (the same in 37 more rows: line 2, 3, 4, 5, 6, …)"
            )
        ],
    ),
    "family short-answer": (
        rows(*many(2, family="short-answer")),
        [
            (
                f"{TASKS}:1: task 't1' (short-answer): unknown family 'short-answer', did you mean"
                " 'short_answer'? (the same in 1 more row: line 2)"
            )
        ],
    ),
    "family short-answer in the manifest": (
        edit(MANIFEST, "short_answer", "short-answer"),
        [f"{MANIFEST}:4: unknown family 'short-answer', did you mean 'short_answer'?"],
    ),
    "empty tasks.jsonl": (
        write(TASKS, ""),
        [f"{TASKS}: the file has no task; write one JSON object per line"],
    ),
    "blank tasks.jsonl": (
        write(TASKS, "\n\n"),
        [f"{TASKS}: the file has no task; write one JSON object per line"],
    ),
    "task file is one JSON array": (
        write(TASKS, json.dumps(many(3), indent=2)),
        [
            (
                f"{TASKS}:1: benchmark row must be an object: write one object per line, not one"
                " JSON array"
            )
        ],
    ),
    "rows on several lines": (
        write(TASKS, "\n".join(json.dumps(row, indent=2) for row in many(2))),
        [f"{TASKS}:1: a row lies on several lines; write one object per line"],
    ),
    "misspelt candidate_policy": (
        rows(
            {
                "id": "p",
                "family": "repo_patch",
                "input": {"repo": "r", "base_commit": "c", "instructions": "i"},
                "eval": {
                    "tests": {"source": "command", "command": "x", "workdir": "/w"},
                    "candidate_polcy": {"allow_paths": ["src"]},
                },
            }
        ),
        [
            (
                f"{TASKS}:1: task 'p' (repo_patch): eval has unknown field(s): candidate_polcy,"
                " did you mean 'candidate_policy'?"
            )
        ],
    ),
    "misspelt asset key": (
        rows({**ROW, "assets": [{"path": "x", "readonly": True}]}),
        [
            (
                f"{TASKS}:1: benchmark row line 1.assets[0] has unknown field(s): readonly,"
                " did you mean 'read_only'?"
            )
        ],
    ),
}


@pytest.mark.parametrize("command", ["run", "pack lint"])
@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_clear_line(shell: Shell, case: str, command: str) -> None:
    mistake, want = MISTAKES[case]
    mistake(shell.folder)
    result = shell(*command.split(), "--config", str(shell.yaml))
    said = result.stdout.replace(f"{shell.folder}/", "").splitlines()
    errors = [line for line in said if line.startswith("securebench: error: ")]
    assert errors == [f"securebench: error: {line}" for line in want]
    assert result.code == 1
    assert shell.places == [], "something was started"


def graded_by(checker: object) -> Mistake:
    return rows(
        {
            "id": "t",
            "family": "terminal_task",
            "input": {"instructions": "i"},
            "eval": {"checker": checker},
        }
    )


def hidden(name: str, content: str, checker: object) -> Mistake:
    def mistake(folder: Path) -> None:
        (folder / "pack/hidden").mkdir()
        (folder / "pack/hidden" / name).write_text(content)
        graded_by(checker)(folder)

    return mistake


PATCH = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n"
PYTEST = {"source": "pytest", "path": "test_x.py"}
GRADERS: dict[str, tuple[Mistake, str]] = {
    "hidden test with a SyntaxError": (
        hidden("test_x.py", "def test_x(:\n", PYTEST),
        "task 't' (terminal_task): test_x.py, line 1: invalid syntax; correct it",
    ),
    "pytest file without a test": (
        hidden("test_x.py", "x = 1\n", PYTEST),
        (
            "task 't' (terminal_task): test_x.py holds no test that pytest could find: no function"
            " test_…, no class Test…; correct it"
        ),
    ),
    "checker's program missing": (
        graded_by({"command": "python3 securebench/evaluation_inputs/check.py"}),
        (
            "task 't' (terminal_task): eval.checker.command names"
            " 'securebench/evaluation_inputs/check.py', which the task has not: bring it by"
            " eval.test_files or eval.run_tests; correct it"
        ),
    ),
    "test_patch with a malformed hunk": (
        rows(
            {
                "id": "p",
                "family": "repo_patch",
                "input": {"repo": "r", "base_commit": "c", "instructions": "i"},
                "eval": {
                    "tests": {
                        "source": "command",
                        "command": "pytest",
                        "workdir": "/w",
                        "test_patch": PATCH,
                        "candidate_policy": {"allow_paths": ["x"]},
                    }
                },
            }
        ),
        (
            "task 'p' (repo_patch): eval.tests.test_patch, line 4: hunk 1 of x announces 1 old and"
            " 1 new lines, and 0 and 1 of them are missing; correct it"
        ),
    ),
}


@pytest.mark.parametrize("case", GRADERS)
def test_a_broken_grader_is_an_error_of_lint(shell: Shell, case: str) -> None:
    mistake, want = GRADERS[case]
    mistake(shell.folder)
    result = shell("pack", "lint", "--config", str(shell.yaml))
    said = result.stdout.replace(f"{shell.folder}/", "").splitlines()
    assert said[0] == f"securebench: error: {TASKS}:1: {want}"
    assert (result.code, said[-1]) == (1, "securebench: pack lint errors=1 warnings=1")


def big_row(folder: Path) -> None:
    rows(*many(2), {**ROW, "id": "big", "input": {"question": "q" * 5_000_000}})(folder)


WORKS: dict[str, Mistake] = {
    "CRLF": lambda folder: (
        write(TASKS, (folder / TASKS).read_text().replace("\n", "\r\n"))(folder),
        write(MANIFEST, (folder / MANIFEST).read_text().replace("\n", "\r\n"))(folder),
    )[0],
    "a row of 5 MB": big_row,
    "UTF-8 with a mark": lambda folder: (
        write(TASKS, "\ufeff" + (folder / TASKS).read_text())(folder),
        write(MANIFEST, "\ufeff" + (folder / MANIFEST).read_text())(folder),
        write(YAML, "\ufeff" + (folder / YAML).read_text())(folder),
    )[0],
}


@pytest.mark.parametrize("case", WORKS)
def test_what_is_no_mistake_runs(shell: Shell, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_operator, "LIMITS", BundleLimits(100, 10_000_000))
    WORKS[case](shell.folder)
    linted = shell("pack", "lint", "--config", str(shell.yaml))
    assert (linted.code, linted.last) == (0, "securebench: pack lint errors=0 warnings=1")
    result = shell.run()
    assert result.code == 0
    assert "verified=3 passed=2" in result.last


# Selector, digest and variables


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with mock.patch.object(asyncio, "to_thread", inline):
        made = World(tmp_path / "world")
        yield made
        made.runner.run(made.supervisor.close())
        made.runner.close()


def ended(shell: Shell, world: World) -> tuple[int, str]:
    """Return exit code and last line of a tester whose run ends as the operator's world says."""
    condition = world.condition()
    reason, message = condition["reason"], condition["message"]

    async def script(run: OperatorRun) -> None:
        await run.status(reason, message)

    shell.script = script
    result = shell.run()
    _, _, said = result.last.partition(" ended with ")
    return result.code, said


@pytest.mark.parametrize("selector", [{"include": ["x*"]}, {"exclude": ["*"]}])
def test_a_selector_that_matches_nothing(
    shell: Shell, world: World, selector: dict[str, object]
) -> None:
    world.apply(taskSelector=selector)
    want = "InvalidSpec: spec.taskSelector matches none of 2 tasks"
    assert ended(shell, world) == (1, want)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_nothing(shell: Shell, limit: int) -> None:
    result = shell.run("--limit", str(limit))
    assert (result.code, result.last) == (
        1,
        f"securebench: error: limit must be at least 1: {limit}",
    )
    assert shell.places == []


def test_a_limit_of_0_in_a_benchmarkrun(shell: Shell, world: World) -> None:
    world.apply(taskSelector={"limit": 0})
    code, said = ended(shell, world)
    assert code == 1
    assert said.startswith("InvalidSpec: ")
    assert "greater than or equal to 1" in said


def test_a_digest_that_differs(shell: Shell, world: World) -> None:
    pinned = f"sha256:{'0' * 64}"
    world.apply(pack={"volume": {"path": "smoke"}, "digest": pinned})
    code, said = ended(shell, world)
    assert code == 1
    assert said.startswith("PackInvalid: the pack has digest sha256:")
    assert f"spec.pack.digest says {pinned}; push the pack again, or pin the digest" in said


def test_a_variable_without_a_value_is_one_warning(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "[NOT_EXPORTED, GIVEN, EMPTY, NOT_EXPORTED, FROM_FILE]"
    edit(YAML, "type: command", f"type: command\n  env: {names}")(shell.folder)
    write(".env", "FROM_FILE=x\n")(shell.folder)
    monkeypatch.setenv("GIVEN", "x")
    monkeypatch.setenv("EMPTY", "")
    result = shell.run()
    warnings = [line for line in result.stderr.splitlines() if "warning" in line]
    assert warnings == [
        (
            f"securebench: warning: harness.env: {name} is not set, so the harness runs without it;"
            " set it in the environment or in .env"
        )
        for name in ("NOT_EXPORTED", "EMPTY")
    ]
    assert result.code == 0
