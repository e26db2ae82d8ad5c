"""Discovers the operator's environment and builds its Context at start-up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from securebench.clock import Clock, SystemClock, TokenBucket
from securebench.cluster.port import Cluster
from securebench.controller.capacity import CreationRate, SharedCapacity
from securebench.controller.context import Context
from securebench.controller.leadership import FencedCluster
from securebench.controller.settings import Settings
from securebench.controller.volume.lead import VolumeLead
from securebench.controller.volume.tools import install_tools
from securebench.controller.volume_calls import bulk_on_volume
from securebench.errors import StorageError
from securebench.protocol.probe import KUBELET_TARGET, ProbeTarget
from securebench.run.layout import TOOLS
from securebench.run.pods.network_policy import DNS_PORT

logger = logging.getLogger(__name__)

TOOLS_SOURCE = Path(TOOLS)
"""In the operator's image."""

TOOLS_RETRY_SECONDS = 5.0
"""Between two tries to put the programs of task containers on the volume."""

RESOLVER_FILE = Path("/etc/resolv.conf")
KUBELET_PORT = 10250


async def make_context(
    settings: Settings, environment: Mapping[str, str], cluster: Cluster, lead: VolumeLead
) -> Context:
    """Return what the operator works with, when the volume has what task containers start.

    Args:
        settings: As the chart wrote them.
        environment: Variables of the process.
        cluster: The operator's namespace.
        lead: What lets it write.
    """
    clock = SystemClock()
    creation = settings.creation
    tools = await installed_tools(settings.data_root, TOOLS_SOURCE, clock)
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
    )


async def installed_tools(root: Path, source: Path, clock: Clock) -> str:
    """Return the folder of the volume with the programs of task containers, once it is there.

    Args:
        root: The volume.
        source: The same in the operator's image.
        clock: Dates what is installed no longer.
    """
    while True:
        try:
            return await bulk_on_volume(install_tools, root, source, clock.now())
        except (OSError, StorageError) as error:
            logger.warning("programs of task containers on the volume: %s; tried again", error)
        await asyncio.sleep(TOOLS_RETRY_SECONDS)


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
