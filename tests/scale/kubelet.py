"""Stands for all that runs inside the Pods of a namespace: ``python -m scale.kubelet``.

kwok lets a Pod of a simulated node run as soon as it is bound. This program then waits, writes what
courier and verifier would leave on the results volume, and ends the Pod with their messages. Every
agent answers right, and nothing is ever lost. It also writes down each Pod as it was created, for
the bare client, and when it ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import TextIO

from bench.floor import changes
from securebench.clock import rfc3339
from securebench.cluster.client import ApiCluster, connect
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.errors import TransientClusterError
from securebench.json_values import object_at, text_at
from securebench.names import RUN_UID_LABEL
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import Role
from support.build import Status
from support.places import launch_folder
from support.pod_ends import handed_in, judged

ANSWER = "B"
"""The right choice of ``support.build.question``."""

REQUESTS_AT_ONCE = 32
"""Thousands of Pods may end together; real kubelets share them among many nodes."""

RETRY_SECONDS = 1.0


def dated(status: Status, began: float, ended: float) -> Status:
    """Return a status whose containers ran from one time to another, seconds since the epoch.

    Its conditions are left out: a patch would replace those that scheduler and kwok have set.
    """
    times = {"startedAt": rfc3339(began), "finishedAt": rfc3339(ended)}
    found: Status = {"phase": status["phase"]}
    for part in ("initContainerStatuses", "containerStatuses"):
        containers = status.get(part)
        if isinstance(containers, list):
            found[part] = [
                {**each, "state": {"terminated": {**each["state"]["terminated"], **times}}}
                for each in containers
            ]
    return found


def left_behind(root: Path, uid: str, view: PodView) -> Status:
    """Leave what a Pod of a launch leaves on the volume and return its status.

    Args:
        root: Of the volume.
        uid: The run's; the bare client's Pods are of a run that nobody has heard of.
        view: The Pod.
    """
    first = view.launches[0]
    folder = root / launch_folder(uid, first)
    if view.role is Role.VERIFIER:
        (folder / "verification").mkdir(parents=True, exist_ok=True)
        return judged(root, uid, view)
    (folder / "candidate").mkdir(parents=True, exist_ok=True)
    return handed_in(root, uid, first, ANSWER)


class Kubelet:
    """Ends the Pods of launches in one namespace.

    Args:
        cluster: The namespace.
        root: Of the volume.
        seconds: For which a Pod runs.
        hold: Harness Pods that have to run at once before the first one ends; 0: none.
        log: Gets one JSON object for each Pod that was created and for each end.
    """

    def __init__(
        self, cluster: ApiCluster, root: Path, seconds: float, hold: int, log: TextIO
    ) -> None:
        self._cluster = cluster
        self._root = root
        self._seconds = seconds
        self._hold = hold
        self._log = log
        self._held: list[Raw] = []
        self._known: set[str] = set()
        self._running: set[str] = set()
        self._places = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def follow(self) -> None:
        """Follow the namespace for ever."""
        async with asyncio.TaskGroup() as group:
            async for kind, item in changes(self._cluster, ObjectKind.POD, RUN_UID_LABEL):
                for pod in self._due(kind, item):
                    group.create_task(self.end(pod))

    def _due(self, kind: str, item: Raw) -> list[Raw]:
        """Return the Pods that may end now."""
        uid, phase = str(metadata(item)["uid"]), text_at(object_at(item, "status"), "phase")
        if uid not in self._known and kind != "DELETED":
            self._known.add(uid)
            self._write(created=item)
        if phase != "Running" or uid in self._running:
            return []
        self._running.add(uid)
        if not self._hold:
            return [item]
        self._held.append(item)
        if len(self._held) < self._hold:
            return []
        self._hold = 0
        return self._held

    async def end(self, pod: Raw) -> None:
        """Let a Pod run for its time and end it."""
        view, began = pod_view(pod), time.time()
        if view is None or view.launch is None:
            return
        await asyncio.sleep(self._seconds)
        uid = text_at(object_at(object_at(pod, "metadata"), "labels"), RUN_UID_LABEL)
        status = dated(left_behind(self._root, uid, view), began, time.time())
        await self._patch(view.name, status)
        self._write(ended=view.name)

    async def _patch(self, name: str, status: Status) -> None:
        """Write the status of a Pod, however often a busy API server does not answer."""
        async with self._places:
            while True:
                with contextlib.suppress(TransientClusterError):
                    await self._cluster.patch_status(ObjectKind.POD, name, {"status": status})
                    return
                await asyncio.sleep(RETRY_SECONDS)

    def _write(self, **event: object) -> None:
        self._log.write(json.dumps({"at": time.time(), **event}) + "\n")
        self._log.flush()


async def main() -> None:
    """Read the command line and follow the namespace until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--root", type=Path, required=True, help="of the results volume")
    parser.add_argument("--seconds", type=float, default=1.0, help="for which each Pod runs")
    parser.add_argument("--hold", type=int, default=0, help="Pods at once before one ends")
    parser.add_argument("--log", type=Path, required=True)
    chosen = parser.parse_args()
    with chosen.log.open("w", encoding="utf-8") as log:
        async with connect(chosen.namespace) as cluster:
            kubelet = Kubelet(cluster, chosen.root, chosen.seconds, chosen.hold, log)
            await kubelet.follow()


if __name__ == "__main__":
    asyncio.run(main())
