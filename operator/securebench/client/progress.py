"""Progress of a run: events, reporters and terminal lines.

A reporter has one method, ``report(event, **fields)``; contract 16.1 defines the events and their
fields. The command line learns about a task when its record arrives, and then reports all events of
the task at once (``record_events``).

``--show-agent-output`` adds lines about agents and writes a trace (contract 16.3). Output of agents
is untrusted: malformed events are tolerated, nothing is printed raw, and every line is bounded.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from rich.console import Console

from securebench.agents.harness import AgentCli, AgentEvent, EventKind
from securebench.agents.registry import agent_named, cli_agents
from securebench.benchmark.scorers.dangerous_commands import FAILURE_REASON
from securebench.json_values import object_at
from securebench.reasons import PHASES_BEFORE_CHECKS, PRODUCER_TIMEOUT
from securebench.run.records.reading import failure
from securebench.text import printable, snippet

_WORDS = {"passed": "PASS", "failed": "FAIL"}
_COLOURS = {"passed": "green", "failed": "red", "pending": "yellow"}


class Event(StrEnum):
    """Events of contract 16.1, plus ``note``, ``warning``, ``agent_output`` and ``status``.

    Notes and warnings are messages about the whole run; ``agent_output`` has complete lines of an
    agent that is still running; ``status`` has the run as it is now, and ``in_flight`` its attempts
    in flight, for a live view.
    """

    RUN_START = "run_start"
    RESUME = "resume"
    TASK_START = "task_start"
    PRODUCER_START = "producer_start"
    PRODUCER_DONE = "producer_done"
    VERIFIER_START = "verifier_start"
    VERIFIER_DONE = "verifier_done"
    VERIFIER_POLICY_DENIED = "verifier_policy_denied"
    TASK_DONE = "task_done"
    SANDBOX_RESULT = "sandbox_result"
    NOTE = "note"
    WARNING = "warning"
    AGENT_OUTPUT = "agent_output"
    STATUS = "status"
    IN_FLIGHT = "in_flight"


class ProgressEvent(NamedTuple):
    """One event with its fields."""

    event: Event
    fields: Mapping[str, object]


class Reporter(Protocol):
    """Receives progress events of a run."""

    def report(self, event: str, **fields: object) -> None:
        """Handle one event.

        Args:
            event: One of ``Event``; others are ignored.
            fields: Listed in contract 16.1.
        """
        ...


class NullReporter:
    """Discards all events, for callers that only want the result."""

    def report(self, event: str, **fields: object) -> None:
        """Do nothing."""


class WarningReporter:
    """Prints only warnings, for ``--quiet``."""

    def __init__(self, console: Console) -> None:
        self._lines = LineReporter(console)

    def report(self, event: str, **fields: object) -> None:
        """Print the event if it is a warning."""
        if event == Event.WARNING:
            self._lines.report(event, **fields)


class LineReporter:
    """Prints the lines of contract 16.2, coloured on a terminal.

    Args:
        console: Output.
        show_command_output: Whether to print command output.
        clock: Returns seconds; progress lines end with the time elapsed since construction. None
            omits times.
    """

    def __init__(
        self,
        console: Console,
        *,
        show_command_output: bool = False,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._console = console
        self._show_command_output = show_command_output
        self._clock = clock
        self._began_at = 0.0 if clock is None else clock()

    def report(self, event: str, **fields: object) -> None:
        """Print the event's lines, if it has any."""
        if event == Event.SANDBOX_RESULT and not self._show_command_output:
            return
        elapsed = None if self._clock is None else self._clock() - self._began_at
        for line in terminal_lines(event, fields, elapsed):
            self._console.print(line.text, style=line.style, markup=False, soft_wrap=True)


class Line(NamedTuple):
    """One line for the terminal, with its rich style or an empty string."""

    text: str
    style: str = ""


def stderr_console() -> Console:
    """Return the console for progress and warnings."""
    return Console(file=sys.stderr, highlight=False, emoji=False)


