"""Where the time of one task goes: milliseconds per step from ``apply`` to record.

Kubernetes' own times have whole seconds. So every change of a Pod and every Event of the kubelet is
stamped when this program's watch brings it; the journal has the operator's own times. All clocks
are the machine's.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

from bench.floor import changes
from bench.product import ProductRun
from bench.spread import Spread, spread
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw
from securebench.json_values import object_at, text_at
from securebench.names import MANAGED_BY_LABEL, ROLE_LABEL, RUN_UID_LABEL
from securebench.names import TASK_INDEX_ANNOTATION as TASK

SELECTOR = f"{MANAGED_BY_LABEL}=securebench-operator"
FIELD_PATH = re.compile(r"^spec\.(initContainers|containers)\{.*\}$")

POD_MARKS = (
    ("created", "Pod created"),
    ("scheduled", "has a node"),
    ("sandbox", "has a sandbox and a network"),
    ("beside", "first sidecar or init container runs"),
    ("main", "main container runs"),
    ("main ended", "main container has ended"),
    ("ended", "every container has ended"),
)
"""What a Pod reaches, in this order; a short-lived container may pass a mark unseen. The
Pod's phase follows later and nobody waits for it."""


class Step(NamedTuple):
    """One step: what was reached, and the milliseconds since the step before it."""

    reached: str
    milliseconds: float


class Seen:
    """When each Pod reached what, in seconds since the epoch."""

    def __init__(self) -> None:
        self.marks: dict[str, dict[str, float]] = {}
        self.pods: dict[str, Raw] = {}

    def pod(self, item: Raw, at: float) -> None:
        """Take a change of a Pod in."""
        name = text_at(object_at(item, "metadata"), "name")
        self.pods[name] = item
        for mark in reached(item):
            self._note(name, mark, at)

    def event(self, item: Raw, at: float) -> None:
        """Take an Event in that says that a container was started."""
        regarding = object_at(item, "regarding")
        place = FIELD_PATH.match(text_at(regarding, "fieldPath"))
        if text_at(item, "reason") == "Started" and place is not None:
            mark = "main" if place[1] == "containers" else "beside"
            self._note(text_at(regarding, "name"), mark, at)

    def _note(self, name: str, mark: str, at: float) -> None:
        known = self.marks.setdefault(name, {})
        known[mark] = min(at, known.get(mark, at))

    def of(self, uid: str, task: int | None, role: str) -> Mapping[str, float]:
        """Return the marks of a run's Pod; of the last one, where there were several."""
        found: Mapping[str, float] = {}
        for name, item in self.pods.items():
            metadata = object_at(item, "metadata")
            labels, annotations = (object_at(metadata, key) for key in ("labels", "annotations"))
            index = text_at(annotations, TASK)
            is_wanted = labels.get(RUN_UID_LABEL) == uid and labels.get(ROLE_LABEL) == role
            if is_wanted and (task is None or index == str(task)):
                found = self.marks[name]
        return found


def reached(item: Raw) -> Iterable[str]:
    """Yield the marks that a Pod has passed, as its status says."""
    status = object_at(item, "status")
    conditions = {text_at(each, "type"): each for each in _items(status, "conditions")}
    yield "created"
    for mark, kind in (("scheduled", "PodScheduled"), ("sandbox", "PodReadyToStartContainers")):
        if text_at(conditions.get(kind, {}), "status") == "True":
            yield mark
    fields = ("initContainerStatuses", "containerStatuses")
    beside, main = ([object_at(each, "state") for each in _items(status, key)] for key in fields)
    for mark, states in (("beside", beside), ("main", main)):
        if any("running" in state or "terminated" in state for state in states):
            yield mark
    for mark, states in (("main ended", main), ("ended", [*beside, *main])):
        if main and all("terminated" in state for state in states):
            yield mark


def _items(status: Raw, key: str) -> list[Raw]:
    found = status.get(key)
    return found if isinstance(found, list) else []


