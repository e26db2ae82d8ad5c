"""Stands in for kopf: lists, watches, and begins anew when a watch expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from securebench.cluster.port import Cluster, ObjectKind, WatchExpired, metadata
from securebench.errors import ClusterError

PAUSE_SECONDS = 1.0
Deliver = Callable[[str | None, Mapping[str, object]], None]
"""Takes the type of an event, None for what is listed, and the object."""


class Cuttable(Protocol):
    """What may be cut off from the API server."""

    is_cut: bool


async def follow(cluster: Cluster, kind: ObjectKind, deliver: Deliver, link: Cuttable) -> None:
    """Deliver what is there and what changes, as kopf's watcher of one kind does.

    Objects that go while nobody watches have no event.
    """
    while not link.is_cut:
        try:
            listing = await cluster.list(kind, "")
        except ClusterError:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        for item in listing.items:
            deliver(None, item)
        await _watch(cluster, kind, deliver, link, listing.resource_version)


async def _watch(
    cluster: Cluster, kind: ObjectKind, deliver: Deliver, link: Cuttable, version: str
) -> None:
    """Return when the watch has expired."""
    while not link.is_cut:
        try:
            async for event in cluster.watch(kind, "", version):
                if link.is_cut:
                    return
                version = str(metadata(event.object)["resourceVersion"])
                if event.type != "BOOKMARK":
                    deliver(event.type, event.object)
        except WatchExpired:
            return
        except ClusterError:
            pass
        await asyncio.sleep(PAUSE_SECONDS)
