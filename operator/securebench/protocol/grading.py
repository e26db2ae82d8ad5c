"""What manifests and the programs of verifiers share: the batch of a text verifier, and names.

Programs of task images run alone, without this package: they repeat what they need of it, and a
test compares (tests/unit/run/pods/test_task_programs.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from securebench.protocol.messages import MAX_MESSAGE_BYTES, VERSION, decode_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.protocol.messages import DigestedPath

TESTS_INCOMPLETE = "hidden tests did not complete"
"""Said where the candidate of code_completion ended before its tests (contract 14.4)."""

RUNNER_VARIABLE = "SECUREBENCH_PYTEST"
"""Environment variable with the text of the program that counts a repository's tests."""

ROW_VARIABLE = "SECUREBENCH_TESTS"
"""Environment variable that says to this program what a row says of its tests, as JSON."""


class Grading(StrEnum):
    """What a verdict rests on; no text that a scorer compared has one."""

    VALUES = "values"
    """Tests of code_completion compared plain values alone."""
    OBJECTS = "objects"
    """An object of the candidate stood between its tests and a value."""
    IN_PROCESS = "in-process"
    """Tests and candidate ran in one interpreter (``tests.isolation: shared``)."""
    TESTS = "tests"
    """Our runner counted the tests, beside which candidate code may have run."""
    EXIT_CODE = "exit-code"
    """Nothing but the exit code of a command or script."""
    REWARD_FILE = "reward-file"
    """A file that a script of the pack left in a container with files of the candidate."""
    REWARD_FILE_ROOT = "reward-file-root"
    """The same, where the candidate's files may be programs that the script uses."""
    REWARD_FILE_ARTIFACTS = "reward-file-artifacts"
    """The same, where nothing of the agent's container but its artifacts came to the script."""


REWARDS = frozenset({Grading.REWARD_FILE, Grading.REWARD_FILE_ROOT, Grading.REWARD_FILE_ARTIFACTS})
"""Gradings of which scores are any finite numbers."""


REWARD_FILE = "reward"
"""Of a verification: what supervise found as the reward of a script."""

VERDICTS_FOLDER = "/work/verdicts"
"""In the verifier of a batch, which can write it."""
VERDICTS_FILE = "verdicts.json"

MEMBER_SECONDS = 5
"""Time for the judgement of one member of a batch."""

MEMBER_BYTES = 2 * MAX_MESSAGE_BYTES
"""Size of a member's message in the file, as text in JSON."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One candidate that the text verifier judges.

    Attributes:
        name: Unique among the members.
        family: Family of the task.
        candidate: File with the sealed text.
        hidden: Folder with the task's hidden values.
    """

    name: str
    family: str
    candidate: DigestedPath
    hidden: DigestedPath


@dataclass(frozen=True, slots=True)
class TextSpec:
    """Input of ``grading.verify_text``: at least one member; more than one is a batch."""

    members: tuple[MemberSpec, ...]


def encode_verdicts(messages: Mapping[str, str]) -> bytes:
    """Return the verdict file: members' termination messages by name, as canonical JSON."""
    content = {"v": VERSION, "verdicts": dict(messages)}
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode("ascii")


def decode_verdicts(data: bytes) -> Mapping[str, str]:
    """Return members' termination messages by name.

    Raises:
        ValueError: It is no verdict file.
    """
    content = decode_object(data)
    verdicts = content.get("verdicts")
    if set(content) != {"v", "verdicts"} or content["v"] != VERSION:
        raise ValueError("no verdict file of this version")
    if not isinstance(verdicts, dict) or not all(
        isinstance(message, str) for message in verdicts.values()
    ):
        raise ValueError("a verdict file holds one message for each member")
    return verdicts