def terminal_lines(
    event: str, fields: Mapping[str, object], elapsed_seconds: float | None = None
) -> tuple[Line, ...]:
    """Return the terminal lines of an event; most events have none.

    Args:
        elapsed_seconds: Since the command started; None omits it.

    Source: contract 16.2, decision 0037.
    """
    at = "" if elapsed_seconds is None else f" ({minutes(elapsed_seconds)})"
    name = printable(str(fields.get("task_id")))
    match event:
        case Event.TASK_START:
            position = f"[{fields.get('index')}/{fields.get('total')}]"
            return (Line(f"securebench: {position} {name}", "dim"),)
        case Event.RESUME:
            counts = f"completed={fields.get('completed')} remaining={fields.get('remaining')}"
            return (Line(f"securebench: resume {counts}", "dim"),)
        case Event.TASK_DONE:
            return (_task_done(name, fields, at),)
        case Event.WARNING:
            text = f"securebench: warning: {printable(str(fields.get('message')))}"
            return (Line(text, "yellow"),)
        case Event.NOTE:
            return (Line(f"securebench: {printable(str(fields.get('message')))}{at}", "dim"),)
        case Event.SANDBOX_RESULT:
            texts = ((key, snippet(str(fields.get(key) or ""))) for key in ("stdout", "stderr"))
            return tuple(Line(f"{key}: {text}", "dim") for key, text in texts if text)
        case _:
            return ()


def record_events(
    record: Mapping[str, object], *, index: int, total: int
) -> Iterator[ProgressEvent]:
    """Yield the events of one finished attempt, in the order of contract 16.1.

    Args:
        record: A line of ``candidates.jsonl``.
        index: Number of finished attempts, including this one.
        total: Number of attempts of the run.
    """
    task = {"task_id": record.get("task_id")}
    start = {"index": index, "total": total, **task, "family": record.get("task_type")}
    yield ProgressEvent(Event.TASK_START, start)
    yield ProgressEvent(Event.PRODUCER_START, task)
    yield ProgressEvent(Event.SANDBOX_RESULT, _output(record, "producer"))
    done = {**task, "candidate_kind": _candidate_kind(record)}
    timed_out = record.get("failure_reason") == PRODUCER_TIMEOUT
    if timed_out:
        done |= {"status": "failed", "failure_reason": PRODUCER_TIMEOUT}
    yield ProgressEvent(Event.PRODUCER_DONE, done)
    if record.get("failure_phase") not in PHASES_BEFORE_CHECKS:
        yield from _verifier_events(record, task)
    why = failure(record)
    yield ProgressEvent(
        Event.TASK_DONE,
        {
            **task,
            "status": record.get("verification_status"),
            "passed": record.get("passed"),
            "score": record.get("score"),
            "outcome": record.get("outcome"),
            **({} if why is None else {"failure_reason": why.reason, "said": why.said}),
        },
    )


def _verifier_events(
    record: Mapping[str, object], task: Mapping[str, object]
) -> Iterator[ProgressEvent]:
    yield ProgressEvent(Event.VERIFIER_START, task)
    if record.get("failure_reason") == FAILURE_REASON:
        reason = record.get("failure_message")
        denied = object_at(record, "verifier_metadata").get("denied_command")
        fields = {**task, "denied_command": denied, "reason": reason}
        yield ProgressEvent(Event.VERIFIER_POLICY_DENIED, fields)
    if record.get("verifier_metadata") is not None:
        yield ProgressEvent(Event.SANDBOX_RESULT, _output(record, "verifier"))
    scored = record.get("passed") is not None
    yield ProgressEvent(
        Event.VERIFIER_DONE,
        {
            **task,
            "status": record.get("verification_status") if scored else None,
            "score": record.get("score"),
            "phase": record.get("failure_phase"),
        },
    )


def _output(record: Mapping[str, object], who: str) -> dict[str, object]:
    metadata = object_at(record, f"{who}_metadata")
    return {
        "kind": "pod",
        "exit_code": metadata.get("exit_code"),
        "command": metadata.get("command"),
        "stdout": record.get(f"{who}_stdout"),
        "stderr": record.get(f"{who}_stderr"),
    }


def _candidate_kind(record: Mapping[str, object]) -> str:
    kinds = {
        "candidate_patch": "patch",
        "candidate_workspace": "workspace",
        "candidate_text": "text",
    }
    return next((kind for key, kind in kinds.items() if record.get(key) is not None), "none")


def _task_done(name: str, fields: Mapping[str, object], at: str) -> Line:
    status = str(fields.get("status"))
    text = f"securebench: {_WORDS.get(status, status.upper())} {name} score={fields.get('score')}"
    outcome, reason, said = (fields.get(key) for key in ("outcome", "failure_reason", "said"))
    if outcome not in (None, "scored"):
        text += f" outcome={outcome}"
    text += at
    if reason:
        text += f" {printable(str(reason))}"
    if said:
        text += f": {printable(str(said))}"
    return Line(text, _COLOURS.get(status, ""))


def minutes(seconds: float) -> str:
    """Return a time span as minutes and seconds, with hours where there are any."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


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
