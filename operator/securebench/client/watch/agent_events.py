"""Render agents' output as lines for people (contract 16.3); pure.

Agent output is untrusted: malformed events are tolerated, nothing is printed raw, and every line
is bounded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from securebench.agents.harness import AgentCli, AgentEvent, EventKind
from securebench.agents.registry import agent_named, cli_agents
from securebench.text import printable

_SHOWN_COMMAND: Final = 300
_TRACED_COMMAND: Final = 220
"""Characters of a command on the terminal and in the trace (contract 16.3)."""

_LINE: Final = 4000
"""Characters of any other line."""


class TraceLine(NamedTuple):
    """One line about an agent.

    Args:
        text: Without control characters.
        is_shown: Whether it also goes to the terminal.
    """

    text: str
    is_shown: bool


def shown_agent(harness_type: str, command: str) -> AgentCli | None:
    """Return the agent CLI whose events a harness prints, or None if it prints none.

    Args:
        harness_type: From the tester YAML.
        command: The command of a command harness as one string, else empty.
    """
    own = agent_named(harness_type).cli
    if own is not None:
        return own
    started = (cli for _, cli in cli_agents() if cli.invocation and cli.invocation in command)
    return next(started, None)


class OutputReader:
    """Reads an agent CLI's stdout line by line."""

    def __init__(self, agent: AgentCli) -> None:
        self._title = agent.title
        self._reader = agent.events()

    def lines(self, line: str) -> Iterator[TraceLine]:
        """Yield the rendered lines of one line of output; most events have none."""
        event = _event(line)
        if event is not None:
            for item in self._reader.events(event):
                yield _rendered(self._title, item)
        elif line.strip():
            yield _line(f"{self._title}: {line}")


def is_event(line: str) -> bool:
    """Whether a line of stdout is an event."""
    return _event(line) is not None


def agent_lines(
    agent: AgentCli, stdout: str, stderr: str, reported: Counter[str] | None = None
) -> Iterator[TraceLine]:
    """Yield the rendered output of an agent, events of stdout first.

    Args:
        agent: The CLI that printed it.
        stdout: Complete stdout.
        stderr: Complete stderr.
        reported: Multiset of stdout lines that were reported live; they are skipped, and removed
            from it.
    """
    reader, before = OutputReader(agent), reported or Counter[str]()
    for line in filter(None, stdout.split("\n")):
        rendered = list(reader.lines(line))
        if line in before:
            before.subtract([line])
            if not before[line]:
                del before[line]
        else:
            yield from rendered
    for line in filter(str.strip, stderr.splitlines()):
        yield _line(f"{agent.title} stderr: {line}")


def _rendered(title: str, event: AgentEvent) -> TraceLine:
    match event.kind:
        case EventKind.SAID:
            return _line(f"{title}: {event.text}")
        case EventKind.STARTED:
            return _line(f"{title} run: {event.text[:_SHOWN_COMMAND]}")
        case EventKind.ENDED:
            command = event.text[:_TRACED_COMMAND]
            return _line(f"{title} done: exit={event.exit_code} {command}", is_shown=False)
        case EventKind.COMPLETED:
            return _line(f"{title}: turn complete")
        case EventKind.FAILED:
            return _line(f"{title}: turn failed: {event.text}")


def _event(line: str) -> Mapping[str, object] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _line(text: str, *, is_shown: bool = True) -> TraceLine:
    return TraceLine(printable(" ".join(text[:_LINE].splitlines())), is_shown)
