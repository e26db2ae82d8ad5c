from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from securebench.client.progress import (
    AgentOutputReporter,
    Event,
    LineReporter,
    NullReporter,
    record_events,
    shown_agent,
    terminal_lines,
)
from securebench.text import printable, printable_lines, snippet


def plain_console() -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=40, highlight=False, emoji=False), stream


def record(**fields: object) -> dict[str, object]:
    return {
        "task_id": "t1",
        "task_type": "short_answer",
        "verification_status": "passed",
        "passed": True,
        "score": 1.0,
        "outcome": "scored",
        "candidate_text": "x",
        "candidate_patch": None,
        "candidate_workspace": None,
        "producer_stdout": "out",
        "producer_stderr": "",
        "producer_metadata": {"exit_code": 0},
        "verifier_stdout": "",
        "verifier_stderr": "",
        "verifier_metadata": {},
        **fields,
    }


@pytest.mark.parametrize(
    ("event", "fields", "want"),
    {
        "start": (
            Event.TASK_START,
            {"index": 2, "total": 7, "task_id": "a [b]", "family": "f"},
            ["securebench: [2/7] a [b]"],
        ),
        "resume": (
            Event.RESUME,
            {"completed": 3, "remaining": 4, "output_path": "/x"},
            ["securebench: resume completed=3 remaining=4"],
        ),
        "pass": (
            Event.TASK_DONE,
            {"task_id": "a", "status": "passed", "passed": True, "score": 1.0, "outcome": "scored"},
            ["securebench: PASS a score=1.0"],
        ),
        "fail": (
            Event.TASK_DONE,
            {
                "task_id": "a",
                "status": "failed",
                "passed": False,
                "score": 0.0,
                "outcome": "scored",
            },
            ["securebench: FAIL a score=0.0"],
        ),
        "pending": (
            Event.TASK_DONE,
            {"task_id": "a", "status": "pending", "passed": None, "score": None, "outcome": None},
            ["securebench: PENDING a score=None"],
        ),
        "flagged": (
            Event.TASK_DONE,
            {"task_id": "a", "status": "failed", "score": 0.0, "outcome": "resource"},
            ["securebench: FAIL a score=0.0 outcome=resource"],
        ),
        "silent": (Event.PRODUCER_START, {"task_id": "a"}, []),
        "unknown": ("something_else", {}, []),
        "control characters": (
            Event.TASK_START,
            {"index": 1, "total": 1, "task_id": "a\x1b[2J\nb", "family": "f"},
            ["securebench: [1/1] a\ufffd[2J\ufffdb"],
        ),
    }.values(),
)
def test_terminal_lines(event: str, fields: dict[str, object], want: list[str]) -> None:
    assert [line.text for line in terminal_lines(event, fields)] == want


@pytest.mark.parametrize(("elapsed", "want"), [(0.9, "0:00"), (61.0, "1:01"), (3_661.0, "1:01:01")])
def test_plain_lines_tell_the_time_and_the_reason(elapsed: float, want: str) -> None:
    fields = {
        "task_id": "a",
        "status": "failed",
        "score": 0.0,
        "outcome": "agent",
        "failure_reason": "empty_candidate",
        "said": "exit code 3\x1b; stderr: securebench: PASS a",
    }
    done = terminal_lines(Event.TASK_DONE, fields, elapsed)
    note = terminal_lines(Event.NOTE, {"message": "Probing"}, elapsed)
    assert [line.text for line in (*done, *note)] == [
        (
            f"securebench: FAIL a score=0.0 outcome=agent ({want}) empty_candidate:"
            " exit code 3\ufffd; stderr: securebench: PASS a"
        ),
        f"securebench: Probing ({want})",
    ]


def test_lines_are_neither_wrapped_nor_coloured_nor_read_as_markup() -> None:
    console, stream = plain_console()
    LineReporter(console).report(Event.TASK_START, index=1, total=1, task_id="[red]" + "x" * 100)
    assert stream.getvalue() == "securebench: [1/1] [red]" + "x" * 100 + "\n"


def test_colours_on_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, color_system="standard", highlight=False)
    LineReporter(console).report(Event.TASK_DONE, task_id="a", status="passed", score=1.0)
    assert "\x1b[32msecurebench: PASS a score=1.0" in stream.getvalue()


