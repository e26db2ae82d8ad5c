"""Shows that the operator lives and reaches its API server: the kubelet's probes, and metrics.

Whether the process is alive is asked of its event loop alone, so that an outage of the API server
restarts nobody. Whether it is ready is the age of the API server's last answer.
One reader is served at a time, so that connections cost the operator no threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from securebench.clock import Clock
from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.lifecycle import Supervisor
from securebench.controller.settings import Settings
from securebench.controller.suite_loop import SuiteSupervisor
from securebench.controller.volume_calls import OPERATOR_CALLS, VolumeCalls
from securebench.errors import ClusterError

if TYPE_CHECKING:
    from socket import socket
    from socketserver import BaseServer
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)


TURN_SECONDS = 1.0
"""Between two turns of the event loop that are noted."""

HEARTBEAT_SECONDS = 10.0
"""Between two requests to the API server; readiness allows several to be missed."""

HEARTBEAT_RUN = "securebench-heartbeat"
"""The one BenchmarkRun that is asked for. That there is none is an answer too, and a cheap one."""

LIVE_PATH = "/livez"
READY_PATH = "/readyz"
"""Where the kubelet asks; the chart names them too."""

ACTIVE_RUNS = Gauge("securebench_active_runs", "Runs that have a loop in this operator.")
QUEUED_RUNS = Gauge("securebench_queued_runs", "Runs that wait for a slot of this operator.")
HELD_RUNS = Gauge(
    "securebench_held_runs", "Runs whose further Pods wait for a turn or for others to start."
)
FAILED_RUNS = Gauge(
    "securebench_failed_runs",
    "Runs whose loop failed in the last minute by a defect of the operator; it is repeated.",
)
ACTIVE_SUITES = Gauge("securebench_active_suites", "Suites that have a loop in this operator.")
FAILED_SUITES = Gauge(
    "securebench_failed_suites",
    "Suites whose loop failed in the last minute by a defect of the operator; it is repeated.",
)
ANSWERED_AT = Gauge(
    "securebench_last_answer_timestamp_seconds", "Time of the API server's last answer."
)
VOLUME_SILENCE = Gauge(
    "securebench_volume_silent_seconds",
    "How long a call to the results volume has lasted that should have returned; 0 for none.",
)
LOOP_LAG = Histogram(
    "securebench_event_loop_lag_seconds",
    "How much later than asked the event loop woke a task that sleeps for a second.",
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)

Problem = Callable[[], str]
"""Returns why a probe fails, or an empty text."""


class LastSeen:
    """Fails a probe when an event was last seen too long ago.

    The event loop calls ``happened``; the thread that answers probes only reads.

    Args:
        never: What is said before the first time.
        late: What is said when it is too long ago; ``{age:.0f}`` stands for the seconds.
        max_seconds: Longest age without a problem.
        now: Seconds of a clock that never jumps.
    """

    def __init__(
        self,
        never: str,
        late: str,
        max_seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._never = never
        self._late = late
        self._max_seconds = max_seconds
        self._now = now
        self._at: float | None = None

    def happened(self) -> None:
        """Note that it happens now."""
        self._at = self._now()

    def problem(self) -> str:
        """Return what is wrong with its age, or an empty text."""
        if self._at is None:
            return self._never
        age = self._now() - self._at
        return self._late.format(age=age) if age > self._max_seconds else ""


def loop_liveness(max_seconds: float, now: Callable[[], float] = time.monotonic) -> LastSeen:
    """Return the liveness check: the event loop makes progress."""
    never = "the event loop has not turned yet"
    return LastSeen(never, "the event loop turned {age:.0f} s ago", max_seconds, now)


def server_readiness(max_seconds: float, now: Callable[[], float] = time.monotonic) -> LastSeen:
    """Return the readiness check: the API server has answered recently."""
    never = "the API server has not answered yet"
    return LastSeen(never, "the API server answered {age:.0f} s ago", max_seconds, now)


def operator_probes(turns: LastSeen, answers: LastSeen) -> Mapping[str, Problem]:
    """Return what the kubelet's probes ask, by path.

    Args:
        turns: Turns of the event loop.
        answers: Answers of the API server.
    """
    return {LIVE_PATH: turns.problem, READY_PATH: answers.problem}


def probe_application(probes: Mapping[str, Problem]) -> WSGIApplication:
    """Return what answers the kubelet's probes: 200, or 503 with the reason."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            status, text = HTTPStatus.NOT_FOUND, f"only {' and '.join(probes)} are served"
        elif problem := probe():
            status, text = HTTPStatus.SERVICE_UNAVAILABLE, problem
        else:
            status, text = HTTPStatus.OK, "ok"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [f"{text}\n".encode()]

    return answer


