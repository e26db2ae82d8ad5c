"""``securebench watch``, ``why`` and ``logs`` on runs that are under way."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from securebench.client import follow
from securebench.client import logs as logs_command
from securebench.client.volume import ClusterTarget
from securebench.client.why import ADVICE, IMAGE_ADVICE
from securebench.cluster.port import ObjectKind
from securebench.errors import TransientClusterError
from securebench.protocol.volume import encode_waits, shared_waits
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import END_STATES, Reason
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, pod_name
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import Finished, LaunchBegun, LaunchLost
from support.cli_fixtures import only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun, record
from support.hostile_texts import HOSTILE_TEXTS

FIRST = LaunchKey(0, 1, Role.HARNESS, 1)
SECOND = LaunchKey(0, 1, Role.HARNESS, 2)

FUTURE = 4e9
"""The step has taken no time at all, whatever the machine's clock says."""


async def begin(run: OperatorRun) -> None:
    run.bind()
    run.freeze()
    run.journal(LaunchBegun(FIRST, FUTURE))
    run.print(FIRST, "stdout", "one\n")
    await run.status("Running", active=1)


@pytest.fixture
def begun(shell: Shell) -> str:
    """Start a run, leave it and return its name."""
    shell.script = begin
    assert shell.submit().code == 0
    return only_run(shell)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_command, "_PAUSE_SECONDS", 0.0)


async def finish(run: OperatorRun) -> None:
    run.write(record("a"))
    await run.status("Running")
    run.write(record("a"), record("b", passed=False))
    await run.status("Running", "1 waits")
    run.write(record("a"), record("b", passed=False), record("c"))
    await run.end()


def test_watch_follows_in_lines(shell: Shell, begun: str) -> None:
    shell.continue_run = finish
    watched = shell("watch", "My run")
    assert watched[:2] == (
        0,
        (f"securebench: run={begun} run_id=My run state=Completed total=3 verified=3 passed=2\n"),
    )
    lines = [line.split(" (")[0] for line in watched.stderr.splitlines()]
    assert lines == [
        "securebench: 1 of 3 done, 1 passed",
        "securebench: Running: 1 waits",
        "securebench: 2 of 3 done, 1 passed",
        "securebench: 3 of 3 done, 2 passed",
    ]


def test_watch_as_data(shell: Shell, begun: str) -> None:
    shell.continue_run = finish
    watched = shell("watch", begun, "-o", "json", "--fail-below", "0.9")
    *states, error = watched.stdout.splitlines()
    assert [json.loads(line)["done"] for line in states] == [0, 1, 2, 3]
    assert (watched.code, error) == (
        3,
        "securebench: error: the score 0.6667 (2 of 3 passed) is below --fail-below 0.9",
    )


