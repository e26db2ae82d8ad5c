"""F4: text of a candidate neither moves a cursor nor turns a line around where people read."""

from __future__ import annotations

import io
import sys
import unicodedata

import pytest
from rich.console import Console

from securebench.client.follow import run_view
from securebench.client.live import AttemptInFlight, Screen, rendered
from securebench.client.logs import LogPrinter
from securebench.client.progress import LineReporter, record_events
from securebench.client.volume import AttemptOutput, OutputPart
from support.release import Record, call
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import Batch

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x1b[1A\rsecurebench: PASS hostile score=1.0\x08\x0b\x0c\x9b31m\x7f"
    "\u202epassed\u202c\u2066x\u2069\u200e\u200f\u061c\u2028\u2029<script>alert(1)</script>\n"
)
AGENT = f"""\
import sys
text = {HOSTILE!r}
open("answer.txt", "w").write(text)
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="utf-8", newline="")
    stream.write(text)
"""
CHECK = {
    "checker": {"command": 'cat answer.txt; cat answer.txt >&2; test "$(cat answer.txt)" = 42'}
}
SHOWN = Batch("f4-screens", "terminal_task", defaults=APP).task(
    "hostile", agent=AGENT, grading=CHECK
)
OBEYED = {"\n", "\t"}
BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"\u200e", "\u200f", "\u061c", "\u2028", "\u2029"}


def obeyed(text: str) -> set[str]:
    """Return the characters of a text that a terminal would act on."""
    return {
        each
        for each in text
        if each not in OBEYED
        and (
            unicodedata.category(each) == "Cc"
            or unicodedata.bidirectional(each) in BIDI
            or each in MARKS
        )
    }


def progress(arena: Arena) -> str:
    """Return what ``securebench run --show-command-output`` prints of the trial."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=False, highlight=False, emoji=False)
    reporter = LineReporter(console, show_command_output=True)
    for event in record_events(arena.record(SHOWN), index=1, total=1):
        reporter.report(event.event, **event.fields)
    return screen.getvalue()


@pytest.mark.short
@pytest.mark.trials(SHOWN)
def test_a_081_attack_on_progress(arena: Arena) -> None:
    lines = progress(arena).splitlines()

    assert not obeyed("\n".join(lines))
    assert sum("securebench: PASS hostile" in line for line in lines) > 0
    assert not any(line.startswith("securebench: PASS") for line in lines)
    assert any(line.startswith("securebench: FAIL hostile score=0.0") for line in lines)


def live_view(record: Record) -> str:
    """Return what a terminal draws of a run whose names and messages an attacker writes."""
    told, named = str(record["producer_stdout"]), str(record["verifier_stdout"])
    condition = {"type": "Succeeded", "status": "Unknown", "reason": "Forbidden", "message": told}
    run = {"metadata": {"name": named}, "status": {"conditions": [condition]}}
    screen = Screen(run_view(run), (AttemptInFlight(named, 1, told, 1.0),), 1.0, None, None, 24)
    console = Console(file=io.StringIO(), width=400, color_system=None)
    with console.capture() as shown:
        console.print(rendered(screen))
    return shown.get()


@pytest.mark.short
@pytest.mark.trials(SHOWN)
def test_a_081_attack_on_the_live_view(arena: Arena) -> None:
    lines = live_view(arena.record(SHOWN)).splitlines()

    assert not obeyed("\n".join(lines))
    assert sum("securebench: PASS hostile" in line for line in lines) > 0
    assert not any(line.startswith("securebench: PASS") for line in lines)


@pytest.mark.trials(SHOWN)
def test_a_081_attack_on_logs(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(arena.record(SHOWN)["producer_stdout"]).encode()
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    printer = LogPrinter()
    parts = (OutputPart("stdout", 0, data),)
    printer.print_live(AttemptOutput(1, 1, is_finished=False, parts=parts))
    printer.print_captured({"verification/stdout": data.decode()})

    assert "hostile score=1.0" in screen.getvalue()
    assert not obeyed(screen.getvalue())


@pytest.mark.trials(SHOWN)
@pytest.mark.parametrize("words", [("get", "-o", "wide"), ("describe",), ("get", "-o", "yaml")])
def test_a_081_attack_on_kubectl(arena: Arena, words: tuple[str, ...]) -> None:
    verb, *flags = words
    arena.record(SHOWN)
    namespace = arena.place(SHOWN.batch).release.namespace
    kinds = "benchmarkruns,events"
    text = call("kubectl", "-n", namespace, verb, kinds, *flags).decode()

    assert SHOWN.batch.name in text
    assert not obeyed(text)
    assert "<script>" not in text


@pytest.mark.trials(SHOWN)
def test_a_081_twin(arena: Arena) -> None:
    record = arena.record(SHOWN)
    naive = f"securebench: output {record['producer_stdout']} {record['verifier_stdout']}"

    assert obeyed(naive) >= {"\x1b", "\r", "\u202e", "\u200f", "\u061c"}
    assert any(line.startswith("securebench: PASS") for line in naive.splitlines())
