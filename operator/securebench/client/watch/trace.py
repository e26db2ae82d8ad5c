"""Show and trace agents' output, for ``--show-agent-output`` (contract 16.3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from securebench.agents.harness import AgentCli
from securebench.client.watch.agent_events import OutputReader, TraceLine, agent_lines, is_event
from securebench.client.watch.progress import Event, Reporter
from securebench.text import printable

TRACE_FILE = "agent-trace.log"


class AgentOutputReporter:
    """Shows and traces agent output, then delegates every event to another reporter.

    Events of a running agent are reported as they arrive. The rest follows with the task's record:
    remaining events, stderr, and other lines, such as those of the preflight.

    Args:
        inner: Receives every event.
        console: Prints the lines that are shown.
        agent: The agent's CLI; None shows nothing.
    """

    def __init__(self, inner: Reporter, console: Console, agent: AgentCli | None) -> None:
        self._inner = inner
        self._console = console
        self._agent = agent
        self._trace: Path | None = None
        self._task = ""
        self._is_producer = False
        self._readers: dict[object, OutputReader] = {}
        self._reported: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def report(self, event: str, **fields: object) -> None:
        """Handle one event."""
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
            stdout, stderr = (str(fields.get(stream) or "") for stream in ("stdout", "stderr"))
            reported = self._reported[self._task]
            self._write(self._task, agent_lines(self._agent, stdout, stderr, reported))
        elif event == Event.AGENT_OUTPUT and self._agent is not None:
            task = str(fields.get("task_id"))
            text = str(fields.get("text"))
            self._write(task, self._live(self._agent, task, fields.get("launch"), text))
        self._inner.report(event, **fields)

    def _live(self, agent: AgentCli, task: str, launch: object, text: str) -> Iterator[TraceLine]:
        reader = self._readers.setdefault(launch, OutputReader(agent))
        for line in filter(is_event, text.split("\n")):
            self._reported[task][line] += 1
            yield from reader.lines(line)

    def _write(self, task_id: str, output: Iterable[TraceLine]) -> None:
        lines = list(output)
        for line in lines:
            if line.is_shown:
                self._console.print(line.text, markup=False, soft_wrap=True)
        if self._trace is not None:
            task = printable(task_id)
            with self._trace.open("a", encoding="utf-8") as trace:
                trace.writelines(f"{task} | {line.text}\n" for line in lines)
