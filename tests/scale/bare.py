"""The bare client: it creates and deletes the Pods of an earlier run, and does nothing else."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence

from bench.floor import changes
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.json_values import object_at, text_at
from securebench.names import RUN_UID_LABEL
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import AttemptKey, Role

KEPT = ("name", "annotations")


def again(pod: Raw, run: str) -> Raw:
    """Return the manifest of a Pod that has been created before, for a run of that name."""
    known, labels = metadata(pod), dict(object_at(object_at(pod, "metadata"), "labels"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{key: known[key] for key in KEPT},
            "labels": {**labels, RUN_UID_LABEL: run},
        },
        "spec": {key: value for key, value in object_at(pod, "spec").items() if key != "nodeName"},
    }


class BareClient:
    """Repeats the Pods of runs.

    Args:
        cluster: Their namespace.
        parallelism: Harness Pods at once, over all runs.
    """

    def __init__(self, cluster: ApiCluster, parallelism: int) -> None:
        self._cluster = cluster
        self._slots = asyncio.Semaphore(parallelism)
        self._ended: dict[str, asyncio.Future[None]] = {}
        self._handed_in: dict[AttemptKey, asyncio.Future[None]] = {}

    async def replay(self, pods: Sequence[Raw], limit_seconds: float) -> float:
        """Create every Pod, a verifier after its harnesses, and delete each when it has ended.

        Args:
            pods: Of one run, as the API server showed them first, in their order.
            limit_seconds: After which it gives up with TimeoutError.

        Returns:
            Seconds from the first request to the last answer.
        """
        run = f"bare-{uuid.uuid4().hex[:8]}"
        loop = asyncio.get_running_loop()
        following = asyncio.create_task(self._follow(f"{RUN_UID_LABEL}={run}"))
        views = [(view, again(pod, run)) for pod in pods if (view := pod_view(pod)) is not None]
        self._handed_in = {
            view.launch.attempt_key: loop.create_future()
            for view, _ in views
            if view.launch is not None and view.role is Role.HARNESS
        }
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit_seconds), asyncio.TaskGroup() as group:
                for view, manifest in views:
                    work = self._harness if view.role is Role.HARNESS else self._verifier
                    group.create_task(work(view, manifest))
            return time.monotonic() - began
        finally:
            following.cancel()

    async def _harness(self, view: PodView, manifest: Raw) -> None:
        assert view.launch is not None
        async with self._slots:
            await self._pod(view.name, manifest)
        self._handed_in[view.launch.attempt_key].set_result(None)

    async def _verifier(self, view: PodView, manifest: Raw) -> None:
        await asyncio.gather(*(self._handed_in[each.attempt_key] for each in view.launches))
        await self._pod(view.name, manifest)

    async def _pod(self, name: str, manifest: Raw) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._ended[name] = ended
        await self._cluster.create(ObjectKind.POD, manifest)
        await ended
        await self._cluster.delete(ObjectKind.POD, name, uid=None, grace_seconds=None)

    async def _follow(self, selector: str) -> None:
        async for _, item in changes(self._cluster, ObjectKind.POD, selector):
            if text_at(object_at(item, "status"), "phase") == "Succeeded":
                future = self._ended.get(str(metadata(item)["name"]))
                if future is not None and not future.done():
                    future.set_result(None)
