"""harbor_task: a Harbor task folder, whose tests write a reward.

No task file names the family: ``benchmark.files.folders`` makes its tasks from folders of the pack.
The agent gets the instruction alone. The files of ``tests`` are evaluation inputs; those of
``solution`` are hidden and copied for an oracle only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from securebench.benchmark.families.base import (
    Family,
    Field,
    FieldSection,
    RewardRequest,
    TaskView,
)
from securebench.benchmark.resources import Lane
from securebench.json_values import (
    OBJECT,
    PATTERNS,
    TEXT,
    as_number,
    described,
    object_at,
    object_in,
    object_of,
    text_at,
)
from securebench.protocol.candidate import ORACLE_FOLDER

INSTRUCTION = "instruction"
TESTS = "tests"
SOLUTION = "solution"
VERIFIER = "verifier"
"""Names of the resources; tests and solution are also the folders that they list."""

TEST_SCRIPT = "test.sh"
SOLVE_SCRIPT = "solve.sh"

CLOSED = "no-network"
"""The one mode of Harbor's networks that runs have."""

_SOLVE = """\
folder=/solution
mkdir -p "$folder" && cp -R {lane}/. "$folder"/ || folder={lane}
chmod +x "$folder"/{script} 2>/dev/null
export DEBIAN_FRONTEND=noninteractive
{exports}exec bash -c '("$0")' "$folder"/{script}
"""
"""Harbor has the solution in the container at that place, and runs it by bash."""


def listed_files(value: object) -> Sequence[str]:
    """Return the paths that the value of a resource lists."""
    files = object_in(value).get("files")
    return tuple(map(str, files)) if isinstance(files, Sequence) else ()


def _answer(task: TaskView) -> str | None:
    solution = task.resources.value(SOLUTION)
    if SOLVE_SCRIPT not in listed_files(solution):
        return None
    variables = object_at(object_in(solution), "env")
    exports = (f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())
    lane = f"{ORACLE_FOLDER}/{SOLUTION}"
    return _SOLVE.format(lane=lane, script=SOLVE_SCRIPT, exports="".join(exports))


def _record_metadata(task: TaskView) -> Mapping[str, object]:
    return {"script": TEST_SCRIPT, "asked_network": _networks(task)}


def _verifier(task: TaskView) -> Mapping[str, object]:
    return object_in(task.resources.value(VERIFIER))


def _network(environment: Mapping[str, object]) -> str:
    return text_at(object_at(environment, "network"), "mode")


def _networks(task: TaskView) -> Mapping[str, str]:
    verifier = object_at(_verifier(task), "environment")
    return {"agent": _network(task.environment), "verifier": _network(verifier)}


def _asked_network(task: TaskView) -> str:
    """Return who asks for what; a network mode that is not written is Harbor's default."""
    asked = {name: mode for name, mode in _networks(task).items() if mode not in ("", CLOSED)}
    return " and ".join(f"{mode} for the {name}" for name, mode in asked.items())


def _reward(task: TaskView) -> RewardRequest:
    verifier = _verifier(task)
    return RewardRequest(
        script=text_at(verifier, "script") or TEST_SCRIPT,
        environment=object_at(verifier, "environment"),
        timeout_seconds=as_number(verifier.get("timeout_seconds")),
        threshold=as_number(verifier.get("threshold", 1)) or 0.0,
    )


_FILES = object_of({"files": PATTERNS}, "files")

FAMILY = Family(
    name="harbor_task",
    candidate_kind="root",
    verification="reward",
    has_rows=False,
    input=FieldSection(
        "input",
        (
            Field(
                INSTRUCTION,
                described(TEXT, "Text of instruction.md.", "Write the names to sorted.txt."),
                required=True,
            ),
        ),
    ),
    eval=FieldSection(
        "eval",
        (
            Field(
                TESTS,
                described(_FILES, "Files of the folder `tests`.", {"files": [TEST_SCRIPT]}),
                required=True,
                lane=Lane.EVALUATION_INPUTS,
            ),
            Field(
                VERIFIER,
                described(OBJECT, "What the test script gets.", {"timeout_seconds": 600}),
                required=True,
                lane=Lane.HIDDEN,
            ),
            Field(
                SOLUTION,
                described(OBJECT, "Files of the folder `solution`.", {"files": [SOLVE_SCRIPT]}),
                lane=Lane.HIDDEN,
            ),
        ),
    ),
    required_resources=(INSTRUCTION, TESTS, VERIFIER),
    never_written=frozenset({VERIFIER, SOLUTION}),
    folders={TESTS: TESTS, SOLUTION: SOLUTION},
    answer=_answer,
    prompt=INSTRUCTION,
    asked_network=_asked_network,
    reward=_reward,
    record_metadata=_record_metadata,
)
