"""What is counted for a launch, and how it comes to the disk and back."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from securebench.errors import StorageError
from securebench.gateway.decisions import (
    PATH_CHARACTERS,
    Cause,
    CutError,
    Decision,
    RefusedError,
    Verdict,
    line_of,
)
from securebench.gateway.launches import Identity, Launches, read_launches, write_launch
from securebench.protocol.gateway import LaunchReport, RelayReport, Route
from support.gateways import POD, POD_UID, FixedClock, config, launch

ALLOWED = Decision(Route.PROXY, "GET", "docs.dev", 80, Verdict.ALLOWED)
REFUSED = Decision(Route.PROXY, "GET", "evil.example", 80, Verdict.REFUSED, "not_listed")
CUT = Decision(Route.PROXY, "CONNECT", "docs.dev", 443, Verdict.CUT, "idle")
RELAYED = Decision(Route.PROVIDER, "POST", "api.openai.com", 443, Verdict.REFUSED, "budget")


@pytest.fixture
def launches(tmp_path):
    return Launches(tmp_path, config(), FixedClock())


IDENTITY = Identity(POD, POD_UID)


def test_decisions_of_the_proxy_route_are_counted():
    someone = launch()
    for decision in (ALLOWED, REFUSED, CUT, RELAYED):
        someone.record(decision)
    assert (someone.report.requests, someone.report.blocked) == (2, 1)
    assert len(someone.take_changes().lines.splitlines()) == 4


def test_lines_above_the_bound_are_counted_only():
    someone = launch(log_lines=2)
    for _ in range(5):
        someone.record(ALLOWED)
    changes = someone.take_changes()
    assert len(changes.lines.splitlines()) == 2
    assert (changes.report.requests, changes.report.dropped_lines) == (5, 3)


def test_bytes_of_both_directions_have_one_limit():
    someone = launch(bytes=100)
    someone.count_up(60)
    someone.count_down(30)
    assert someone.bytes_left == 10
    for count in (someone.count_up, someone.count_down):
        with pytest.raises(CutError) as caught:
            count(11)
        assert caught.value.cause is Cause.BYTES
    assert (someone.report.bytes_up, someone.report.bytes_down) == (60, 30)


def test_the_first_address_stays():
    someone = launch()
    someone.admit("192.0.2.1")
    someone.admit("192.0.2.1")
    with pytest.raises(RefusedError) as caught:
        someone.admit("192.0.2.2")
    assert caught.value.cause is Cause.ADDRESS


def test_only_changes_are_written():
    someone = launch()
    assert someone.take_changes() is None
    someone.update_relay(RelayReport(requests=1))
    assert someone.take_changes().report.relay == RelayReport(requests=1)
    someone.update_relay(RelayReport(requests=1))
    assert someone.take_changes() is None


def test_a_line_is_written_although_the_report_says_it_already():
    """A request to the provider changes the relay's counters before its line is there."""
    someone = launch()
    someone.update_relay(RelayReport(requests=1))
    someone.take_changes()
    someone.record(RELAYED)
    assert len(someone.take_changes().lines.splitlines()) == 1


def test_a_line_has_what_is_known():
    decision = Decision(
        Route.PROXY, "GET", "docs.dev", 80, Verdict.ALLOWED,
        path="/a?token=secret", bytes_up=1, bytes_down=2, seconds=0.12345, status=204,
    )  # fmt: skip
    assert json.loads(line_of(decision, 0)) == {
        "at": "1970-01-01T00:00:00Z", "route": "proxy", "method": "GET", "host": "docs.dev",
        "port": 80,
        "path": "/a", "verdict": "allowed", "reason": "", "bytes_up": 1, "bytes_down": 2,
        "seconds": 0.123, "status": 204,
    }  # fmt: skip


def test_nothing_in_a_line_moves_a_cursor_and_all_is_bounded():
    hostile = "\x1b[2J\r\n\x7f\x9b\u202e" * 100
    decision = Decision(Route.PROXY, hostile, hostile, 0, Verdict.REFUSED, path="/" + "x" * 9999)
    line = line_of(decision, 0)
    assert line.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in line[:-1])
    assert len(json.loads(line)["path"]) == PATH_CHARACTERS
    assert len(line) < 4096


async def test_reports_come_back(tmp_path, launches):
    someone = launches.of(IDENTITY)
    someone.record(ALLOWED)
    someone.update_relay(RelayReport(requests=3, is_key_taken=True, models=("m",)))
    await launches.flush(someone)
    again = Launches(tmp_path, config(log_lines=2), FixedClock()).of(IDENTITY)
    assert again.report == someone.report
    again.record(ALLOWED)
    again.record(ALLOWED)
    assert again.report.dropped_lines == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{POD}.json", f"{POD}.jsonl"]


