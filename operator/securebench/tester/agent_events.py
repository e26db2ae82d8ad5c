"""What codex and Claude Code print, as lines for a person (contract 16.3); pure.

Agent output is untrusted: events of any form are taken, nothing of it is printed raw, and every
line has a bound.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from securebench.tester.text import printable

_SHOWN_COMMAND: Final = 300
_TRACED_COMMAND: Final = 220
"""Characters of a command on the terminal and in the trace (contract 16.3)."""

_LINE: Final = 4000
"""Characters of any other line."""

_REMEMBERED: Final = 1000
"""Commands of Claude Code whose end is still to come."""

_CODEX_EXEC: Final = "codex exec"
_EXIT_CODE: Final = re.compile(r"Exit code (\d{1,3})\b")


class AgentName(StrEnum):
    """The tools whose events are understood; what their lines begin with."""

    CODEX = "codex"
    CLAUDE = "claude"


class TraceLine(NamedTuple):
    """One line about an agent.

    Args:
        text: Without control characters.
        is_shown: Whether it goes to the terminal too.
    """

    text: str
    is_shown: bool


def agent_name(harness_type: str, command: str) -> AgentName | None:
    """Return whose events a harness prints, or None for output that is only recorded.

    Args:
        harness_type: Of the tester YAML.
        command: The command of a command harness as one text, else empty.
    """
    known = {"codex": AgentName.CODEX, "claude_code": AgentName.CLAUDE}
    if harness_type in known:
        return known[harness_type]
    return AgentName.CODEX if _CODEX_EXEC in command else None


class EventReader:
    """Reads one agent's stdout line by line.

    Args:
        agent: Whose events they are.
    """

    def __init__(self, agent: AgentName) -> None:
        self._agent = agent
        self._events = _Claude() if agent is AgentName.CLAUDE else _Codex()

    def lines(self, line: str) -> Iterator[TraceLine]:
        """Yield what a line says; most events say nothing."""
        event = _event(line)
        if event is not None:
            yield from self._events.lines(event)
        elif line.strip():
            yield _line(f"{self._agent}: {line}")


def is_event(line: str) -> bool:
    """Whether a line of stdout is an event of any kind."""
    return _event(line) is not None


def agent_lines(
    agent: AgentName, stdout: str, stderr: str, told: Counter[str] | None = None
) -> Iterator[TraceLine]:
    """Yield what an agent said, events of stdout first.

    Args:
        agent: Whose events they are.
        stdout: All of it.
        stderr: All of it.
        told: Lines of stdout that were told before, and how often; those that are found are left
            out once each and taken out of it.
    """
    reader, before = EventReader(agent), Counter[str]() if told is None else told
    for line in stdout.splitlines():
        said = list(reader.lines(line))
        if line in before:
            before.subtract([line])
            if not before[line]:
                del before[line]
        else:
            yield from said
    for line in filter(str.strip, stderr.splitlines()):
        yield _line(f"{agent} stderr: {line}")


class _Codex:
    """Events of ``codex exec --json``."""

    def lines(self, event: Mapping[str, object]) -> Iterator[TraceLine]:
        item = _mapping(event.get("item"))
        command = _text(item.get("command"))
        match event.get("type"), item.get("type"):
            case "turn.completed", _:
                yield _line("codex: turn complete")
            case "turn.failed", _:
                message = _text(_mapping(event.get("error")).get("message"))
                yield _line(f"codex: turn failed: {message}")
            case "item.started", "command_execution":
                yield _run(AgentName.CODEX, command)
            case "item.completed", "command_execution":
                yield _done(AgentName.CODEX, item.get("exit_code"), command)
            case "item.completed", "agent_message":
                yield _line(f"codex: {_text(item.get('text'))}")


class _Claude:
    """Events of ``claude --output-format stream-json``: a command ends with its tool's result."""

    def __init__(self) -> None:
        self._commands: dict[str, str] = {}

    def lines(self, event: Mapping[str, object]) -> Iterator[TraceLine]:
        if event.get("type") == "result":
            failed = event.get("is_error") is not False
            words = f"turn failed: {_text(event.get('result'))}" if failed else "turn complete"
            yield _line(f"claude: {words}")
            return
        content = _mapping(event.get("message")).get("content")
        for block in content if isinstance(content, list) else []:
            yield from self._block(event.get("type"), _mapping(block))

    def _block(self, speaker: object, block: Mapping[str, object]) -> Iterator[TraceLine]:
        match speaker, block.get("type"):
            case "assistant", "text":
                yield _line(f"claude: {_text(block.get('text'))}")
            case "assistant", "tool_use":
                command = _claude_command(block)
                if len(self._commands) < _REMEMBERED:
                    self._commands[_text(block.get("id"))] = command
                yield _run(AgentName.CLAUDE, command)
            case "user", "tool_result":
                command = self._commands.pop(_text(block.get("tool_use_id")), "")
                yield _done(AgentName.CLAUDE, _exit_code(block), command)


def _claude_command(block: Mapping[str, object]) -> str:
    given = _mapping(block.get("input"))
    command = given.get("command")
    if isinstance(command, str):
        return command
    return f"{_text(block.get('name'))} {json.dumps(given, sort_keys=True)}"


def _exit_code(block: Mapping[str, object]) -> int:
    """Return the exit code that a result names; a tool without one has 0 or, with an error, 1."""
    named = _EXIT_CODE.match(_text(block.get("content")))
    if named is not None:
        return int(named.group(1))
    return 1 if block.get("is_error") is True else 0


def _event(line: str) -> Mapping[str, object] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _run(agent: AgentName, command: str) -> TraceLine:
    return _line(f"{agent} run: {command[:_SHOWN_COMMAND]}")


def _done(agent: AgentName, exit_code: object, command: str) -> TraceLine:
    return _line(f"{agent} done: exit={exit_code} {command[:_TRACED_COMMAND]}", is_shown=False)


def _line(text: str, *, is_shown: bool = True) -> TraceLine:
    return TraceLine(printable(" ".join(text[:_LINE].splitlines())), is_shown)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
