"""Progress of a run: events, reporters and terminal lines.

A reporter has one method, ``report(event, **fields)``; contract 16.1 defines the events and their
fields. The command line learns about a task when its record arrives, and then reports all events of
the task at once (``record_events``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from rich.console import Console

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
        event: Name of the event.
        fields: Its fields.
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