def test_watch_survives_a_lost_connection(
    shell: Shell, begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(run: OperatorRun) -> None:
        await settle()
        shell.namespace.cluster.end_watches(TransientClusterError("reset"))
        await settle()
        await finish(run)

    monkeypatch.setattr(follow, "_FIRST_WAIT_SECONDS", 0.0)
    shell.continue_run = lose
    watched = shell("watch", begun)
    assert watched.code == 0
    assert "connection lost; the run continues, reconnecting (reset)" in watched.stderr
    assert "securebench: connected again" in watched.stderr


@pytest.mark.parametrize(
    ("reason", "code"), [("Cancelled", 1), ("PackInvalid", 1), ("Incomplete", 0)]
)
def test_how_watch_ends(shell: Shell, begun: str, reason: str, code: int) -> None:
    async def end(run: OperatorRun) -> None:
        run.write(record("a"))
        await run.end(reason, "so it is")

    shell.continue_run = end
    watched = shell("watch", begun)
    want = f"securebench: error: BenchmarkRun {begun} ended with {reason}: so it is"
    assert (watched.code, want in watched.stdout) == (code, code == 1)


def test_a_viewer_may_watch(shell: Shell, begun: str) -> None:
    shell.continue_run, shell.is_viewer = finish, True
    assert shell("watch", begun).code == 0


def test_why_names_what_is_in_flight(shell: Shell, begun: str) -> None:
    lines = shell("why", begun).stdout.splitlines()
    assert lines == [f"run {begun}: Running", "a attempt 1: agent starting for 0:00"]


def test_why_says_of_each_task_what_it_waits_for(shell: Shell, begun: str) -> None:
    async def wait(run: OperatorRun) -> None:
        other = LaunchKey(1, 1, Role.HARNESS, 1)
        run.journal(LaunchBegun(FIRST, 0.0), LaunchBegun(other, 1.0))
        waits = {("unschedulable: 0/1 nodes", False): [pod_name(run.uid, other)]}
        content = json.dumps(encode_waits(shared_waits(waits)))
        (run.folder / "launch-waits.json").write_text(content)
        await run.status("Unschedulable", "0/1 nodes", active=2)

    asyncio.run(wait(OperatorRun(shell.namespace, shell.namespace.runs()[0])))
    first, second = shell("why", begun).stdout.splitlines()[2:]
    assert first.startswith("a attempt 1: agent for ")
    assert second.startswith("b attempt 1: unschedulable: 0/1 nodes for ")
    told = json.loads(shell("why", begun, "-o", "json").stdout)["in_flight"]
    assert [each["waits_for"] for each in told] == ["", "unschedulable: 0/1 nodes"]


def test_why_names_what_a_run_waits_for(shell: Shell, begun: str) -> None:
    async def wait(run: OperatorRun) -> None:
        await run.status("Unschedulable", "0/1 nodes are available")

    asyncio.run(wait(OperatorRun(shell.namespace, shell.namespace.runs()[0])))
    lines = shell("why", begun).stdout.splitlines()
    assert lines == [
        f"run {begun}: Unschedulable: 0/1 nodes are available",
        f"  to do: {ADVICE[Reason.UNSCHEDULABLE]}",
    ]


@pytest.mark.parametrize(
    "message",
    [
        "cannot pull nope:1: ErrImagePull: not found",
        "pulling nope:1; the launch before ended with image_pull_failed: not found",
    ],
)
def test_why_says_what_to_do_about_an_image(shell: Shell, begun: str, message: str) -> None:
    async def wait(run: OperatorRun) -> None:
        await run.status("Starting", message, active=1)

    asyncio.run(wait(OperatorRun(shell.namespace, shell.namespace.runs()[0])))
    lines = shell("why", begun).stdout.splitlines()
    assert lines[1:] == [
        f"  to do: {IMAGE_ADVICE.replace('RUN', begun)}",
        "a attempt 1: agent starting for 0:00",
    ]


def failed(run: OperatorRun) -> None:
    end = Finish(AttemptKey(0, 1), Outcome.INFRASTRUCTURE, passed=None)
    run.journal(
        LaunchBegun(FIRST, 0.0),
        LaunchLost(Lost(FIRST, "pod_lost", "evicted", 5.0)),
        LaunchBegun(SECOND, 10.0),
        LaunchLost(Lost(SECOND, "image_pull_failed", "no such image", 20.0)),
        Finished(end, "0" * 64, 21.0),
    )
    attempt = run.folder / "tasks/0/attempts/1"
    attempt.mkdir(parents=True, exist_ok=True)
    fields = {"task_id": "a", "outcome": "infrastructure", "failure_reason": "image_pull_failed"}
    (attempt / "record.json").write_text(json.dumps(fields))


async def ended(run: OperatorRun) -> None:
    failed(run)
    run.write(record("a", passed=None, outcome="infrastructure"))
    await run.end("Incomplete", "1 of 1 without a verdict")


def test_why_says_why_attempts_failed(shell: Shell, begun: str) -> None:
    asyncio.run(ended(OperatorRun(shell.namespace, shell.namespace.runs()[0])))
    last = "  harness launch 2 at 1970-01-01T00:00:10Z: lost: image_pull_failed: no such image"
    want = [
        f"run {begun}: Incomplete: 1 of 1 without a verdict",
        f"  to do: run what has no verdict again: securebench resume {begun}",
        "a attempt 1: infrastructure: image_pull_failed",
        last,
        f"  what was printed: securebench logs {begun} a",
    ]
    assert shell("why", begun).stdout.splitlines() == want
    wide = shell("why", begun, "-o", "wide").stdout.splitlines()
    first = "  harness launch 1 at 1970-01-01T00:00:00Z: lost: pod_lost: evicted"
    assert wide[3:] == [first, *want[3:]]
    assert shell("why", begun, "a").stdout.splitlines()[0] == want[2]
    told = json.loads(shell("why", begun, "-o", "json").stdout)
    assert (told["state"], told["advice"]) == ("Incomplete", want[1].removeprefix("  to do: "))
    assert [attempt["task_id"] for attempt in told["attempts"]] == ["a"]


def test_why_without_the_right_to_ask_the_operators_pod(shell: Shell, begun: str) -> None:
    shell.is_viewer = True
    shown = shell("why", begun)
    assert (shown.code, shown.stdout) == (0, f"run {begun}: Running\n")
    assert "the operator's Pod could not be asked about attempts" in shown.stderr


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_why_shows_hostile_texts_as_text(shell: Shell, begun: str, text: str) -> None:
    async def wait(run: OperatorRun) -> None:
        await run.status("Forbidden", text)

    asyncio.run(wait(OperatorRun(shell.namespace, shell.namespace.runs()[0])))
    for form in ("text", "json", "yaml"):
        shown = shell("why", begun, "-o", form).stdout
        assert all(each.isprintable() for line in shown.splitlines() for each in line)


def test_every_reason_that_asks_for_something_has_advice() -> None:
    waits = {
        *(Reason.SUSPENDED, Reason.CANCELLING, Reason.QUOTA_EXCEEDED, Reason.FORBIDDEN),
        *(Reason.UNSCHEDULABLE, Reason.SCHEDULING_GATED, Reason.QUEUED, Reason.INPUT_MISSING),
        *(Reason.STORAGE_UNAVAILABLE, Reason.INTERNAL),
    }
    assert set(ADVICE) == waits | set(END_STATES) - {Reason.COMPLETED}


def test_logs_of_a_running_attempt(shell: Shell, begun: str) -> None:
    for task in ("a", "#0"):
        shown = shell("logs", begun, task)
        assert shown[:2] == (0, "==> producer/stdout <==\none\n")
    waiting = shell("logs", begun, "b")
    assert (waiting.code, waiting.stdout) == (0, "")
    assert waiting.stderr == "securebench: task b was not begun yet\n"
    unknown = shell("logs", begun, "bb")
    assert (unknown.code, "the run's pack has no task 'bb'" in unknown.last) == (1, True)


def capture(run: OperatorRun, launch: LaunchKey, files: dict[str, str]) -> None:
    """Let an attempt have its record and its captured streams."""
    attempt = run.folder / "tasks/0/attempts/1"
    for name, text in files.items():
        path = attempt / "launches" / str(launch.launch) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (attempt / "record.json").write_text(json.dumps({"task_id": "a"}))


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_logs_follow_both_streams_until_the_task_has_finished(shell: Shell, begun: str) -> None:
    async def work(run: OperatorRun) -> None:
        await settle()
        run.print(FIRST, "stderr", "trou")
        await settle()
        run.print(FIRST, "stdout", "two")
        await settle()
        files = {
            "producer/stdout": "one\ntwo\nthree\n",
            "producer/stderr": "trou",
            "verification/stdout": "checked\n",
        }
        capture(run, FIRST, files)

    shell.continue_run = work
    shown = shell("logs", "-f", begun, "a")
    assert shown[:2] == (
        0,
        (
            "==> producer/stdout <==\none\n==> producer/stderr <==\ntrou\n"
            "==> producer/stdout <==\ntwo\nthree\n==> verification/stdout <==\nchecked\n"
        ),
    )


def test_logs_follow_a_repeated_launch_and_a_lost_connection(shell: Shell, begun: str) -> None:
    async def work(run: OperatorRun) -> None:
        await settle()
        shell.namespace.fail_once("get-output")
        await settle()
        run.print(SECOND, "stdout", "again\n")
        await settle()
        capture(run, SECOND, {"producer/stdout": "again\n"})

    shell.continue_run = work
    shown = shell("logs", "-f", begun, "a")
    assert shown.stdout == (
        "==> producer/stdout <==\none\n==> producer/stdout, launch 2 <==\nagain\n"
    )
    assert "connection lost; reconnecting" in shown.stderr
    assert "connected again" in shown.stderr


def test_following_ends_with_the_run(shell: Shell, begun: str) -> None:
    async def remove(_: OperatorRun) -> None:
        await settle()
        shell.namespace.cluster.remove(ObjectKind.BENCHMARK_RUN, begun)

    shell.continue_run = remove
    shown = shell("logs", "-f", begun, "a")
    assert (shown.code, f"the BenchmarkRun {begun} was deleted" in shown.last) == (1, True)


def test_values_of_the_tester_are_waited_for(shell: Shell, begun: str) -> None:
    async def expose() -> None:
        harness = {"type": "command", "config": {"command": "x"}, "env": ["TOKEN"]}
        await shell.namespace.cluster.patch(
            ObjectKind.BENCHMARK_RUN, begun, {"spec": {"harness": harness}}
        )

    asyncio.run(expose())
    run = OperatorRun(shell.namespace, shell.namespace.runs()[0])
    for path in run.folder.glob("tasks/0/attempts/1/launches/1/producer/live-*"):
        path.unlink()
    shown = shell("logs", begun, "a")
    assert "its output is shown with its record" in shown.stderr


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_logs_on_a_terminal_obey_nothing(
    shell: Shell, begun: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    run = OperatorRun(shell.namespace, shell.namespace.runs()[0])
    run.print(FIRST, "stderr", text.encode("utf-8", "replace").decode())
    with (tmp_path / "screen").open("w+", encoding="utf-8") as screen:
        monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdout", screen)
        assert logs_command.logs(begun, "a", ClusterTarget(), is_followed=False) == 0
        screen.seek(0)
        shown = screen.read()
    assert "==> producer/stderr <==" in shown
    assert all(each.isprintable() for line in shown.splitlines() for each in line)
