"""What happens to runs in a queue, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import NamedTuple

from chaos.kit.verdict import LAUNCHES, differences
from kueue.queues import FINALIZER, PRIORITY_LABEL, QUEUE, URGENT, Queue, is_gated
from securebench.clock import seconds_since_epoch
from securebench.names import QUEUE_LABEL, ROLE_LABEL
from support.comparable import without
from support.release import Raw, Release, benchmark_run, call, condition, images
from support.runs import begin, rows
from support.waiting import until

TASKS = 4
AGENT = "sleep 8; echo 4"
"""Works long enough to be taken back."""

NOWHERE = "nowhere"
"""A queue that does not exist."""

NETWORK = {"type": "command", "config": {"command": AGENT, "allowed_domains": ["allowed.test"]}}
SPEC = {"harness": NETWORK, "isolation": {"require": "Verified"}}
"""With a gateway and a canary beside the launches."""


class Seen(NamedTuple):
    """Something that has to be so.

    Attributes:
        what: What it is.
        found: What was seen.
        is_right: Whether it is so.
    """

    what: str
    found: str
    is_right: bool


class Story:
    """Runs of the same tasks, the first one without a queue.

    Args:
        installed: The release.
        queue: Its queue, which admits nothing yet.
    """

    def __init__(self, installed: Release, queue: Queue) -> None:
        self._installed = installed
        self._queue = queue
        self._plain = ""

    def steps(self) -> Iterator[Seen]:
        """Do everything, and yield what was seen."""
        self._plain = begin(self._installed, rows(TASKS), AGENT, **SPEC)
        self._begin("waits")
        yield from self._waiting("waits")
        yield from self._misnamed("misnamed")
        self._installed.wait_ended(self._plain)
        yield from self._two_by_two("waits")
        yield from self._preempted("preempted")
        yield from self._deactivated("deactivated")
        yield from self._deleted("deleted")

    def _begin(self, name: str, queue: str = QUEUE) -> None:
        """Start the tasks of the plain run in a queue."""
        run = benchmark_run(name, self._installed.get("benchmarkrun", self._plain)["spec"])
        run["metadata"]["labels"] = {QUEUE_LABEL: queue}
        self._installed.create(run)

    def _waiting(self, run: str) -> Iterator[Seen]:
        want = f"Waiting: {TASKS} Pods in queue {QUEUE}"
        seen = self._installed.wait(run, lambda now: want in condition(now)["message"])
        told, said = time.time(), condition(seen)
        gated = self._queue.gated(run)
        made = max(_created(pod) for pod in gated)
        text = f"{said['reason']}: {said['message']}, {told - made:.1f} s after the last Pod"
        yield Seen("quota 0: condition Succeeded", text, said["reason"] == "SchedulingGated")
        yield Seen("gated Pods", f"{len(gated)}", len(gated) == TASKS)
        others = {_role(pod): pod["status"]["phase"] for pod in self._others(run)}
        text = ", ".join(f"{role} {phase}" for role, phase in sorted(others.items()))
        yield Seen("Pods without the queue's label", text, others.get("gateway") == "Running")
        event = self._event(run, "SchedulingGated")
        yield Seen("Event", event, QUEUE in event)
        why = call("securebench", "why", run, "--namespace", self._installed.namespace).decode()
        yield Seen("securebench why", why.strip(), QUEUE in why)
        words = self._words_of_kueue(gated[0])
        yield Seen("Kueue's Workload", words, "insufficient quota for pods" in words)

    def _misnamed(self, run: str) -> Iterator[Seen]:
        """Start a run in a queue that does not exist, and delete it."""
        self._begin(run, NOWHERE)
        want = f"Waiting: {TASKS} Pods in queue {NOWHERE}"
        self._installed.wait(run, lambda now: want in condition(now)["message"])
        words = self._words_of_kueue(self._queue.gated(run)[0])
        yield Seen("no such queue: Kueue's Workload", words, "doesn't exist" in words)
        self._installed.kubectl("delete", "benchmarkrun", run)

    def _two_by_two(self, run: str) -> Iterator[Seen]:
        self._queue.set_quota(2)
        most = 0

        def has_ended(now: Raw) -> bool:
            nonlocal most
            most = max(most, len(self._queue.admitted(run)))
            return condition(now)["status"] != "Unknown"

        self._installed.wait(run, has_ended)
        yield Seen("quota 2: Pods at once", f"{most}", most == 2)
        yield from self._completed(run)

    def _preempted(self, run: str) -> Iterator[Seen]:
        """Let a Pod of higher priority take the place of one that works."""
        self._begin(run)
        self._until_working(run)
        self._installed.create(self._urgent_pod())
        lost = self._lost(run)
        yield Seen("preempted: Event", lost, "Preempted to accommodate a workload" in lost)
        self._installed.kubectl("delete", "pod", URGENT, "--grace-period=1")
        yield from self._completed(run)

    def _deactivated(self, run: str) -> Iterator[Seen]:
        """Let an administrator deactivate the Workload of a Pod that works."""
        self._begin(run)
        self._until_working(run)
        workload = self._workload(self._queue.admitted(run)[0])["metadata"]["name"]
        body = json.dumps({"spec": {"active": False}})
        self._installed.kubectl("patch", "workload", workload, "--type=merge", "-p", body)
        lost = self._lost(run)
        yield Seen("deactivated: Event", lost, "The workload is deactivated" in lost)
        yield from self._completed(run)

    def _deleted(self, run: str) -> Iterator[Seen]:
        """Delete a run of which some Pods work and others wait."""
        self._begin(run)
        self._until_working(run)
        pods = self._queue.pods(run)
        finalized = [pod for pod in pods if FINALIZER in pod["metadata"]["finalizers"]]
        waiting = sum(map(is_gated, pods))
        text = f"{len(pods)} Pods, {len(finalized)} with Kueue's finalizer, {waiting} gated"
        yield Seen("before the run is deleted", text, len(finalized) == len(pods) == TASKS)
        began = time.monotonic()
        self._installed.kubectl("delete", "benchmarkrun", run)
        until(lambda: not self._installed.pods(run), "the Pods are gone")
        names = {pod["metadata"]["uid"] for pod in pods}
        until(lambda: not names & self._owners(), "their Workloads are gone")
        seconds = time.monotonic() - began
        yield Seen(
            "after it", f"no Pod and no Workload of it, {seconds:.1f} s later", is_right=True
        )

    def _completed(self, run: str) -> Iterator[Seen]:
        """Look at a run at its end."""
        ended = condition(self._installed.wait_ended(run))
        text = f"{ended['reason']}: {ended['message']}"
        yield Seen(f"{run}: at its end", text, ended["reason"] == "Completed")
        mine, plain = (
            [without(record, "run_id") for record in self._installed.records(each)]
            for each in (run, self._plain)
        )
        launches = ", ".join(str(record[LAUNCHES]) for record in mine)
        unequal = differences(mine, plain)
        text = "\n".join(unequal) or f"equal to those without a queue; launches: {launches}"
        yield Seen(f"{run}: records", text, not unequal)

    def _until_working(self, run: str) -> None:
        """Wait until the quota is used up and the others wait."""

        def is_working() -> bool:
            phases = [pod["status"]["phase"] for pod in self._queue.admitted(run)]
            return phases == ["Running"] * 2 and len(self._queue.gated(run)) == TASKS - 2

        until(is_working, "two Pods work and two wait")

    def _lost(self, run: str) -> str:
        until(lambda: self._event(run, "LaunchLost"), "a launch was lost")
        return self._event(run, "LaunchLost")

    def _event(self, run: str, reason: str) -> str:
        """Return the note of the latest Event on a run with a reason; empty for none."""
        selector = f"involvedObject.name={run},reason={reason}"
        printed = self._installed.kubectl(
            "get", "events", "--field-selector", selector, "-o", "json"
        )
        found = json.loads(printed)["items"]
        return f"{reason}: {found[-1]['message']}" if found else ""

    def _others(self, run: str) -> list[Raw]:
        """Return the Pods of a run that no queue holds."""
        pods = self._installed.pods(run)
        return [pod for pod in pods if QUEUE_LABEL not in pod["metadata"]["labels"]]

    def _workload(self, pod: Raw) -> Raw:
        """Return a Pod's Workload."""
        uid = pod["metadata"]["uid"]
        (found,) = [each for each in self._queue.workloads() if uid in _owners(each)]
        return found

    def _words_of_kueue(self, pod: Raw) -> str:
        """Return why Kueue does not admit a Pod."""

        def reserved() -> Raw:
            return condition(self._workload(pod), "QuotaReserved")

        until(lambda: reserved()["message"], "Kueue says why it does not admit a Pod")
        return f"{reserved()['reason']}: {reserved()['message']}"

    def _owners(self) -> set[str]:
        """Return the uids of the Pods that have Workloads."""
        return {uid for each in self._queue.workloads() for uid in _owners(each)}

    def _urgent_pod(self) -> Raw:
        labels = {QUEUE_LABEL: QUEUE, PRIORITY_LABEL: URGENT}
        container = {
            "name": "main",
            "image": images()["image.operator"],
            "command": ["sleep", "600"],
            "resources": {"requests": {"cpu": "10m"}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": URGENT, "labels": labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
        }


def _owners(workload: Raw) -> list[str]:
    return [owner["uid"] for owner in workload["metadata"].get("ownerReferences", [])]


def _created(pod: Raw) -> float:
    return seconds_since_epoch(pod["metadata"]["creationTimestamp"]) or 0.0


def _role(pod: Raw) -> str:
    return str(pod["metadata"]["labels"].get(ROLE_LABEL))
