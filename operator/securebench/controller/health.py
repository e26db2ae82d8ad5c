"""Shows that the loops are alive: a heartbeat file for the probes and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from securebench.controller.context import Context
from securebench.controller.metrics_port import serve_metrics
from securebench.controller.supervisor import Supervisor
from securebench.errors import ClusterError
from securebench.kube.port import Cluster, Kind
from securebench.protocol import HEARTBEAT_FIELD

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""Between two heartbeats; the probes allow several to be missed."""

ACTIVE_RUNS = Gauge("securebench_active_runs", "Runs that have a loop in this operator.")
LISTED_AT = Gauge("securebench_last_list_timestamp_seconds", "Time of the last answered list.")


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
    """List the runs for ever and write when the API server answered last.

    The file is written by the loop that everything else runs on, after a list: a blocked loop, a
    lost API server and a lost volume of the operator's own all let it grow old.
    """
    if context.settings.metrics_port:
        REGISTRY.register(RequestCollector(context.cluster))
        serve_metrics(context.settings.metrics_port)
    path = context.settings.heartbeat_path
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            await context.cluster.list(Kind.BENCHMARK_RUN, "")
        except ClusterError as error:
            logger.warning("heartbeat: %s", error)
        else:
            now = context.clock.now()
            part = path.with_suffix(".part")
            part.write_text(json.dumps({HEARTBEAT_FIELD: now}), encoding="ascii")
            part.replace(path)
            LISTED_AT.set(now)
        ACTIVE_RUNS.set(supervisor.active)
        await asyncio.sleep(HEARTBEAT_SECONDS)
