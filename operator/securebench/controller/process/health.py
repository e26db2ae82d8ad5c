"""Shows that the loops are alive: the answers to the kubelet's probes, and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Gauge, make_wsgi_app
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.process.http_port import serve
from securebench.controller.process.supervisor import Supervisor
from securebench.controller.runtime.context import Context
from securebench.core.clock import Clock
from securebench.core.errors import ClusterError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""Between two heartbeats; the probes allow several to be missed."""

HEALTH_PATH = "/healthz"
"""Where the kubelet asks; the chart names it too."""

ACTIVE_RUNS = Gauge("securebench_active_runs", "Runs that have a loop in this operator.")
LISTED_AT = Gauge("securebench_last_list_timestamp_seconds", "Time of the last answered list.")


class Liveness:
    """Knows when the API server answered the operator last.

    The event loop that everything else runs on calls ``listed`` after a list: a blocked loop and a
    lost API server both let the last list grow old. The thread that answers probes only reads.

    Args:
        clock: The wall clock.
        max_age_seconds: Oldest last list that counts as alive.
    """

    def __init__(self, clock: Clock, max_age_seconds: float) -> None:
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._listed_at: float | None = None

    def listed(self) -> None:
        """Note that a list was answered now."""
        self._listed_at = self._clock.now()
        LISTED_AT.set(self._listed_at)

    def problem(self) -> str:
        """Return why the operator counts as dead, or an empty text."""
        if self._listed_at is None:
            return "the API server has not answered a list yet"
        age = self._clock.now() - self._listed_at
        if age > self._max_age_seconds:
            return f"the API server answered the last list {age:.0f} s ago"
        return ""


def probe_application(liveness: Liveness) -> WSGIApplication:
    """Return what answers the kubelet's probes at ``/healthz``: 200, or 503 with the reason."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != HEALTH_PATH:
            status, text = HTTPStatus.NOT_FOUND, f"only {HEALTH_PATH} is served"
        elif problem := liveness.problem():
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


async def heartbeat(context: Context, supervisor: Supervisor) -> None:
    """Serve metrics and the answers to probes, and list the runs for ever."""
    settings = context.settings
    liveness = Liveness(context.clock, settings.health_max_age_seconds)
    if settings.metrics_port:
        REGISTRY.register(RequestCollector(context.cluster))
        serve("metrics", settings.metrics_port, make_wsgi_app())
    if settings.health_port:
        serve("health", settings.health_port, probe_application(liveness))
    while True:
        try:
            await context.cluster.list(ObjectKind.BENCHMARK_RUN, "")
        except ClusterError as error:
            logger.warning("heartbeat: %s", error)
        else:
            liveness.listed()
        ACTIVE_RUNS.set(supervisor.active)
        await asyncio.sleep(HEARTBEAT_SECONDS)
