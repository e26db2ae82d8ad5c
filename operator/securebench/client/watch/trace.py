"""What an agent said, for ``--show-agent-output`` (contract 16.3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from securebench.agents.agent import AgentCli
from securebench.client.terminal_text import printable
from securebench.client.watch.agent_events import OutputReader, TraceLine, agent_lines, is_event
from securebench.client.watch.progress import Event, Reporter

TRACE_FILE = "agent-trace.log"


class AgentOutputReporter:
    """Shows and traces agent output, and hands every event on.

    Events of a running agent are told as they arrive. With the task's record follows what was not
    told yet: the rest, stderr, and lines that are no events, which a preflight prints too.

    Args:
        inner: The reporter behind.
        console: Where shown lines go.
        agent: Whose events they are; None shows nothing.
    """

    def __init__(self, inner: Reporter, console: Console, agent: AgentCli | None) -> None:
        self._inner = inner
        self._console = console
        self._agent = agent
        self._trace: Path | None = None
        self._task = ""
        self._is_producer = False
        self._readers: dict[object, OutputReader] = {}
        self._told: defaultdict[str, Counter[str]] = defaultdict(Counter)

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
            stdout, stderr = (str(fields.get(stream) or "") for stream in ("stdout", "stderr"))
            told = self._told[self._task]
            self._tell(self._task, agent_lines(self._agent, stdout, stderr, told))
        elif event == Event.AGENT_OUTPUT and self._agent is not None:
            task = str(fields.get("task_id"))
            text = str(fields.get("text"))
            self._tell(task, self._live(self._agent, task, fields.get("launch"), text))
        self._inner.report(event, **fields)

    def _live(self, agent: AgentCli, task: str, launch: object, text: str) -> Iterator[TraceLine]:
        reader = self._readers.setdefault(launch, OutputReader(agent))
        for line in filter(is_event, text.splitlines()):
            self._told[task][line] += 1
            yield from reader.lines(line)

    def _tell(self, task_id: str, told: Iterable[TraceLine]) -> None:
        lines = list(told)
        for line in lines:
            if line.is_shown:
                self._console.print(line.text, markup=False, soft_wrap=True)
        if self._trace is not None:
            task = printable(task_id)
            with self._trace.open("a", encoding="utf-8") as trace:
                trace.writelines(f"{task} | {line.text}\n" for line in lines)
