"""Which commands may be asked for, with a log of every attempt (contract 10).

This serves auditing. It is not isolation: a permitted program may start any other one.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from securebench.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EVERYTHING = "*"
"""In the deny set: no command at all."""

Command: TypeAlias = "str | Sequence[str]"
T = TypeVar("T")


class CommandError(InvalidInputError, ValueError):
    """A command that is empty, cannot be read, or is refused."""


class CommandAttempt(NamedTuple):
    """One line of the log.

    Args:
        command: As it was asked for.
        name: Last path component of its first word; empty when there is none.
        allowed: Whether it was handed on.
        reason: Why not; empty when it was.
    """

    command: Command
    name: str
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """Names of executables that may or must not be asked for.

    Args:
        allow: Refuse every other name; empty for no such rule.
        deny: Refuse these names, also where they are allowed; ``*`` refuses everything.
    """

    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()

    def decide(self, command: Command) -> CommandAttempt:
        """Decide about a command.

        Args:
            command: An argv, or a string that is split as a shell would.

        Raises:
            CommandError: It has no first word.
        """
        name = executable_name(command)
        if EVERYTHING in self.deny or name in self.deny:
            return CommandAttempt(command, name, allowed=False, reason=f"{name!r} is denied")
        if self.allow and name not in self.allow:
            reason = f"{name!r} is not in allow list"
            return CommandAttempt(command, name, allowed=False, reason=reason)
        return CommandAttempt(command, name, allowed=True, reason="")


def executable_name(command: Command) -> str:
    """Return the last path component of a command's first word.

    Raises:
        CommandError: There is no first word, or the string's quotes do not match.
    """
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise CommandError(f"the command cannot be split: {error}") from None
    if not words:
        raise CommandError("the command is empty")
    return words[0].rpartition("/")[2]


class PolicySandbox(Generic[T]):
    """Hands permitted commands to a sandbox.

    Args:
        run: The sandbox: runs a command and returns its result, or something to await.
        policy: What may be asked for.
    """

    def __init__(self, run: Callable[[Command], T], policy: CommandPolicy) -> None:
        self.attempts: list[CommandAttempt] = []
        """Every attempt, in order, refused ones included."""
        self._run = run
        self._policy = policy

    def run(self, command: Command) -> T:
        """Run a command, or refuse it before the sandbox hears of it.

        Raises:
            CommandError: Refused, or it has no first word.
        """
        attempt = self._attempt(command)
        self.attempts.append(attempt)
        if not attempt.allowed:
            raise CommandError(f"command refused: {attempt.reason}", name=attempt.name)
        return self._run(command)

    def _attempt(self, command: Command) -> CommandAttempt:
        try:
            return self._policy.decide(command)
        except CommandError as error:
            return CommandAttempt(command, "", allowed=False, reason=error.reason)
