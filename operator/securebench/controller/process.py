"""The operator as a process: its log, its surroundings, and the work only while it leads.

Probes are answered at once. A process that gets the Lease discovers its environment, builds the
Context and works. The log on stderr has lines for people, or a JSON object a line for a log store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

from prometheus_client import Gauge
from pythonjsonlogger.json import JsonFormatter

from securebench.clock import Clock, SystemClock, TokenBucket, elapsed_seconds
from securebench.cluster.client import connect
from securebench.cluster.port import Cluster
from securebench.controller.capacity import CreationRate, SharedCapacity
from securebench.controller.context import Context
from securebench.controller.health import heartbeat
from securebench.controller.leadership import Elector, FencedCluster
from securebench.controller.loop_tasks import RunFilter, until_done
from securebench.controller.reading import Reading, ReadingProcess, reading_memory
from securebench.controller.settings import LogFormat, Settings
from securebench.controller.volume.artifacts import ArtifactStore, operator_side
from securebench.controller.volume.lead import (
    VolumeLead,
    claim_epoch,
    highest_epoch,
    revoke_earlier,
)
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import StorageError
from securebench.names import lease_holder
from securebench.protocol.supervise import KUBELET_TARGET, ProbeTarget
from securebench.run.layout import TOOLS
from securebench.run.pods.isolation import DNS_PORT

logger = logging.getLogger(__name__)


LOST_EXIT_CODE = 3
"""Of a process that leads no longer."""

LEADER = Gauge("securebench_leader", "Whether this operator works (1) or may not (0).")

Work = Callable[[Cluster, VolumeLead], Awaitable[None]]
"""What the leader does, until it is cancelled."""


async def run_when_leader(settings: Settings, work: Work) -> None:
    """Answer probes, wait until this operator leads, and work.

    Args:
        work: Gets the namespace and the right to write to the volume.

    Raises:
        StorageError: Another leader has begun on the volume.
        asyncio.CancelledError: It was cancelled while it waited.
    """
    task = asyncio.current_task()
    if task is not None:  # without a handler the first process of a container ignores SIGTERM
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(settings.namespace) as cluster:
        beating = asyncio.create_task(heartbeat(cluster, settings, SystemClock()))
        beating.add_done_callback(end_process)
        async with leading(cluster, settings) as lead:
            await work(cluster, lead)
        beating.cancel()


@contextlib.asynccontextmanager
async def leading(cluster: Cluster, settings: Settings) -> AsyncIterator[VolumeLead]:
    """Wait until this operator leads; hold the Lease meanwhile, and give it back in the end.

    Args:
        settings: Name the operator's Pod and the times of the Lease.
    """
    holder = lease_holder(settings.pod_name, settings.pod_uid)
    times, clock, root = settings.leadership, SystemClock(), settings.data_root
    elector = Elector(cluster, holder, times, clock, elapsed_seconds, end_at_once)
    epoch = await elector.acquire(partial(on_volume, highest_epoch, root))
    holding = asyncio.create_task(elector.hold(), name="lease")
    holding.add_done_callback(_end_with_lease)
    LEADER.set_function(lambda: float(elector.is_leader))
    try:
        claim = partial(on_volume, claim_epoch, root, epoch, holder, elector.require)
        lead = await until_done("the results volume", (OSError,), claim)
        await until_done("the results volume", (OSError,), partial(on_volume, revoke_earlier, lead))
        yield lead
    finally:
        holding.cancel()
        await elector.release()


def end_at_once(reason: str) -> NoReturn:
    """End the process between two instructions: another one leads.

    Nothing is put in order, as nothing may be written any more; the next leader takes the runs
    over as after a kill.
    """
    logger.critical("the operator ends: %s", reason)
    logging.shutdown()
    os._exit(LOST_EXIT_CODE)


def end_process(task: asyncio.Task[None]) -> None:
    """End the operator with a task that has failed: Kubernetes starts it again with both."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the operator ends: a task in the background failed", exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