def task_steps(journal: str, seen: Seen, uid: str, task: int) -> list[Step]:
    """Return the steps of one task, from its first launch to its record."""
    begun, finished = launch_times(journal, task)
    times = [("harness: begun in the journal", begun["harness"])]
    for role in ("harness", "verifier"):
        if role == "verifier" and role in begun:
            times.append(("verifier: candidate sealed, begun in the journal", begun[role]))
        marks = seen.of(uid, task, role)
        times += [(f"{role}: {words}", marks[mark]) for mark, words in POD_MARKS if mark in marks]
    return between([*times, ("record written", finished)])


def run_steps(journal: str, seen: Seen, run: ProductRun) -> list[Step]:
    """Return what comes before the first task of a run and after the last one."""
    marks = run_times(journal)
    times = [("apply", run.applied_at), ("run: journal opened", marks["opened"])]
    canary = seen.of(run.uid, None, "canary")
    times += [(f"canary: {words}", canary[mark]) for mark, words in POD_MARKS if mark in canary]
    before = between([*times, ("run: first launch in the journal", marks["begun"])])
    after = between([("", marks["finished"]), ("run: Succeeded in the status", run.succeeded_at)])
    return [*before, *after]


def between(times: Iterable[tuple[str, float]]) -> list[Step]:
    """Return the milliseconds between neighbours; a report that comes late makes no negative."""
    steps: list[Step] = []
    last: float | None = None
    for words, at in times:
        if last is not None:
            steps.append(Step(words, max(0.0, at - last) * 1000))
        last = at if last is None else max(last, at)
    return steps


def entries(journal: str) -> list[tuple[str, Raw]]:
    """Return type and content of every line of a journal."""
    lines = (json.loads(line.split(" ", 2)[2]) for line in journal.splitlines())
    return [(line["type"], line["entry"]) for line in lines]


def launch_times(journal: str, task: int) -> tuple[dict[str, float], float]:
    """Return when a task's first launch of each role began, and when its record was written."""
    begun: dict[str, float] = {}
    finished = 0.0
    for kind, entry in entries(journal):
        if kind == "LaunchBegun" and entry["launch"][0] == task:
            begun.setdefault(entry["launch"][2], entry["at"])
        if kind == "Finished" and entry["finish"]["key"][0] == task:
            finished = entry["at"]
    return begun, finished


def run_times(journal: str) -> dict[str, float]:
    """Return when a journal was opened, its first launch began and its last record was written."""
    by_kind = {"Opened": "opened", "LaunchBegun": "begun", "Finished": "finished"}
    found: dict[str, float] = {}
    for kind, entry in entries(journal):
        mark = by_kind.get(kind)
        if mark == "finished":
            found[mark] = entry["at"]
        elif mark is not None:
            found.setdefault(mark, entry["at"])
    return found


def summary(tasks: Iterable[list[Step]]) -> list[tuple[str, Spread]]:
    """Return the steps of several tasks, in their order, with median and spread of each."""
    found: dict[str, list[float]] = {}
    for steps in tasks:
        for step in steps:
            found.setdefault(step.reached, []).append(step.milliseconds)
        found.setdefault("all", []).append(sum(step.milliseconds for step in steps))
    total = found.pop("all")
    return [*((words, spread(values)) for words, values in found.items()), ("all", spread(total))]


@asynccontextmanager
async def watching(cluster: ApiCluster) -> AsyncIterator[Seen]:
    """Watch the operator's Pods and the namespace's Events until the block ends."""
    seen = Seen()

    async def pods() -> None:
        async with aclosing(changes(cluster, ObjectKind.POD, SELECTOR)) as found:
            async for _, item in found:
                seen.pod(item, time.time())

    async def events() -> None:
        async with aclosing(changes(cluster, ObjectKind.EVENT, "")) as found:
            async for _, item in found:
                seen.event(item, time.time())

    followers = [asyncio.create_task(each()) for each in (pods, events)]
    try:
        yield seen
    finally:
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
