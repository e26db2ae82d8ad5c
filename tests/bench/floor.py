"""The node's own limit: the Pods of a task with next to nothing in them, made by the same client.

For each task a harness Pod writes a file; when it has succeeded, a verifier Pod reads it. No
journal, no records, no canary; one folder of the node instead of the results volume.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw
from securebench.json_values import object_at, text_at

LABEL = "bench-floor"
"""Its value names the run. Nothing else tells Pods apart, as with ours: a network plugin may make
an identity of each set of labels."""

SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
WRITE = "echo hi > /share/x"
CHECK = 'test "$(cat /share/x)" = hi'
SIDECAR = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


class Shape(NamedTuple):
    """The Pods of one task.

    Attributes:
        harness_sidecars: Native sidecars beside the harness.
        verifier_sidecars: Those beside the verifier; None where there is no verifier Pod.
        is_isolated: Whether Pods have the user namespace, the security contexts and the volumes of
            our text harness: what they cost, every operator with such Pods would pay.
    """

    harness_sidecars: int = 0
    verifier_sidecars: int | None = 0
    is_isolated: bool = False


SHAPES = {
    "one": Shape(verifier_sidecars=None),
    "two": Shape(),
    "sidecar": Shape(1),
    "sidecar+isolated": Shape(1, is_isolated=True),
    "terminal": Shape(1, 1),
    "terminal+isolated": Shape(1, 1, is_isolated=True),
    "code": Shape(1, 2),
    "code+isolated": Shape(1, 2, is_isolated=True),
}
"""By name; from the third on with as many containers as the Pods of text, terminal and code."""


class FloorRun(NamedTuple):
    """What one run of the floor took.

    Attributes:
        seconds: From the first create to the end of the last Pod.
        task_seconds: Median time of one task.
        requests: Sent by this program.
    """

    seconds: float
    task_seconds: float
    requests: int


SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
EMPTY = {
    "workspace": "/mnt",
    "output": "/opt",
    "temporary": "/tmp",
}
"""Folders of the main container, as our task containers have them."""


def pod(
    name: str, run: str, image: str, command: str, share: Path, sidecars: int
) -> dict[str, Any]:
    """Return one Pod of the floor."""

    def container(called: str, words: str, **more: object) -> dict[str, object]:
        return {
            "name": called,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", words],
            "resources": SMALL,
            **more,
        }

    mounts = [{"name": "share", "mountPath": "/share"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {LABEL: run}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "initContainers": [
                container(f"sidecar-{number}", SIDECAR, restartPolicy="Always")
                for number in range(sidecars)
            ],
            "containers": [container("main", command, volumeMounts=mounts)],
            "volumes": [
                {
                    "name": "share",
                    "hostPath": {"path": str(share), "type": "DirectoryOrCreate"},
                }
            ],
        },
    }


def isolate(body: dict[str, Any], share: Path) -> None:
    """Give a Pod of the floor what isolates ours; the sub-paths are folders of its share."""
    spec = body["spec"]
    spec["hostUsers"] = False
    spec["securityContext"] = {"seccompProfile": SECURITY["seccompProfile"]}
    (main,), sidecars = spec["containers"], spec["initContainers"]
    for each in (main, *sidecars):
        each["securityContext"] = SECURITY
    for name, path in EMPTY.items():
        spec["volumes"].append({"name": name, "emptyDir": {"sizeLimit": "64Mi"}})
        main["volumeMounts"].append({"name": name, "mountPath": path})
    memory = {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    place = {"path": str(share), "type": "DirectoryOrCreate"}
    spec["volumes"] += [memory, {"name": "results", "hostPath": place}]
    main["volumeMounts"].append({"name": "memory", "mountPath": "/dev/shm"})
    for each in (main, *sidecars):
        own = [
            {"name": "results", "mountPath": path, "subPath": f"{each['name']}{path}"}
            for path in ("/srv", "/media")
        ]
        each["volumeMounts"] = [*each.get("volumeMounts", ()), *own]


async def changes(
    cluster: ApiCluster, kind: ObjectKind, selector: str
) -> AsyncIterator[tuple[str, Raw]]:
    """Yield what is there and then every change, as type and object, for ever."""
    listing = await cluster.list(kind, selector)
    for item in listing.items:
        yield "ADDED", item
    version = listing.resource_version
    while True:
        async with aclosing(cluster.watch(kind, selector, version)) as events:
            async for event in events:
                version = text_at(object_at(event.object, "metadata"), "resourceVersion")
                if event.type != "BOOKMARK":
                    yield event.type, event.object


class Floor:
    """Runs of one shape of the floor.

    Args:
        cluster: A namespace that lets Pods mount folders of the node.
        shape: The Pods of a task.
        image: Of every container.
    """

    def __init__(self, cluster: ApiCluster, shape: Shape, image: str) -> None:
        self._cluster = cluster
        self._shape = shape
        self._image = image
        self._run = ""
        self._share = Path()
        self._ended: dict[str, asyncio.Future[None]] = {}

    async def run(self, tasks: int, parallelism: int) -> FloorRun:
        """Run that many tasks, and remove every Pod of them.

        Raises:
            SystemExit: A Pod failed.
        """
        self._run = f"floor-{uuid.uuid4().hex[:6]}"
        self._share = Path(tempfile.gettempdir()) / "securebench-bench" / self._run
        self._ended = {}
        selector = f"{LABEL}={self._run}"
        following = asyncio.create_task(self._follow(selector))
        before = sum(self._cluster.requests.values())
        slots = asyncio.Semaphore(parallelism)
        began = time.monotonic()
        try:
            took = await asyncio.gather(*(self._task(number, slots) for number in range(tasks)))
            seconds = time.monotonic() - began
            requests = sum(self._cluster.requests.values()) - before
        finally:
            await self._remove(selector)
            following.cancel()
            shutil.rmtree(self._share, ignore_errors=True)
        return FloorRun(seconds, sorted(took)[len(took) // 2], requests)

    async def _task(self, number: int, slots: asyncio.Semaphore) -> float:
        async with slots:
            began = time.monotonic()
            await self._pod(f"{self._run}-h-{number}", WRITE, number, self._shape.harness_sidecars)
            sidecars = self._shape.verifier_sidecars
            if sidecars is not None:
                await self._pod(f"{self._run}-v-{number}", CHECK, number, sidecars)
            return time.monotonic() - began

    async def _pod(self, name: str, command: str, number: int, sidecars: int) -> None:
        self._ended[name] = asyncio.get_running_loop().create_future()
        share = self._share / str(number)
        body = pod(name, self._run, self._image, command, share, sidecars)
        if self._shape.is_isolated:
            isolate(body, share)
        await self._cluster.create(ObjectKind.POD, body)
        await self._ended[name]

    async def _follow(self, selector: str) -> None:
        async for _, item in changes(self._cluster, ObjectKind.POD, selector):
            name, phase = _named(item), text_at(object_at(item, "status"), "phase")
            future = self._ended.get(name)
            if future is None or future.done():
                continue
            if phase == "Succeeded":
                future.set_result(None)
            elif phase == "Failed":
                future.set_exception(SystemExit(f"Pod {name} of the floor failed"))

    async def _remove(self, selector: str) -> None:
        while found := (await self._cluster.list(ObjectKind.POD, selector)).items:
            for item in found:
                if "deletionTimestamp" not in object_at(item, "metadata"):
                    await self._cluster.delete(
                        ObjectKind.POD, _named(item), uid=None, grace_seconds=None
                    )
            await asyncio.sleep(0.2)


def _named(item: Mapping[str, object]) -> str:
    return text_at(object_at(item, "metadata"), "name")
