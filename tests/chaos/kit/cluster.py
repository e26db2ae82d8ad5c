"""A cluster in memory whose API server misbehaves: answers, connections, order of watch events."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from securebench.cluster.client import classify
from securebench.cluster.port import ObjectKind, Raw, WatchEvent
from securebench.errors import ClusterError, TransientClusterError
from support.build import FakeClock
from support.failing_volume import Fate
from support.mortal_world import MortalCluster

Mangle = Callable[[WatchEvent], list[WatchEvent]]
"""Returns what a watch shows in place of one event."""

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def answer(status: int, message: str = "chaos", retry_after: str | None = None) -> ClusterError:
    """Return what an answer of the API server becomes, by the product's own reading of it."""
    body = {"kind": "Status", "code": status, "reason": REASONS[status], "message": message}
    return classify(status, json.dumps(body), retry_after)


@dataclass
class Weather:
    """How the API server does for the moment.

    Attributes:
        bad_until: Every request is answered by ``error`` until then.
        error: See ``bad_until``.
        slow_seconds: How long each request takes.
        slow_until: Until then.
        mangle: What watches show in place of an event.
        mangled_kinds: Kinds whose watches do so.
        mangled: Events that were changed so far.
    """

    bad_until: float = 0.0
    error: ClusterError | None = None
    slow_seconds: float = 0.0
    slow_until: float = 0.0
    mangle: Mangle | None = None
    mangled_kinds: Collection[ObjectKind] = tuple(ObjectKind)
    mangled: int = 0


class ChaosCluster(MortalCluster):
    """Adds weather to a cluster that sees its operator die."""

    def __init__(self, fate: Fate, clock: FakeClock) -> None:
        super().__init__(fate, clock)
        self.weather = Weather()
        self._times = Counter[str]()

    @property
    def is_to_fail(self) -> bool:
        """Whether failures that were asked for have not come yet."""
        return bool(self._failures)

    async def list(self, kind: ObjectKind, selector: str) -> Any:
        await self._suffer()
        return await super().list(kind, selector)

    async def get(self, kind: ObjectKind, name: str) -> Any:
        await self._suffer()
        return await super().get(kind, name)

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        await self._suffer()
        return await super().create(kind, manifest)

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        await self._suffer()
        return await super().delete(kind, name, uid=uid, grace_seconds=grace_seconds)

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        await self._suffer()
        await super().delete_collection(kind, selector, fields, resource_version)

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        await self._suffer()
        return await super().patch_status(kind, name, body)

    async def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes as the weather has them."""
        await self._suffer()
        async for event in super().watch(kind, selector, resource_version):
            if self.weather.mangle is None or kind not in self.weather.mangled_kinds:
                yield event
                continue
            self.weather.mangled += 1
            for other in self.weather.mangle(event):
                yield other

    def _stamped(self, kind: ObjectKind, manifest: Raw) -> Any:
        """Give uids that do not depend on the order in which objects are created."""
        item: Any = super()._stamped(kind, manifest)
        name = f"{kind}/{item['metadata']['name']}"
        self._times[name] += 1
        item["metadata"]["uid"] = str(uuid5(NAMESPACE_OID, f"{name}/{self._times[name]}"))
        return item

    def _take_failure(self, verb: str, kind: ObjectKind) -> Any:
        """Fail requests of the operator alone."""
        return None if self.fate.is_outside else super()._take_failure(verb, kind)

    async def _suffer(self) -> None:
        if self.fate.is_outside:
            return
        weather, now = self.weather, self._clock.now()
        if now < weather.slow_until:
            await asyncio.sleep(weather.slow_seconds)
        if now < weather.bad_until:
            raise weather.error or TransientClusterError("no connection")
