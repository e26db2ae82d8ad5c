"""What each container, volume and hook of a Pod costs: bare Pods with one of them added at a time.

All shapes run in turn, several rounds in one go, at 1 and 8 in flight; the time is that from the
create to the end that the watch shows. Needs a claim in its namespace for the sub-path.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.floor import LABEL, SECURITY, SIDECAR, SMALL, changes
from bench.product import IMAGE
from bench.spread import spread
from securebench.cluster.client import ApiCluster, connect
from securebench.cluster.port import ObjectKind, Raw
from securebench.json_values import object_at, text_at

PLAIN = "plain Pod"
CLAIM = "securebench-results"
ENDED = ("Succeeded", "Failed")


def container(name: str, words: str, **more: object) -> dict[str, object]:
    """Return a container with a shell."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", words],
        "resources": SMALL,
        **more,
    }


def sidecar(**more: object) -> dict[str, object]:
    """Return a Pod's part with a native sidecar."""
    return {"initContainers": [container("sidecar", SIDECAR, restartPolicy="Always", **more)]}


def mounted(volume: Mapping[str, object], **more: object) -> dict[str, object]:
    """Return a Pod's part with one volume that its container mounts."""
    mount = {"name": "one", "mountPath": "/one", **more}
    return {
        "volumes": [{"name": "one", **volume}],
        "containers": [container("main", "true", volumeMounts=[mount])],
    }


TOKEN = {"serviceAccountToken": {"path": "token", "audience": "bench", "expirationSeconds": 3600}}
PARTS: Mapping[str, Mapping[str, object]] = {
    PLAIN: {},
    "+ sidecar": sidecar(),
    "+ sidecar with postStart exec": sidecar(
        lifecycle={"postStart": {"exec": {"command": ["true"]}}}
    ),
    "+ init container": {"initContainers": [container("init", "true")]},
    "+ emptyDir": mounted({"emptyDir": {"sizeLimit": "64Mi"}}),
    "+ emptyDir by a sub-path": mounted({"emptyDir": {"sizeLimit": "64Mi"}}, subPath="0"),
    "+ Memory emptyDir": mounted({"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}),
    "+ sub-path of the results volume": mounted(
        {"persistentVolumeClaim": {"claimName": CLAIM}}, subPath="tools", readOnly=True
    ),
    "+ projected token": mounted({"projected": {"sources": [TOKEN]}}),
    "+ exec readiness probe": {
        "containers": [container("main", "true", readinessProbe={"exec": {"command": ["true"]}})]
    },
    "+ user namespace": {"hostUsers": False},
    "+ security context": {"containers": [container("main", "true", securityContext=SECURITY)]},
}


class Parts:
    """Runs bare Pods.

    Args:
        cluster: A namespace.
    """

    def __init__(self, cluster: ApiCluster) -> None:
        self._cluster = cluster
        self._run = f"parts-{uuid.uuid4().hex[:6]}"
        self._ended: dict[str, asyncio.Future[str]] = {}
        self._count = 0

    async def measure(self, in_flight: int, count: int) -> dict[str, list[float]]:
        """Return the milliseconds of at least that many Pods of each shape."""
        found: dict[str, list[float]] = {name: [] for name in PARTS}
        following = asyncio.create_task(self._follow())
        try:
            for _ in range(-(-count // in_flight)):
                for name, part in PARTS.items():
                    found[name] += await asyncio.gather(
                        *(self._pod(part) for _ in range(in_flight))
                    )
        finally:
            following.cancel()
        return found

    async def _pod(self, part: Mapping[str, object]) -> float:
        self._count += 1
        name = f"{self._run}-{self._count}"
        self._ended[name] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        await self._cluster.create(ObjectKind.POD, self._manifest(name, part))
        phase = await self._ended[name]
        took = time.monotonic() - began
        del self._ended[name]
        if phase != "Succeeded":
            raise SystemExit(f"Pod {name}: {phase}")
        await self._cluster.delete(ObjectKind.POD, name, uid=None, grace_seconds=0)
        return 1000 * took

    def _manifest(self, name: str, part: Mapping[str, object]) -> Raw:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {LABEL: self._run}},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "containers": [container("main", "true")],
                **part,
            },
        }

    async def _follow(self) -> None:
        async for _, item in changes(self._cluster, ObjectKind.POD, f"{LABEL}={self._run}"):
            name = text_at(object_at(item, "metadata"), "name")
            phase = text_at(object_at(item, "status"), "phase")
            future = self._ended.get(name)
            if future is not None and not future.done() and phase in ENDED:
                future.set_result(phase)


def table(in_flight: int, found: Mapping[str, Sequence[float]]) -> Table:
    """Return a table of what each shape takes and what it adds."""
    result = Table("Pod", "Pods", "ms: median (least to most)", "more than the plain Pod")
    result.title = f"{in_flight} in flight"
    floor = spread(found[PLAIN]).median
    for name, values in found.items():
        measured = spread(values)
        more = f"{measured.median - floor:+.0f}"
        result.add_row(name, str(len(values)), measured.text(0), more)
    return result


async def main(chosen: argparse.Namespace) -> None:
    """Measure all shapes at each number in flight."""
    async with connect(chosen.namespace) as cluster:
        found = {each: await Parts(cluster).measure(each, chosen.pods) for each in chosen.flights}
    for in_flight, values in found.items():
        Console(width=120).print(table(in_flight, values))
    print(json.dumps(found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", default="securebench")
    parser.add_argument("--pods", type=int, default=16, help="of each shape, at least")
    parser.add_argument("--flights", type=int, nargs="+", default=[1, 8])
    asyncio.run(main(parser.parse_args()))
