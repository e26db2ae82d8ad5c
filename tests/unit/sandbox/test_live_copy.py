"""The courier's copy of what an agent prints while it works."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from securebench.sandbox import courier, live_copy
from securebench.sandbox.live_copy import LiveCopy
from unit.sandbox.test_courier import FILE, LIMITS


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for name in ("output", "producer"):
        (tmp_path / name).mkdir()
    return tmp_path / "output"


@pytest.fixture
def copy(output: Path, tmp_path: Path) -> LiveCopy:
    return LiveCopy(output, "stdout", tmp_path / "producer")


def copied(output: Path) -> str:
    return (output.parent / "producer" / "live-stdout").read_text()


def test_only_what_was_added_is_copied(copy: LiveCopy, output: Path) -> None:
    copy.step()
    with (output / "stdout").open("a") as stream:
        for word in ("one\n", "", "two\n"):
            stream.write(word)
            stream.flush()
            copy.step()
    assert copied(output) == "one\ntwo\n"


def test_the_next_command_follows_the_preflight(copy: LiveCopy, output: Path) -> None:
    (output / "stdout").write_text("version 1\n")
    copy.step()
    (output / "new").write_text("an event\n")
    (output / "new").replace(output / "stdout")
    copy.step()
    assert copied(output) == "version 1\nan event\n"


def test_the_copy_ends_at_its_bound(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_copy, "LIVE_BYTES", 5)
    copy = LiveCopy(output, "stdout", tmp_path / "producer")
    with (output / "stdout").open("a") as stream:
        for _ in range(3):
            stream.write("abcd")
            stream.flush()
            copy.step()
    assert copied(output) == "abcda"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_regular_file_is_not_read(copy: LiveCopy, output: Path, kind: str) -> None:
    secret = output.parent / "secret"
    secret.write_text("not the agent's")
    match kind:
        case "link":
            (output / "stdout").symlink_to(secret)
        case "fifo":
            os.mkfifo(output / "stdout")
        case _:
            (output / "stdout").mkdir()
    copy.step()
    assert not (output.parent / "producer" / "live-stdout").exists()


def test_trouble_with_the_volume_ends_the_copy_only(copy: LiveCopy, output: Path) -> None:
    target = output.parent / "producer" / "live-stdout"
    target.write_text("of a courier before\n")
    (output / "stdout").write_text("one\n")
    copy.step()
    target.unlink()
    (output / "stdout").write_text("one\ntwo\n")
    copy.step()
    assert not target.exists()


@pytest.fixture
def blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    yield
    while signal.SIGTERM in signal.sigpending():
        signal.sigwait({signal.SIGTERM})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("blocked")
def test_the_courier_works_until_sigterm() -> None:
    steps: list[int] = []

    def meanwhile() -> None:
        steps.append(len(steps))
        if len(steps) == 3:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    courier.wait_for_term(meanwhile, seconds=0.001)
    assert steps == [0, 1, 2]


@pytest.mark.usefixtures("blocked")
@pytest.mark.parametrize("is_live", [True, False])
def test_a_courier_copies_when_it_is_told(
    output: Path, monkeypatch: pytest.MonkeyPatch, *, is_live: bool
) -> None:
    volumes = output.parent
    for name in ("workspace", "candidate"):
        (volumes / name).mkdir()
    (output / "stdout").write_text("an event\n")

    def wait(meanwhile: object = None) -> None:
        if callable(meanwhile):
            meanwhile()

    monkeypatch.setattr(courier, "wait_for_term", wait)
    spec = {"version": 1, "mode": "seal", "extraction": FILE, "limits": LIMITS, "exclude": []}
    told = json.dumps({**spec, **({"live": True} if is_live else {})})
    assert courier.main(["--spec", told], volumes=volumes, log=volumes / "log") == 0
    assert (volumes / "producer" / "live-stdout").exists() is is_live
