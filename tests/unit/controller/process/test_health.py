from __future__ import annotations

import asyncio
from collections.abc import Mapping
from unittest import mock
from wsgiref.util import setup_testing_defaults

import pytest
from prometheus_client import REGISTRY

from securebench.cluster.port import ObjectKind
from securebench.controller.health import (
    HEARTBEAT_SECONDS,
    LIVE_PATH,
    READY_PATH,
    TURN_SECONDS,
    LastSeen,
    Problem,
    ask_server,
    loop_liveness,
    note_loops,
    observe_loop,
    observe_volume,
    operator_probes,
    probe_application,
    server_readiness,
)
from securebench.controller.lifecycle import Supervisor
from securebench.controller.suite_loop import SuiteSupervisor
from securebench.controller.volume_calls import VolumeCall, VolumeCalls
from securebench.errors import PermanentClusterError, TransientClusterError
from support.build import NOW, FakeClock, VirtualLoop
from support.fake_cluster import FakeCluster

MAX_AGE = 90.0


def asked(path: str, **ages: LastSeen) -> tuple[int, str]:
    return answer({f"/{name}": age.problem for name, age in ages.items()}, path)


def answer(probes: Mapping[str, Problem], path: str) -> tuple[int, str]:
    environ: dict[str, object] = {"PATH_INFO": path}
    setup_testing_defaults(environ)
    statuses: list[str] = []
    body = probe_application(probes)(environ, lambda status, _: statuses.append(status))
    return int(statuses[0].split()[0]), b"".join(body).decode().strip()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (loop_liveness, "the event loop has not turned yet"),
        (server_readiness, "the API server has not answered yet"),
    ],
)
def test_before_the_first_time_there_is_a_problem(made, words) -> None:
    assert asked("/x", x=made(MAX_AGE)) == (503, words)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (loop_liveness, "the event loop turned 91 s ago"),
        (server_readiness, "the API server answered 91 s ago"),
    ],
)
def test_the_age_decides_and_a_later_time_ends_the_problem(made, words) -> None:
    clock = FakeClock()
    age = made(MAX_AGE, clock.now)
    age.happened()
    assert asked("/x", x=age) == (200, "ok")
    clock.advance(MAX_AGE)
    assert asked("/x", x=age) == (200, "ok")
    clock.advance(1)
    assert asked("/x", x=age) == (503, words)
    age.happened()
    assert asked("/x", x=age) == (200, "ok")


def test_nothing_else_is_served() -> None:
    age = loop_liveness(MAX_AGE)
    age.happened()
    assert asked("/metrics", livez=age)[0] == 404


class Operating:
    """The two ages of an operator whose time and cluster are the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        turns = loop_liveness(MAX_AGE, self.clock.now)
        answers = server_readiness(MAX_AGE, self.clock.now)
        self.probes = operator_probes(turns, answers)
        self.work = observe_loop(turns), ask_server(self.cluster, self.clock, answers)

    async def go(self, seconds: float, *, first: bool = False) -> None:
        if first:
            self.tasks = [asyncio.create_task(each) for each in self.work]
        await asyncio.sleep(seconds)

    def probe(self, path: str) -> int:
        return answer(self.probes, path)[0]


@pytest.fixture
def operating():
    made = Operating()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(made.clock)) as runner:
        made.run = runner.run
        yield made


@pytest.mark.parametrize(
    "error",
    [TransientClusterError("no route to host"), PermanentClusterError("forbidden", status=403)],
)
def test_an_outage_of_the_api_server_takes_readiness_and_nothing_else(operating, error) -> None:
    operating.run(operating.go(1, first=True))
    assert (operating.probe(LIVE_PATH), operating.probe(READY_PATH)) == (200, 200)
    for _ in range(60):
        operating.cluster.fail_next("get", error)
    operating.run(operating.go(MAX_AGE + HEARTBEAT_SECONDS))
    assert (operating.probe(LIVE_PATH), operating.probe(READY_PATH)) == (200, 503)
    operating.cluster.recover()
    operating.run(operating.go(HEARTBEAT_SECONDS))
    assert (operating.probe(LIVE_PATH), operating.probe(READY_PATH)) == (200, 200)


def test_a_loop_that_hangs_is_dead(operating) -> None:
    operating.run(operating.go(TURN_SECONDS, first=True))
    operating.clock.advance(MAX_AGE + 2 * TURN_SECONDS)
    assert operating.probe(LIVE_PATH) == 503


def test_the_heartbeat_asks_for_one_object(operating) -> None:
    operating.run(operating.go(10 * HEARTBEAT_SECONDS + 1, first=True))
    assert operating.cluster.requests == {("get", ObjectKind.BENCHMARK_RUN): 11}
    assert operating.clock.now() > NOW


async def test_runs_and_suites_are_counted_for_prometheus() -> None:
    runs = mock.Mock(spec=Supervisor, active=4, queued=3, throttled_runs=2, failed=1)
    suites = mock.Mock(spec=SuiteSupervisor, active=6, failed=5)
    noting = asyncio.create_task(note_loops(runs, suites))
    await asyncio.sleep(0)
    noting.cancel()
    want = {
        "active_runs": 4,
        "queued_runs": 3,
        "held_runs": 2,
        "failed_runs": 1,
        "active_suites": 6,
        "failed_suites": 5,
    }
    assert {name: REGISTRY.get_sample_value(f"securebench_{name}") for name in want} == want


def test_a_volume_that_hangs_is_told_once(caplog) -> None:
    calls = VolumeCalls()

    async def hang() -> None:
        watch = asyncio.create_task(observe_volume(calls))
        late = VolumeCall(asyncio.get_running_loop().time(), 3.0)
        calls.add(late)
        await asyncio.sleep(2)
        assert REGISTRY.get_sample_value("securebench_volume_silent_seconds") == 0
        await asyncio.sleep(60)
        assert REGISTRY.get_sample_value("securebench_volume_silent_seconds") >= 60
        calls.discard(late)
        await asyncio.sleep(2)
        assert REGISTRY.get_sample_value("securebench_volume_silent_seconds") == 0
        watch.cancel()

    loop = asyncio.Runner(loop_factory=lambda: VirtualLoop(FakeClock()))
    with caplog.at_level("INFO"), loop as runner:
        runner.run(hang())
    words = [each.message for each in caplog.records if "results volume" in each.message]
    assert [each.partition(" for ")[0] for each in words] == [
        "the results volume has not answered",
        "the results volume answers again",
    ]
