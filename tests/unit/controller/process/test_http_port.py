from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client import make_wsgi_app

from securebench.controller import health

IDLE = 20
NAME = health.ACTIVE_RUNS.describe()[0].name


@pytest.fixture
def port() -> Iterator[int]:
    server = health.serve_http("metrics", 0, make_wsgi_app())
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return reply.read().decode()


def test_metrics_are_served(port: int) -> None:
    assert NAME in scraped(port)


def test_who_is_silent_costs_no_thread_and_is_sent_away(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health._Handler, "timeout", 0.01)
    before = threading.active_count()
    silent = [socket.socket() for _ in range(IDLE)]
    for each in silent:
        each.setblocking(False)  # noqa: FBT003  # the standard library's word
        each.connect_ex(("127.0.0.1", port))

    assert NAME in scraped(port)

    assert threading.active_count() == before
    assert capfd.readouterr() == ("", "")
    for each in silent:
        each.close()