@pytest.mark.parametrize(("shown", "want"), [(True, "stdout: a b\n"), (False, "")])
def test_command_output_is_shown_on_request_only(*, shown: bool, want: str) -> None:
    console, stream = plain_console()
    reporter = LineReporter(console, show_command_output=shown)
    reporter.report(Event.SANDBOX_RESULT, stdout=" a\n\tb ", stderr="\n")
    assert stream.getvalue() == want


def test_a_snippet_is_one_short_line() -> None:
    assert snippet("a  b\n\n c") == "a b c"
    assert len(snippet("y" * 5000)) == 1000
    assert printable("a\x9b\u202e\x7f") == "a\ufffd\ufffd\ufffd"
    assert printable("\u061c\u200e\u200f\u2066") == "\ufffd" * 4
    assert printable_lines("a\tb\n\x1b\r") == "a\tb\n\ufffd\ufffd"


def test_the_null_reporter_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    NullReporter().report(Event.TASK_START, index=1, total=1, task_id="a")
    assert capsys.readouterr() == ("", "")


def names(record_: dict[str, object]) -> list[str]:
    return [event.value for event, _ in record_events(record_, index=1, total=2)]


def test_the_events_of_a_scored_task_come_in_order() -> None:
    assert names(record()) == [
        "task_start",
        "producer_start",
        "sandbox_result",
        "producer_done",
        "verifier_start",
        "sandbox_result",
        "verifier_done",
        "task_done",
    ]


def test_the_fields_of_the_events() -> None:
    events = dict(record_events(record(), index=1, total=2))
    assert events[Event.TASK_START] == {
        "index": 1,
        "total": 2,
        "task_id": "t1",
        "family": "short_answer",
    }
    assert events[Event.PRODUCER_DONE] == {"task_id": "t1", "candidate_kind": "text"}
    assert events[Event.VERIFIER_DONE] == {
        "task_id": "t1",
        "status": "passed",
        "score": 1.0,
        "phase": None,
    }
    assert events[Event.TASK_DONE]["outcome"] == "scored"


@pytest.mark.parametrize("phase", ["queued", "producer", "candidate_extraction"])
def test_no_verifier_events_for_what_ended_before(phase: str) -> None:
    found = names(record(failure_phase=phase, outcome="agent", verifier_metadata=None))
    assert "verifier_start" not in found
    assert found[-1] == "task_done"


def test_a_producer_timeout_is_told() -> None:
    timeout = record(failure_reason="producer_timeout", failure_phase="producer")
    done = dict(record_events(timeout, index=1, total=1))[Event.PRODUCER_DONE]
    assert (done["status"], done["failure_reason"]) == ("failed", "producer_timeout")


def test_a_policy_denial_is_told() -> None:
    denied = record(
        failure_reason="verifier_dangerous_command_denied",
        failure_phase="checker",
        failure_message="chroot is denied",
        verifier_metadata={"denied_command": "chroot"},
    )
    fields = dict(record_events(denied, index=1, total=1))[Event.VERIFIER_POLICY_DENIED]
    assert fields == {"task_id": "t1", "denied_command": "chroot", "reason": "chroot is denied"}


@pytest.mark.parametrize(
    ("field", "want"),
    [("candidate_patch", "patch"), ("candidate_workspace", "workspace"), ("other", "none")],
)
def test_candidate_kinds(field: str, want: str) -> None:
    events = record_events(record(candidate_text=None, **{field: "x"}), index=1, total=1)
    assert dict(events)[Event.PRODUCER_DONE]["candidate_kind"] == want


@pytest.mark.parametrize(
    ("command", "want"),
    [("codex exec --json", "t1 | codex: hello\n"), ("python3 agent.py", "")],
)
def test_the_trace_file(command: str, want: str, tmp_path: Path) -> None:
    (tmp_path / "agent-trace.log").write_text("of an earlier run")
    console, stream = plain_console()
    reporter = AgentOutputReporter(NullReporter(), console, shown_agent("command", command))
    reporter.report(Event.RUN_START, run_id="r", output_dir=str(tmp_path))
    told = record(producer_stdout="hello", verifier_stdout="not the agent")
    for event, fields in record_events(told, index=1, total=1):
        reporter.report(event, **fields)
    assert (tmp_path / "agent-trace.log").read_text() == want
    assert stream.getvalue() == want.removeprefix("t1 | ")
