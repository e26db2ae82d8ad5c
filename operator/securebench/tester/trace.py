"""What an agent said, for ``--show-agent-output`` (contract 16.3)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from securebench.tester.progress import Event, Reporter
from securebench.tester.text import printable

TRACE_FILE = "agent-trace.log"

_CODEX = "codex exec"
_SHOWN_COMMAND = 300
_TRACED_COMMAND = 220
"""Characters of a command on the terminal and in the trace (contract 16.3)."""


class TraceLine(NamedTuple):
    """One line about an agent.

    Args:
        text: Without control characters.
        is_shown: Whether it goes to the terminal too.
    """

    text: str
    is_shown: bool


class AgentOutputReporter:
    """Shows and traces agent output, and hands every event on.

    A task's output is known when its record arrives; it is told then.

    Args:
        inner: The reporter behind.
        console: Where shown lines go.
        command: The harness command; only ``codex exec`` is understood.
    """

    def __init__(self, inner: Reporter, console: Console, command: str) -> None:
        self._inner = inner
        self._console = console
        self._is_codex = _CODEX in command
        self._trace: Path | None = None
        self._task = ""
        self._is_producer = False

    def report(self, event: str, **fields: object) -> None:
        """Take notice of one event."""
        if event == Event.RUN_START:
            self._trace = Path(str(fields["output_dir"]), TRACE_FILE)
            self._trace.write_text("", encoding="utf-8")
        elif event == Event.TASK_START:
            self._task = str(fields.get("task_id"))
        elif event == Event.PRODUCER_START:
            self._is_producer = True
        elif event == Event.PRODUCER_DONE:
            self._is_producer = False
        elif event == Event.SANDBOX_RESULT and self._is_producer and self._is_codex:
            self._tell(str(fields.get("stdout") or ""), str(fields.get("stderr") or ""))
        self._inner.report(event, **fields)

    def _tell(self, stdout: str, stderr: str) -> None:
        lines = list(agent_lines(stdout, stderr))
        for line in lines:
            if line.is_shown:
                self._console.print(line.text, markup=False, soft_wrap=True)
        if self._trace is not None:
            task = printable(self._task)
            with self._trace.open("a", encoding="utf-8") as trace:
                trace.writelines(f"{task} | {line.text}\n" for line in lines)


def agent_lines(stdout: str, stderr: str) -> Iterator[TraceLine]:
    """Yield what codex said, events of stdout first."""
    for line in stdout.splitlines():
        if line.strip():
            yield from _event_lines(line)
    for line in stderr.splitlines():
        if line.strip():
            yield _line(f"codex stderr: {line}")


def _event_lines(line: str) -> Iterator[TraceLine]:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        yield _line(f"codex: {line}")
        return
    kind, item = event.get("type"), event.get("item")
    item = item if isinstance(item, Mapping) else {}
    command = str(item.get("command") or "")
    match kind, item.get("type"):
        case "turn.completed", _:
            yield _line("codex: turn complete")
        case "item.started", "command_execution":
            yield _line(f"codex run: {command[:_SHOWN_COMMAND]}")
        case "item.completed", "command_execution":
            done = f"codex done: exit={item.get('exit_code')} {command[:_TRACED_COMMAND]}"
            yield _line(done, is_shown=False)
        case "item.completed", "agent_message":
            yield _line(f"codex: {item.get('text')}")


def _line(text: str, *, is_shown: bool = True) -> TraceLine:
    return TraceLine(printable(text), is_shown)
