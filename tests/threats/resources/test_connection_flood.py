"""F10: connections without end, to the one port that the operator may have."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import pytest
from prometheus_client import make_wsgi_app, start_http_server

from securebench.controller.health import serve_http
from support.release import OPERATOR, Raw, Record, Release, benchmark_run, keyed_pack, release
from support.waiting import KUBECTL_TIMEOUT, until
from threats.kit.batch import IMAGE, Batch, Trial

PORT = 9090
CONNECTIONS = 10_000
SOME_CONNECTIONS = 500
NEIGHBOUR_SECONDS = 60
FLOOD = """\
import json, select, socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
done = 0
for begin in range(0, count, 500):
    sockets = []
    poll = select.poll()
    for _ in range(min(500, count - begin)):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex((host, port))
        poll.register(each, select.POLLOUT)
        sockets.append(each)
    select.select([], [], [], 0.5)
    ready = poll.poll(500)
    for descriptor, _ in ready:
        each = next(one for one in sockets if one.fileno() == descriptor)
        done += each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    for each in sockets:
        each.close()
print(json.dumps(done))
"""
WAITS = """\
import os, time
deadline = time.monotonic() + 200
while not os.path.exists("/tmp/done") and time.monotonic() < deadline:
    time.sleep(0.2)
print("4")
"""
ANSWER_4: Raw = {"accepted_answers": ["4"]}
AGENT = Batch("flood", "short_answer", defaults={"environment": {"timeout_seconds": 240}}).task(
    "flood", agent=WAITS, grading=ANSWER_4
)
NEIGHBOUR = Batch("neighbour", "short_answer").task("text", candidate="4\n", grading=ANSWER_4)


IDLE = 300


@contextmanager
def idle_connections(port: int) -> Iterator[None]:
    """Open connections to a server of this process; nothing is said on any of them."""
    with ExitStack() as stack:
        for _ in range(IDLE):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)  # noqa: FBT003  # the standard library's word
            each.connect_ex(("127.0.0.1", port))
        yield


def test_a_202_attack_on_the_threads() -> None:
    server = serve_http("metrics", 0, make_wsgi_app())
    before = threading.active_count()
    try:
        with idle_connections(server.server_address[1]):
            time.sleep(1)
            assert threading.active_count() == before
        address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
        with urlopen(address, timeout=60) as reply:
            assert reply.status == 200
    finally:
        server.shutdown()
        server.server_close()


def test_a_202_twin_of_the_threads() -> None:
    server, _ = start_http_server(0)
    before = threading.active_count()
    try:
        with idle_connections(server.server_address[1]):
            until(lambda: threading.active_count() >= before + 10, "no thread for a connection", 60)
    finally:
        server.shutdown()
        server.server_close()


def start(place: Release, trial: Trial) -> None:
    files = trial.batch.pack([trial.row])
    pack, source = keyed_pack("ConfigMap", f"{trial.batch.name}-pack", files)
    spec = {**trial.batch.run_spec(), "pack": source}
    place.create(pack, benchmark_run(trial.batch.name, spec))


def only_record(place: Release, trial: Trial, seconds: float) -> Record:
    place.wait_ended(trial.batch.name, seconds)
    (record,) = place.records(trial.batch.name)
    return record


@pytest.fixture(scope="module")
def served() -> Iterator[Release]:
    """A release whose operator listens: by default it has no port at all."""
    with release("sb-flood", {"metrics.enabled": True}) as installed:
        yield installed


def flood(place: Release, pod: str, count: int) -> int:
    """Open connections from a Pod to the operator; return how many were accepted."""
    address = place.get("pod", OPERATOR)["status"]["podIP"]
    words = ("python3", "-c", FLOOD, address, str(PORT), str(count))
    accepted: int = json.loads(place.kubectl("exec", pod, "--", *words, seconds=200))
    return accepted


def test_a_202_attack(served: Release) -> None:
    name = AGENT.batch.name
    start(served, AGENT)
    served.wait(name, lambda _: any(map(is_running, harnesses(served, name))))
    (pod,) = harnesses(served, name)
    start(served, NEIGHBOUR)

    accepted = flood(served, pod["metadata"]["name"], CONNECTIONS)

    assert accepted == 0
    assert only_record(served, NEIGHBOUR, NEIGHBOUR_SECONDS)["passed"] is True
    served.kubectl("exec", pod["metadata"]["name"], "--", "touch", "/tmp/done")
    assert only_record(served, AGENT, NEIGHBOUR_SECONDS)["passed"] is True


def harnesses(place: Release, run: str) -> list[Raw]:
    return [
        pod
        for pod in place.pods(run)
        if pod["metadata"]["labels"]["securebench.dev/role"] == "harness"
    ]


def is_running(pod: Raw) -> bool:
    states = pod["status"].get("containerStatuses", [])
    return any("running" in each["state"] for each in states)


def test_a_202_twin(served: Release) -> None:
    """A Pod that no policy of a run selects reaches the port."""
    container = {"name": "free", "image": IMAGE, "command": ["sleep", "300"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    served.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "free"}, "spec": spec})
    served.kubectl("wait", "--for=condition=Ready", "pod/free", KUBECTL_TIMEOUT)

    until(  # a flood counts what is accepted within a second
        lambda: flood(served, "free", SOME_CONNECTIONS) > 0,
        "no connection is accepted",
        60,
        step_seconds=0,
    )


def test_a_202_honest(served: Release) -> None:
    after = Batch("afterwards", "short_answer").task("text", candidate="4\n", grading=ANSWER_4)
    start(served, after)

    assert only_record(served, after, NEIGHBOUR_SECONDS)["passed"] is True
