"""The live view: what it draws, and that no text in it moves the cursor."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from securebench.client.follow import RunView, run_state, run_view
from securebench.client.live import (
    AttemptInFlight,
    LiveReporter,
    Rate,
    Screen,
    can_draw,
    in_flight,
    rendered,
    score_line,
)
from securebench.client.progress import Event
from securebench.client.volume import ActiveAttempts
from support.hostile_texts import HOSTILE_TEXTS

RUN = {
    "metadata": {"name": "my-run-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"runId": "My run", "harness": {"type": "command"}},
    "status": {
        "tasks": {"total": 40, "done": 12, "active": 2},
        "score": {
            "passed": 9,
            "verified": 12,
            "passRate": {"value": "0.7500", "low": "0.4677", "high": "0.9111"},
        },
        "usage": {
            "requests": 35,
            "inputTokens": 120_345,
            "cachedTokens": 80_000,
            "outputTokens": 4_500_000,
        },
        "conditions": [
            {
                "type": "Succeeded",
                "status": "Unknown",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available",
            }
        ],
    },
}
FLIGHTS = (
    AttemptInFlight("km-to-m", 1, "agent", 75.0),
    AttemptInFlight("h-to-min", 2, "check", 3.0),
)
SCREEN = Screen(
    view=run_view(RUN),
    in_flight=FLIGHTS,
    elapsed_seconds=151.0,
    per_second=0.08,
    seconds_left=350.0,
    height=40,
)


def drawn(screen: Screen, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=40, color_system=None)
    with console.capture() as capture:
        console.print(rendered(screen))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_rewards_have_their_mean_beside_the_score():
    score = {**RUN["status"]["score"], "meanReward": {"value": "-1e+300", "low": "0", "high": "3"}}
    view = run_view({**RUN, "status": {**RUN["status"], "score": score}})
    assert score_line(view.score, view).endswith(
        "9 of 12 passed, mean reward -1e+300 (95 % interval 0 to 3)"
    )


def test_what_is_drawn() -> None:
    title, bar, *lines = drawn(SCREEN)
    assert title == "my-run-1  12/40 done, 2 in flight, 2:31"
    assert bar.endswith("4.8 attempts a minute, about 5:50 left")
    assert lines == [
        "score so far 75.0 % (95 % interval 46.8 to 91.1), 9 of 12 passed",
        "120.3k tokens in (80.0k cached), 4.5M out, 35 requests",
        "Unschedulable: 0/1 nodes are available",
        "TASK      ATTEMPT  STEP    FOR",
        "km-to-m         1  agent  1:15",
        "h-to-min        2  check  0:03",
    ]


def test_a_long_wait_leaves_room_for_the_other_columns() -> None:
    long = AttemptInFlight("km-to-m", 1, "cannot pull x:1: " + "not found " * 40, 75.0)
    *_, line = drawn(replace(SCREEN, in_flight=(long,)), 60)
    assert re.fullmatch(r"km-to-m +1  cannot pull x:1: [a-z ]+…  1:15", line)


def test_before_anything_is_known() -> None:
    assert drawn(replace(SCREEN, view=None)) == ["securebench 2:31"]
    view = run_view({"metadata": {"name": "n"}})
    title, *_ = drawn(Screen(view, (), 0.0, None, None, 24))
    assert title == "n  0/? done, 0 in flight, 0:00"


def test_a_small_terminal_shows_those_that_are_there_for_longest() -> None:
    many = tuple(AttemptInFlight(f"t{number}", 1, "agent", 0.0) for number in range(30))
    lines = drawn(replace(SCREEN, in_flight=many, height=13))
    assert lines[-2:] == ["t3          1  agent  0:00", "and 26 more in flight"]


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_texts_stay_text(text: str) -> None:
    condition = {"type": "Succeeded", "status": "Unknown", "reason": "Forbidden", "message": text}
    run = {**RUN, "status": {"conditions": [condition]}}
    view = replace(run_view(run), name=text)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200, color_system="truecolor")
    console.print(
        rendered(replace(SCREEN, view=view, in_flight=(AttemptInFlight(text, 1, text, 1.0),)))
    )
    colours = re.compile(r"\x1b\[[0-9;]*m")
    plain = colours.sub("", stream.getvalue())
    assert all(each.isprintable() for line in plain.splitlines() for each in line)
    assert len(plain.splitlines()) == len(drawn(replace(SCREEN, view=view, in_flight=FLIGHTS[:1])))


def test_markup_in_a_text_is_no_markup() -> None:
    hostile = "[bold red]x[/] [link=http://127.0.0.1:9/]y[/link] :warning:"
    lines = drawn(replace(SCREEN, in_flight=(AttemptInFlight("t", 1, hostile, 1.0),)), width=200)
    assert hostile in lines[-1]


def test_attempts_in_flight_by_their_time() -> None:
    attempts = (
        {"task": 0, "attempt": 1, "step": "verifier", "since": 95.0, "reason": ""},
        {"task": 5, "attempt": 2, "step": "lost", "since": 40.0, "reason": "pod_lost"},
        {"task": 1, "attempt": 1, "step": "a later one", "since": None, "reason": ""},
    )
    assert in_flight(ActiveAttempts(attempts, 100.0), ["a", "b"]) == (
        AttemptInFlight("#5", 2, "waits for a new launch after pod_lost", 60.0),
        AttemptInFlight("a", 1, "check", 5.0),
        AttemptInFlight("b", 1, "a later one", 0.0),
    )


def test_the_rate_looks_at_what_finished_under_these_eyes() -> None:
    rate = Rate()
    assert (rate.per_second(0.0), rate.seconds_left(10, 0.0)) == (None, None)
    rate.note(4, 100.0)
    rate.note(4, 105.0)
    assert rate.per_second(110.0) is None
    rate.note(6, 110.0)
    assert rate.per_second(110.0) == pytest.approx(0.2)
    assert rate.per_second(120.0) == pytest.approx(0.1)
    assert rate.seconds_left(10, 120.0) == pytest.approx(40.0)
    assert rate.seconds_left(0, 120.0) is None


def test_the_reporter_draws_below_its_lines_and_cleans_up() -> None:
    stream, now = io.StringIO(), [0.0]
    console = Console(file=stream, force_terminal=True, width=90, color_system=None)
    with LiveReporter(console, lambda: now[0]) as live:
        live.report(Event.NOTE, message="started BenchmarkRun my-run-1")
        live.report(Event.STATUS, state=run_state(RUN))
        live.report(Event.IN_FLIGHT, attempts=FLIGHTS)
        now[0] = 60.0
        console.print(live.render())
        live.report(Event.TASK_DONE, task_id="a", status="passed", score=1.0)
    text = stream.getvalue()
    assert "securebench: started BenchmarkRun my-run-1\n" in text
    assert "securebench: PASS a score=1.0\n" in text
    assert "my-run-1  12/40 done, 2 in flight, 1:00" in text
    assert re.search(r"km-to-m +1 +agent +2:15", text)
    assert text.rstrip("\n").endswith("\x1b[2K")


def test_where_a_live_view_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert can_draw(Console(file=io.StringIO(), force_terminal=True))
    assert not can_draw(Console(file=io.StringIO()))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_draw(Console(file=io.StringIO(), force_terminal=True))


def test_no_colour_where_the_user_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=90, color_system="truecolor")
    console.print(rendered(SCREEN))
    assert "my-run-1" in stream.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", stream.getvalue())


def test_a_view_of_a_status_with_other_types() -> None:
    odd = {"metadata": {"name": "n"}, "status": {"score": {"passRate": {"value": "x"}}}}
    view: RunView = run_view(odd)
    assert (view.score, view.started_at, view.state, view.usage) == (None, None, "new", {})
