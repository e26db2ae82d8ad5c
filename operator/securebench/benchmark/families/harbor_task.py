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
    WantedArtifact,
    texts_in,
)
from securebench.benchmark.resources import Lane
from securebench.json_values import (
    OBJECT,
    TEXT,
    as_number,
    described,
    object_at,
    object_in,
    object_of,
    objects_at,
    text_at,
)
from securebench.protocol.candidate import ORACLE_FOLDER

INSTRUCTION = "instruction"
TESTS = "tests"
SOLUTION = "solution"
VERIFIER = "verifier"
"""Names of the resources; tests and solution are also the folders that they list."""

HARBOR = "harbor"
TASK_FOLDER = "folder"
NETWORKS = "networks"
HOSTS = "hosts"
TASK_DIGEST = "digest"
"""Key of a task's metadata with what its folder says; below it the folder in the pack, empty where
the pack is that folder, the modes that agent and verifier ask for, the hosts of the agent, and
Harbor's digest of the task."""

TEST_SCRIPT = "test.sh"
SOLVE_SCRIPT = "solve.sh"

CLOSED, LISTED = "no-network", "allowlist"
"""Modes of Harbor's networks besides ``public``."""

_SOLVE = """\
folder=/solution
{{ mkdir -p "$folder" && cp -R {lane}/. "$folder"/; }} 2>/dev/null || folder={lane}
chmod +x "$folder"/{script} 2>/dev/null
export DEBIAN_FRONTEND=noninteractive
{exports}exec bash -c '("$0")' "$folder"/{script}
"""
"""Harbor has the solution in the container at that place, and runs it by bash."""


def listed_files(value: object) -> Sequence[str]:
    """Return the paths that the value of a resource lists.

    Each stands below a key ``path``: names of files are no secrets that records must not have.
    """
    return tuple(text_at(file, "path") for file in objects_at(object_in(value), "files"))


def _answer(task: TaskView) -> str | None:
    solution = task.resources.value(SOLUTION)
    if SOLVE_SCRIPT not in listed_files(solution):
        return None
    variables = object_at(object_in(solution), "env")
    exports = (f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())
    lane = f"{ORACLE_FOLDER}/{SOLUTION}"
    return _SOLVE.format(lane=lane, script=SOLVE_SCRIPT, exports="".join(exports))


def _record_metadata(task: TaskView) -> Mapping[str, object]:
    digest = text_at(object_at(task.metadata, HARBOR), TASK_DIGEST)
    known: dict[str, object] = {"task_digest": digest} if digest else {}
    verifier = _verifier(task)
    if "artifacts" in verifier:
        sources = [text_at(each, "source") for each in objects_at(verifier, "artifacts")]
        known["artifacts"] = sources
    return {"script": TEST_SCRIPT, "asked_network": _networks(task), **known}


def _verifier(task: TaskView) -> Mapping[str, object]:
    return object_in(task.resources.value(VERIFIER))


def _networks(task: TaskView) -> Mapping[str, object]:
    return object_at(object_at(task.metadata, HARBOR), NETWORKS)


def _asked_network(task: TaskView, domains: Sequence[str]) -> str:
    """Return who asks for what; a network mode that is not written is Harbor's default.

    The hosts of an agent's list may be among the domains of the run, which the user opens.
    """
    asked = {name: mode for name, mode in _networks(task).items() if mode not in ("", CLOSED)}
    hosts = texts_in(object_at(task.metadata, HARBOR), HOSTS)
    if asked.get("agent") == LISTED:
        missing = [host for host in hosts if not _is_open(host, domains)]
        if missing:
            asked["agent"] = f"{LISTED} ({', '.join(missing)})"
        else:
            del asked["agent"]
    return " and ".join(f"{mode} for the {name}" for name, mode in asked.items())


def _is_open(host: str, domains: Sequence[str]) -> bool:
    """Whether a host of a list, a name or ``*.name``, is at or below one of these domains."""
    name = host.removeprefix("*.")
    return any(name == domain or name.endswith(f".{domain}") for domain in domains)


def _reward(task: TaskView) -> RewardRequest:
    verifier = _verifier(task)
    environment = object_at(verifier, "environment")
    is_separate = "artifacts" in verifier
    above = {} if is_separate else object_at(task.environment, "env")
    variables = {**above, **object_at(environment, "env")}
    threshold = as_number(verifier.get("threshold"))
    return RewardRequest(
        script=TEST_SCRIPT,
        environment={**environment, "env": variables, **_own_image(verifier)},
        timeout_seconds=as_number(verifier.get("timeout_seconds")),
        threshold=1.0 if threshold is None else threshold,
        artifacts=_artifacts(verifier) if is_separate else None,
        brings_tests=verifier.get("brings_tests") is True,
    )


def _own_image(verifier: Mapping[str, object]) -> Mapping[str, object]:
    """Return the image of a separate verifier; its name is no secret of records."""
    image = text_at(object_at(verifier, "image"), "path")
    return {"image": image} if image else {}


def _artifacts(verifier: Mapping[str, object]) -> tuple[WantedArtifact, ...]:
    return tuple(
        WantedArtifact(
            text_at(each, "source"),
            tuple(text_at(pattern, "path") for pattern in objects_at(each, "exclude")),
        )
        for each in objects_at(verifier, "artifacts")
    )


_FILES = object_of(
    {"files": {"type": "array", "items": object_of({"path": TEXT}, "path")}}, "files"
)


def _only(file: str) -> Mapping[str, object]:
    return {"files": [{"path": file}]}


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
                described(
                    _FILES, "Files of the folder `tests`.", {"files": [{"path": TEST_SCRIPT}]}
                ),
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
                described(
                    OBJECT, "Files of the folder `solution`.", {"files": [{"path": SOLVE_SCRIPT}]}
                ),
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