class RequestCollector(Collector):
    """Shows how many requests were sent to the API server.

    Args:
        cluster: Counts them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Yield one counter with a value for each verb and kind."""
        family = CounterMetricFamily(
            "securebench_api_requests",
            "Requests of this operator to the API server.",
            labels=("verb", "kind"),
        )
        for (verb, kind), count in self._cluster.requests.items():
            family.add_metric((verb, kind.value), count)
        yield family


async def heartbeat(cluster: Cluster, settings: Settings, clock: Clock) -> None:
    """Serve metrics and the answers to probes, and keep both ages until cancelled.

    Args:
        settings: Ports and greatest ages.
    """
    turns = loop_liveness(settings.health_max_age_seconds)
    answers = server_readiness(settings.health_max_age_seconds)
    if settings.metrics_port:
        REGISTRY.register(RequestCollector(cluster))
        serve_http("metrics", settings.metrics_port, make_wsgi_app())
    if settings.health_port:
        probes = probe_application(operator_probes(turns, answers))
        serve_http("health", settings.health_port, probes)
    async with asyncio.TaskGroup() as group:
        group.create_task(observe_loop(turns))
        group.create_task(ask_server(cluster, clock, answers))
        group.create_task(observe_volume(OPERATOR_CALLS))


async def observe_loop(turns: LastSeen) -> None:
    """Measure the lag of the event loop until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        turns.happened()
        asked = loop.time()
        await asyncio.sleep(TURN_SECONDS)
        LOOP_LAG.observe(max(loop.time() - asked - TURN_SECONDS, 0.0))


async def observe_volume(calls: VolumeCalls) -> None:
    """Tell in the log and by a gauge while the volume does not answer, until cancelled.

    Args:
        calls: Those of the whole operator.
    """
    loop, is_told = asyncio.get_running_loop(), False
    while True:
        since = calls.silent_since(loop.time())
        seconds = 0.0 if since is None else loop.time() - since
        VOLUME_SILENCE.set(seconds)
        if since is not None and not is_told:
            logger.error("the results volume has not answered for %.0f s; work waits", seconds)
        elif since is None and is_told:
            logger.info("the results volume answers again")
        is_told = since is not None
        await asyncio.sleep(TURN_SECONDS)


async def note_loops(runs: Supervisor, suites: SuiteSupervisor) -> None:
    """Update the gauges of runs and suites until cancelled."""
    while True:
        ACTIVE_RUNS.set(runs.active)
        QUEUED_RUNS.set(runs.queued)
        HELD_RUNS.set(runs.throttled_runs)
        FAILED_RUNS.set(runs.failed)
        ACTIVE_SUITES.set(suites.active)
        FAILED_SUITES.set(suites.failed)
        await asyncio.sleep(TURN_SECONDS)


async def ask_server(cluster: Cluster, clock: Clock, answers: LastSeen) -> None:
    """Probe the API server with one object until cancelled."""
    while True:
        try:
            await cluster.get(ObjectKind.BENCHMARK_RUN, HEARTBEAT_RUN)
        except ClusterError as error:
            logger.warning("heartbeat: %s", error)
        else:
            answers.happened()
            ANSWERED_AT.set(clock.now())
        await asyncio.sleep(HEARTBEAT_SECONDS)


SILENCE_SECONDS = 2.0
"""How long a reader may keep silent before its connection is closed; kubelets and scrapers
ask at once."""


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing: whoever may connect could fill the log."""


class _Server(WSGIServer):
    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Drop a connection that failed; its reader knows."""


def serve_http(name: str, port: int, application: WSGIApplication) -> BaseServer:
    """Serve an application on a port of every address, by one thread.

    Further connections wait in the kernel's short queue; beyond it they are not accepted.

    Args:
        name: Name of the thread.
        port: 0 for any free one.
        application: What answers.

    Returns:
        The server; it lives as long as the process unless it is shut down.
    """
    server = make_server("", port, application, _Server, _Handler)
    Thread(target=server.serve_forever, name=name, daemon=True).start()
    return server
