"""Which launches the model provider makes wait, and how the operator is told."""

import asyncio

import pytest

from securebench.clock import rfc3339
from securebench.gateway import run_gateway
from securebench.gateway.launches import (
    MAX_RETRY_AFTER_SECONDS,
    STALE_AFTER_SECONDS,
    BackOff,
    Identity,
    Launches,
    retry_seconds,
    waits_of,
)
from securebench.gateway.run_gateway import StateFile
from securebench.protocol.gateway import MAX_LISTED_WAITS, ProviderWait, ProviderWaits, decode
from support.build import NOW, FakeClock
from support.gateways import POD, POD_UID, PROVIDER, config
from support.relays import until


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def changes():
    return []


@pytest.fixture
def launch(clock, changes):
    return BackOff("pod", clock, lambda: changes.append(clock.now()))


def test_a_wait_goes_on_from_the_first_failed_call(launch, clock):
    launch.call_failed(429, "20")
    assert launch.wait() == ProviderWait("pod", NOW, 429, NOW + 20)
    clock.advance(20)
    launch.call_failed(503, "")
    assert launch.wait() == ProviderWait("pod", NOW, 503, None)


def test_an_answer_ends_the_wait_as_soon_as_it_begins(launch, clock):
    launch.call_failed(429, "")
    launch.answer_began()
    assert launch.wait() is None
    launch.ended()
    clock.advance(5)
    launch.call_failed(429, "")
    assert launch.wait().since == NOW + 5


def test_an_answer_that_breaks_does_not_begin_a_new_wait(launch, clock):
    launch.call_failed(500, "")
    clock.advance(5)
    launch.answer_began()
    launch.call_failed(0, "")
    assert launch.wait() == ProviderWait("pod", NOW, 0, None)


def test_the_end_of_a_launch_ends_its_wait(launch):
    launch.call_failed(429, "")
    launch.ended()
    assert launch.wait() is None


def test_only_changes_are_told(launch, changes):
    launch.answer_began()
    launch.ended()
    assert changes == []
    launch.call_failed(429, "")
    launch.answer_began()
    launch.answer_began()
    launch.ended()
    assert len(changes) == 2


@pytest.mark.parametrize("pause", [0, 60])
def test_a_launch_that_asks_no_more_is_forgotten(launch, clock, pause):
    launch.call_failed(429, str(pause))
    clock.advance(pause + STALE_AFTER_SECONDS - 1)
    assert launch.wait() is not None
    clock.advance(1)
    assert launch.wait() is None


PAUSES = {
    "seconds": ("30", 30.0),
    "blanks": (" 5 ", 5.0),
    "a date": ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
    "a date of another zone": ("Thu, 01 Jan 2026 01:01:00 +0100", 60.0),
    "a date of no zone": ("Thu, 01 Jan 2026 00:01:00 -0000", 60.0),
    "a date that is past": ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
    "for ever": ("9" * 400, MAX_RETRY_AFTER_SECONDS),
    "the end of time": ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_SECONDS),
    "nothing": ("", None),
    "a fraction": ("1.5", None),
    "negative": ("-1", None),
    "digits that are not ASCII": ("\u0663", None),
    "a year that is none": ("Thu, 01 Jan 99999 00:00:00 GMT", None),
    "a zone that is none": ("Mon, 01 Jan 2024 00:00:00 +" + "9" * 20, None),
    "the beginning of time": ("Mon, 01 Jan 0001 00:00:00 +2359", 0.0),
    "anything": ("soon", None),
}


@pytest.mark.parametrize("name", PAUSES)
def test_retry_after(name):
    value, want_seconds = PAUSES[name]
    now = 1_767_225_600.0
    assert rfc3339(now) == "2026-01-01T00:00:00Z"
    assert retry_seconds(value, now) == want_seconds


def test_all_are_counted_and_the_longest_are_named(clock):
    launches = [BackOff(f"pod-{number}", clock, lambda: None) for number in range(30)]
    for launch in reversed(launches):
        launch.call_failed(429, "")
        clock.advance(1)
    launches[29].ended()
    waits = waits_of(launches)
    assert waits.launches == 29
    assert [wait.pod for wait in waits.longest] == [
        f"pod-{number}" for number in range(28, 28 - MAX_LISTED_WAITS, -1)
    ]


# The file


@pytest.fixture
def launches(tmp_path, clock):
    return Launches(tmp_path / "launches", config(provider=PROVIDER), clock)


def written(path):
    return decode(ProviderWaits, path.read_bytes())


async def test_the_file_says_at_the_start_that_nobody_waits(tmp_path, launches):
    path = tmp_path / "waits.json"
    path.write_text("of an earlier gateway")
    await StateFile(path, launches.waits_changed, launches.waits).write()
    assert written(path) == ProviderWaits()


async def test_the_file_follows_the_launches(tmp_path, launches, monkeypatch):
    monkeypatch.setattr(run_gateway, "WRITE_SECONDS", 0.0)
    path = tmp_path / "waits.json"
    task = asyncio.create_task(
        StateFile(path, launches.waits_changed, launches.waits).keep_writing()
    )
    launch = launches.of(Identity(POD, POD_UID))
    launch.back_off.call_failed(429, "")
    await until(path.exists)
    assert written(path) == ProviderWaits(1, (ProviderWait(POD, NOW, 429),))
    launch.end()
    await until(lambda: written(path) == ProviderWaits())
    task.cancel()


async def test_a_volume_that_fails_is_tried_again(tmp_path, launches, monkeypatch):
    monkeypatch.setattr(run_gateway, "WRITE_SECONDS", 0.0)
    path = tmp_path / "folder" / "waits.json"
    waits = StateFile(path, launches.waits_changed, launches.waits)
    await waits.write()
    task = asyncio.create_task(waits.keep_writing())
    path.parent.mkdir()
    await until(path.exists)
    task.cancel()