def _end_with_lease(task: asyncio.Task[NoReturn]) -> None:
    if not task.cancelled():
        end_at_once(f"the Lease is not renewed any more: {task.exception()!r}")


TOOLS_SOURCE = Path(TOOLS)
"""In the operator's image."""

RESOLVER_FILE = Path("/etc/resolv.conf")
KUBELET_PORT = 10250


async def make_context(
    settings: Settings, environment: Mapping[str, str], cluster: Cluster, lead: VolumeLead
) -> Context:
    """Return what the operator works with, when the volume has what task containers start.

    Args:
        lead: What lets it write.
    """
    clock = SystemClock()
    creation = settings.creation
    artifacts = operator_side(settings.data_root, lead.folder)
    tools = await installed_tools(artifacts, TOOLS_SOURCE, clock)
    return Context(
        cluster=FencedCluster(cluster, lead.require),
        settings=settings,
        clock=clock,
        rate=CreationRate(TokenBucket(creation.per_second, creation.burst, clock.now)),
        capacity=SharedCapacity(creation, clock),
        node_name=settings.node_name,
        targets=tuple(probe_targets(settings, environment, _resolvers())),
        tools=tools,
        lead=lead,
        reading=Reading(ReadingProcess(reading_memory(settings))),
    )


async def installed_tools(artifacts: ArtifactStore, source: Path, clock: Clock) -> str:
    """Return the tree digest of the programs of task containers, once Pods can take them.

    Args:
        source: The same in the operator's image.
        clock: Dates what is installed no longer.
    """
    install = partial(bulk_on_volume, artifacts.install, source, clock.now())
    errors = (OSError, StorageError)
    return (await until_done("programs of task containers on the volume", errors, install)).digest


def probe_targets(
    settings: Settings, environment: Mapping[str, str], resolvers: tuple[str, ...]
) -> Iterator[ProbeTarget]:
    """Yield what no Pod of a run may reach.

    The node counts by its address: a Service in front of it does not, and neither does a name
    server, which leads out of the cluster wherever it is.

    Args:
        settings: Names metadata service, an outside address and further ones.
        environment: Names the API server.
        resolvers: Addresses of the operator's own name servers.
    """
    for target in _targets(settings, environment, resolvers):
        is_at_node = target.host == settings.node_address
        yield replace(target, is_node=is_at_node and target.protocol == "tcp")


def _targets(
    settings: Settings, environment: Mapping[str, str], resolvers: tuple[str, ...]
) -> Iterator[ProbeTarget]:
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    if host:
        port = int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
        yield ProbeTarget("api-server", host, port, "tcp")
    yield ProbeTarget(KUBELET_TARGET, settings.node_address, KUBELET_PORT, "tcp")
    if resolvers:
        yield ProbeTarget("dns", resolvers[0], DNS_PORT, "udp")
    yield _target("metadata", settings.canary.metadata_address)
    yield _target("outside", settings.canary.outside_address)
    for number, address in enumerate(settings.canary.extra_targets, start=1):
        yield _target(f"extra-{number}", address)


def _target(name: str, address: str, protocol: Literal["tcp", "udp"] = "tcp") -> ProbeTarget:
    host, _, port = address.rpartition(":")
    return ProbeTarget(name, host.strip("[]"), int(port), protocol)


def _resolvers() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        lines = RESOLVER_FILE.read_text(encoding="utf-8").splitlines()
        return tuple(line.split()[1] for line in lines if line.startswith("nameserver "))
    return ()


_FIELDS = ("asctime", "levelname", "name", "message")
_TEXT = logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def configure_logs(form: LogFormat) -> None:
    """Send all records from INFO up to stderr in the given form.

    kopf's own records about single objects are left out below WARNING: each event would be one.
    """
    handler = logging.StreamHandler()
    handler.addFilter(RunFilter())
    handler.setFormatter(_TEXT if form is LogFormat.TEXT else _json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)


def _json() -> logging.Formatter:
    names = {"asctime": "time", "levelname": "level", "name": "logger"}
    return JsonFormatter(_FIELDS, rename_fields=names)
