"""What an agent said, for ``--show-agent-output`` (contract 16.3)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from securebench.tester.agent_events import AgentName, TraceLine, agent_lines
from securebench.tester.progress import Event, Reporter
from securebench.tester.text import printable

TRACE_FILE = "agent-trace.log"


class AgentOutputReporter:
    """Shows and traces agent output, and hands every event on.

    A task's output is known when its record arrives; it is told then.

    Args:
        inner: The reporter behind.
        console: Where shown lines go.
        agent: Whose events they are; None shows nothing.
    """

    def __init__(self, inner: Reporter, console: Console, agent: AgentName | None) -> None:
        self._inner = inner
        self._console = console
        self._agent = agent
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
        elif event == Event.SANDBOX_RESULT and self._is_producer and self._agent is not None:
            output = (str(fields.get(stream) or "") for stream in ("stdout", "stderr"))
            self._tell(agent_lines(self._agent, *output))
        self._inner.report(event, **fields)

    def _tell(self, told: Iterable[TraceLine]) -> None:
        lines = list(told)
        for line in lines:
            if line.is_shown:
                self._console.print(line.text, markup=False, soft_wrap=True)
        if self._trace is not None:
            task = printable(self._task)
            with self._trace.open("a", encoding="utf-8") as trace:
                trace.writelines(f"{task} | {line.text}\n" for line in lines)
