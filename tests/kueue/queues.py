"""A queue of Kueue in the namespace of a release, and what waits in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from kueue.controller import only
from securebench.names import QUEUE_LABEL
from support.release import Raw, Release, call
from support.waiting import KUBECTL_TIMEOUT

API = "kueue.x-k8s.io/v1beta2"
QUEUE = "team-a"
GATE = {"name": "kueue.x-k8s.io/admission"}
FINALIZER = "kueue.x-k8s.io/managed"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
URGENT = "urgent"
ROOM = {"cpu": "1k", "memory": "1Ti", "ephemeral-storage": "1Ti"}
"""More than any node has: it is Pods that the quota counts."""


class Queue:
    """A LocalQueue with a ClusterQueue that admits Pods of one namespace.

    Args:
        installed: The release whose runs wait in it.
    """

    def __init__(self, installed: Release) -> None:
        self._installed = installed
        self._shared = installed.namespace

    def set_quota(self, pods: int) -> None:
        """Let this many Pods go at once."""
        quota = {"pods": str(pods), **ROOM}
        resources = [{"name": name, "nominalQuota": most} for name, most in quota.items()]
        flavors = [{"name": self._shared, "resources": resources}]
        spec = {
            "namespaceSelector": only(self._installed.namespace),
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": list(quota), "flavors": flavors}],
        }
        self._apply(self._object("ClusterQueue", self._shared, spec=spec))

    def open(self) -> None:
        """Create it, without a quota."""
        self._apply(self._object("ResourceFlavor", self._shared))
        self._apply(self._object("WorkloadPriorityClass", URGENT, value=1000))
        self.set_quota(0)
        local = self._object("LocalQueue", QUEUE, spec={"clusterQueue": self._shared})
        self._installed.create(local)

    def close(self) -> None:
        """Delete it, and first what is in it: no finalizer of Kueue may outlive its controller."""
        self._installed.kubectl("delete", "benchmarkruns", "--all")
        self._installed.kubectl("delete", "pods", "-l", QUEUE_LABEL)
        self._installed.kubectl("wait", "--for=delete", "workloads", "--all", KUBECTL_TIMEOUT)
        self._installed.kubectl("delete", "localqueues", "--all")
        call("kubectl", "delete", "clusterqueue,resourceflavor", self._shared)
        call("kubectl", "delete", "workloadpriorityclass", URGENT)

    def pods(self, run: str) -> list[Raw]:
        """Return the Pods of a run that are in the queue or have gone through it."""
        return [
            pod for pod in self._installed.pods(run) if QUEUE_LABEL in pod["metadata"]["labels"]
        ]

    def gated(self, run: str) -> list[Raw]:
        """Return the Pods of a run that Kueue holds."""
        return [pod for pod in self.pods(run) if is_gated(pod)]

    def admitted(self, run: str) -> list[Raw]:
        """Return the Pods of a run that hold quota."""
        return [
            pod
            for pod in self.pods(run)
            if not is_gated(pod) and pod["status"]["phase"] in {"Pending", "Running"}
        ]

    def workloads(self) -> list[Raw]:
        """Return Kueue's objects, one for each Pod."""
        found = json.loads(self._installed.kubectl("get", "workloads", "-o", "json"))
        items: list[Raw] = found["items"]
        return items

    def _apply(self, wanted: Raw) -> None:
        words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        call("kubectl", *words, stdin=json.dumps(wanted).encode())

    def _object(self, kind: str, name: str, **more: object) -> Raw:
        return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, **more}


def is_gated(pod: Raw) -> bool:
    """Whether Kueue holds a Pod."""
    return GATE in pod["spec"].get("schedulingGates", [])


@contextmanager
def queue(installed: Release) -> Iterator[Queue]:
    """Make a queue that admits nothing yet."""
    made = Queue(installed)
    try:
        made.open()
        yield made
    finally:
        made.close()
