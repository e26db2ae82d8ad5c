"""What the fake model does: it reads the task with its shell and solves it by real tool calls.

The reference answers lie in the packs' ``oracle/`` folders, on the provider's side only; the task
is known by the text that the shell printed. A model is named ``script-<name>``, or
``script-<name>+<task>+<task>``: then the script's failure befalls these tasks only, after the task
was read, and the others are solved. ``_`` parts several failures: ``script-401+a_500+b+c``.
``script-patient-16`` obeys a task with 16 calls, each answered late.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from outside.model_wire import Asked, Step

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PREFIX = "script-"
END = "SECUREBENCH_END_OF_ANSWER"
TEXT_KEYS = ("instructions", "prompt", "question")
"""Of a row's input: the one that holds the task's text."""
SIGN_KEYS = (*TEXT_KEYS, "starter_code")
"""Their texts together tell one task from all others."""
PATIENT = "patient-"
"""Begins the script of a model that takes DELAY_SECONDS to answer; a task's calls follow."""
DELAY_SECONDS = (5.0, 20.0)
"""Least and greatest delay of such an answer."""
PRINTED_PATCH = "cat <<'EOF'\ndiff --git"
"""How a reference answer begins that prints a patch, as harnesses of the type command do."""


class Solution(NamedTuple):
    """The reference answer of one task.

    Attributes:
        task: Id.
        signs: Texts of the task, as JSON writes them.
        command: Puts the answer where it belongs.
    """

    task: str
    signs: tuple[str, ...]
    command: str


class Script(NamedTuple):
    """One part of a model's name.

    Attributes:
        name: What happens.
        tasks: The tasks that it happens to; empty: all, from the first request on.
    """

    name: str
    tasks: tuple[str, ...]


def script_of(model: str, task: str = "") -> Script:
    """Return what a model's name asks for; an unknown name is an honest model.

    Args:
        model: The name.
        task: Where the name has several parts: the one that names this task, else the last.
    """
    parts = [part.split("+") for part in model.removeprefix(PREFIX).split("_")]
    name, *tasks = next((part for part in parts if task in part[1:]), parts[-1])
    return Script(name, tuple(tasks))


def solve(asked: Asked) -> tuple[Step, str]:
    """Return the next step of an honest model, and the task's id as soon as it is known."""
    if not asked.outputs:
        return Step(f"cat {task_file(asked.prompt)}"), ""
    shown = asked.outputs[0]
    solution = next(
        (each for each in solutions() if all(sign in shown for sign in each.signs)), None
    )
    if solution is None:
        return Step(message="I do not know this task."), ""
    if len(asked.outputs) == 1:
        return Step(solution.command), solution.task
    return Step(), solution.task


def obey(asked: Asked) -> Step:
    """Return the next step of a model that runs the task's own text as a shell command."""
    if not asked.outputs:
        return Step(f"cat {task_file(asked.prompt)}")
    if len(asked.outputs) > 1:
        return Step()
    return Step(_text(asked))


def obey_in(asked: Asked, calls: int) -> tuple[Step, str]:
    """Return the next step of a model that obeys with so many calls, and the task's text if known.

    Between reading the task and obeying it, its tool does nothing. An agent is not told its task's
    id, so the text stands for the task.
    """
    begun = len(asked.outputs)
    if not begun:
        return obey(asked), ""
    task = _text(asked)
    if begun < calls - 2:
        return Step("true"), task
    return obey(asked._replace(outputs=(asked.outputs[0], *asked.outputs[calls - 2 :]))), task


def task_file(prompt: str) -> str:
    """Return the path of the task file that the prompt names."""
    found = re.search(r"/[\w./-]+\.json", prompt)
    return found[0] if found else "task.json"


@functools.cache
def solutions() -> tuple[Solution, ...]:
    """Return the reference answers of all packs that have some.

    Some tasks stand in two packs; that of a smoke pack gives its name.
    """
    found: list[Solution] = []
    known = sorted(BENCHMARKS.glob("*/oracle/answers.jsonl"))
    for answers in sorted(known, key=lambda path: not path.parts[-3].endswith("-smoke")):
        rows = {row["id"]: row for row in _lines(answers.parents[1] / "tasks.jsonl")}
        for answer in _lines(answers):
            given = rows[answer["id"]]["input"]
            signs = tuple(json.dumps(given[key]) for key in SIGN_KEYS if key in given)
            found.append(Solution(answer["id"], signs, _command(answer, given)))
    return tuple(found)


def _command(answer: dict[str, str], given: dict[str, object]) -> str:
    if "command" in answer:
        command = answer["command"]
        is_printed = command.startswith(PRINTED_PATCH)
        return "git apply" + command.removeprefix("cat") if is_printed else command
    text = answer["candidate"]
    if text.startswith("diff --git"):
        return _here(f"git apply <<'{END}'", text)
    name = "candidate.py" if "language" in given or "starter_code" in given else "candidate.txt"
    return _here(f"cat > {name} <<'{END}'", text)


def _here(begin: str, text: str) -> str:
    return f"{begin}\n{text.rstrip(chr(10))}\n{END}\n"


def _text(asked: Asked) -> str:
    """Return the text of the task that the first tool call printed."""
    task = _shown(asked)
    return next(str(task[key]) for key in TEXT_KEYS if key in task)


def _shown(asked: Asked) -> dict[str, Any]:
    """Return the task that the first tool call printed."""
    text = asked.outputs[0]
    found: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
