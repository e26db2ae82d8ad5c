"""The calls by which the command line asks the operator's Pod, and the marks that they carry.

A mark says what the asker has already. Source: docs/reference/protocol.md, exec.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple, Self

from securebench.errors import InvalidInputError
from securebench.sizes import MIB

MAX_ANSWER_BYTES = 64 * MIB
"""Most bytes of one answer; the rest is asked for again."""


class Operation(StrEnum):
    """First argument of a call."""

    PUT_PACK = "put-pack"
    SHOW_PACK = "show-pack"
    LIST_PACKS = "list-packs"
    REMOVE_PACK = "remove-pack"
    PUT_AUDIT = "put-audit"
    GET_RUN = "get-run"
    FIND_RUN = "find-run"
    FIND_NAMED = "find-named"
    GET_LOG = "get-log"
    GET_LAUNCHES = "get-launches"
    GET_LIVE = "get-live"
    GET_ACTIVE = "get-active"
    GET_OUTPUT = "get-output"
    LIST_TASKS = "list-tasks"


PACK_OPERATIONS: Final = frozenset(
    {Operation.PUT_PACK, Operation.SHOW_PACK, Operation.LIST_PACKS, Operation.REMOVE_PACK}
)
"""Calls about uploaded packs."""

UNKNOWN_OPERATION: Final = "operator-io does not know this operation; the versions differ"

WATCH_OPERATIONS: Final = frozenset(
    {
        Operation.GET_LAUNCHES,
        Operation.GET_LIVE,
        Operation.GET_ACTIVE,
        Operation.GET_OUTPUT,
        Operation.LIST_TASKS,
    }
)
"""Calls about a run that is under way."""

NEAR_LIMITS: Final = "near-limits"
"""Second word of ``get-launches`` after an empty task: also passed attempts that met a limit."""

_PREFIX: Final = re.compile(r"(0|[1-9][0-9]{0,14}):([0-9a-f]{64})")
_LIVE: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9}):(\d{1,9})", re.ASCII)
_OUTPUT: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(stdout|stderr):(\d{1,9})", re.ASCII)


class PrefixMark(NamedTuple):
    """A prefix of a file.

    Args:
        offset: Its length in bytes.
        sha256: Hex SHA-256 of these bytes.
    """

    offset: int
    sha256: str

    def encode(self) -> str:
        """Return it as an argument of ``get-run``."""
        return f"{self.offset}:{self.sha256}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the mark of an argument.

        Raises:
            InvalidInputError: It has another form.
        """
        offset, sha256 = _matched(_PREFIX, text, "a mark must be OFFSET:SHA256")
        return cls(int(offset), sha256)


class LaunchNumbers(NamedTuple):
    """Which launch; tasks count from 0 in pack order, attempts and launches from 1."""

    task: int
    attempt: int
    launch: int


class LiveMark(NamedTuple):
    """How many bytes of a launch's live output were received."""

    launch: LaunchNumbers
    offset: int

    def encode(self) -> str:
        """Return it as an argument of ``get-live``."""
        task, attempt, launch = self.launch
        return f"{task}.{attempt}.{launch}:{self.offset}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the mark of an argument.

        Raises:
            InvalidInputError: It has another form.
        """
        form = "a mark of live output must be TASK.ATTEMPT.LAUNCH:OFFSET"
        task, attempt, launch, offset = map(int, _matched(_LIVE, text, form))
        return cls(LaunchNumbers(task, attempt, launch), offset)


class OutputMark(NamedTuple):
    """How many bytes of a stream of a launch of one task were received."""

    attempt: int
    launch: int
    stream: str
    offset: int

    def encode(self) -> str:
        """Return it as an argument of ``get-output``."""
        return f"{self.attempt}.{self.launch}.{self.stream}:{self.offset}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the mark of an argument.

        Raises:
            InvalidInputError: It has another form.
        """
        form = "a mark of output must be ATTEMPT.LAUNCH.STREAM:OFFSET"
        attempt, launch, stream, offset = _matched(_OUTPUT, text, form)
        return cls(int(attempt), int(launch), stream, int(offset))


def _matched(pattern: re.Pattern[str], text: str, form: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise InvalidInputError(form)
    return match.groups()
