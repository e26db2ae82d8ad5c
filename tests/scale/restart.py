"""How long a killed operator takes until it decides again, in a long run with much under way."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from bench.floor import changes
from scale.decisions import finished_attempt
from scale.kubelet import dated, left_behind
from scale.sessions import Session, Shape
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.volume.lead import highest_epoch
from securebench.controller.volume.store import RunStore
from securebench.json_values import object_at, text_at
from securebench.names import RUN_UID_LABEL
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import AttemptKey
from securebench.run.state.entries import Entry
from support.fake_operator import record
from support.leads import take_volume

ENDED = 64
"""Pods that end while no operator is there: two batches of verification, and as many free slots."""


class Restart(NamedTuple):
    """A restart.

    Attributes:
        finished: Attempts with a record; they were written into journal and volume.
        live: Attempts with a Pod; the operator created them.
        ready_seconds: From the start of the process until it serves metrics: Python and imports.
        seconds: From the start of the process to the first Pod that it creates.
        peak_mib: Most memory of the new process until then.
    """

    finished: int
    live: int
    ready_seconds: float
    seconds: float
    peak_mib: float


async def restart(session: Session, finished: int, live: int) -> Restart:
    """Kill an operator and start it again; in between Pods end, so that there is work.

    Args:
        session: What all measurements share.
        finished: Attempts that have a record.
        live: Attempts that have a Pod.
    """
    operator = session.operator
    operator.start()
    try:
        operator.wait_ready()
        names = await session.create(Shape(finished + live + ENDED, live))
        pods = await running(session, live)
        operator.end(signal.SIGKILL)
        uid = text_at(object_at(object_at(pods[0], "metadata"), "labels"), RUN_UID_LABEL)
        write_finished(session.root, uid, range(live, live + finished))
        for pod in pods[:ENDED]:
            await end(session, uid, pod)
        times = await first_pod(session, {str(metadata(pod)["name"]) for pod in pods})
        found = Restart(finished, live, *times, operator.peak_mib())
    finally:
        operator.end()
    await session.remove(names)
    return found


async def running(session: Session, count: int) -> list[Raw]:
    """Return that many Pods of launches once they run."""
    found: dict[str, Raw] = {}
    async with aclosing(changes(session.cluster, ObjectKind.POD, RUN_UID_LABEL)) as seen:
        async for _, item in seen:
            if text_at(object_at(item, "status"), "phase") == "Running":
                found[str(metadata(item)["name"])] = item
            if len(found) == count:
                return list(found.values())
    raise SystemExit("the watch of Pods ended")


def write_finished(root: Path, uid: str, tasks: range) -> None:
    """Write journal and records of attempts as an operator would have left them that led last."""
    store = RunStore(root, uid, take_volume(root, highest_epoch(root) + 1, "scale"))
    journal = store.open_journal()
    try:
        journal.append(entries(store, tasks))
    finally:
        journal.close()


def entries(store: RunStore, tasks: range) -> Iterator[Entry]:
    """Yield the journal of attempts that passed, and write the record of each."""
    for task in tasks:
        key = AttemptKey(task, 1)
        line = json.dumps(record(f"task-{task}")).encode()
        yield from finished_attempt(key, store.write_record(key, [line]))


async def end(session: Session, uid: str, pod: Raw) -> None:
    """End a Pod now."""
    view, now = pod_view(pod), time.time()
    assert view is not None
    status = dated(left_behind(session.root, uid, view), now, now)
    await session.cluster.patch_status(ObjectKind.POD, view.name, {"status": status})


async def first_pod(session: Session, known: set[str]) -> tuple[float, float]:
    """Start the operator; return the seconds until it is ready, and until it creates a Pod."""

    async def until_new() -> float:
        async with aclosing(changes(session.cluster, ObjectKind.POD, RUN_UID_LABEL)) as seen:
            async for _, item in seen:
                if str(metadata(item)["name"]) not in known:
                    return time.monotonic()
        raise SystemExit("the watch of Pods ended")

    began = time.monotonic()
    session.operator.start()
    following = asyncio.create_task(until_new())
    await asyncio.to_thread(session.operator.wait_ready)
    ready = time.monotonic()
    return ready - began, await following - began