async def test_two_launches_do_not_share_numbers(tmp_path, launches):
    one, two = launches.of(IDENTITY), launches.of(Identity(POD + "x", "other"))
    one.record(REFUSED)
    two.count_up(5)
    await launches.flush_all()
    assert [(k.report.blocked, k.report.bytes_up) for k in read_launches(tmp_path)] == [
        (1, 0), (0, 5),
    ]  # fmt: skip


def full(*_):
    raise OSError(28, "No space left on device")


async def test_what_the_disk_did_not_take_is_written_later(tmp_path, launches, monkeypatch, caplog):
    someone = launches.of(IDENTITY)
    someone.record(ALLOWED)

    with monkeypatch.context() as patch:
        patch.setattr("securebench.gateway.launches.write_launch", full)
        await launches.flush_all()
    assert POD in caplog.text
    someone.record(REFUSED)
    await launches.flush_all()
    lines = (tmp_path / f"{POD}.jsonl").read_text().splitlines()
    reasons = [json.loads(line)["reason"] for line in lines]
    assert reasons == ["", "not_listed"]


async def test_lines_that_the_log_has_are_not_written_again(tmp_path, launches, monkeypatch):
    someone = launches.of(IDENTITY)
    someone.record(ALLOWED)

    with monkeypatch.context() as patch:
        patch.setattr("securebench.gateway.launches.replace_file", full)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                await launches.flush(someone)
    assert not (tmp_path / f"{POD}.json").exists()
    await launches.flush_all()
    (kept,) = read_launches(tmp_path)
    assert (kept.log_lines, kept.report.requests) == (1, 1)


async def test_a_flush_that_is_cut_still_ends_before_the_next(tmp_path, launches, monkeypatch):
    someone = launches.of(IDENTITY)
    someone.record(ALLOWED)
    steps, began, go_on = [], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(folder, report, lines):
        steps.append(f"begin {report.requests}")
        loop.call_soon_threadsafe(began.set)
        assert go_on.wait(5)
        write_launch(folder, report, lines)
        steps.append(f"end {report.requests}")

    monkeypatch.setattr("securebench.gateway.launches.write_launch", slow)
    first = asyncio.create_task(launches.flush(someone))
    await began.wait()
    first.cancel()
    await asyncio.wait([first])
    someone.record(ALLOWED)
    second = asyncio.create_task(launches.flush_all())
    await asyncio.wait([second], timeout=0.05)
    go_on.set()
    await second
    assert steps == ["begin 1", "end 1", "begin 2", "end 2"]
    assert read_launches(tmp_path)[0].report.requests == 2
    assert read_launches(tmp_path)[0].log_lines == 2


async def test_everything_is_written_again_and_again(tmp_path, launches, monkeypatch):
    monkeypatch.setattr("securebench.gateway.launches.FLUSH_SECONDS", 0.01)
    task = asyncio.create_task(launches.keep_flushing())
    launches.of(IDENTITY).record(ALLOWED)
    async with asyncio.timeout(5):
        while not (tmp_path / f"{POD}.json").exists():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


def test_a_log_that_was_cut_is_repaired(tmp_path):
    write_launch(tmp_path, LaunchReport(POD, POD_UID), b'{"a":1}\n{"b":2}\n{"c"')
    (kept,) = read_launches(tmp_path)
    assert kept.log_lines == 2
    assert (tmp_path / f"{POD}.jsonl").read_bytes() == b'{"a":1}\n{"b":2}\n'


def test_half_a_log_line_is_taken_back(tmp_path):
    """A limit on the size of files cuts the line, as a full disk does."""
    write_launch(tmp_path, LaunchReport(POD, POD_UID), b"one\n")
    words = [sys.executable, "-c", HALF_A_LINE, str(tmp_path), POD, POD_UID]
    subprocess.run(words, check=True, timeout=60)
    assert (tmp_path / f"{POD}.jsonl").read_bytes() == b"one\n"


HALF_A_LINE = """
import errno, pathlib, resource, signal, sys
from securebench.gateway.launches import ReportNotWrittenError, write_launch
from securebench.protocol.gateway import LaunchReport

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (24, 24))
folder, pod, uid = sys.argv[1:]
try:
    write_launch(pathlib.Path(folder), LaunchReport(pod, uid), b"B" * 100 + b"\\n")
except ReportNotWrittenError:
    raise SystemExit("the log was written")
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise SystemExit("there was no limit")
"""


@pytest.mark.parametrize(
    "text", ["", "{}", '{"pod": "x", "pod_uid": 1}', '{"pod": "x", "pod_uid": "y", "z": 1}']
)
def test_a_damaged_report_stops_the_gateway(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StorageError, match=r"x\.json"):
        Launches(tmp_path, config(), FixedClock())


def test_a_report_under_another_name_stops_the_gateway(tmp_path):
    write_launch(tmp_path, LaunchReport(POD, POD_UID), b"")
    (tmp_path / f"{POD}.json").rename(tmp_path / "other.json")
    with pytest.raises(StorageError, match=POD):
        read_launches(tmp_path)
