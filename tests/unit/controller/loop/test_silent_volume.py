"""A results volume that hangs: calls block in their threads, and the run says so meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from securebench.clock import SystemClock
from securebench.cluster.port import ObjectKind
from securebench.controller import attempt_keeper, volume_calls
from securebench.controller.attempt_keeper import LaneKeeper
from securebench.controller.lifecycle import Supervisor
from securebench.controller.volume.journal import Journal, read_journal
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import LAUNCH_WAITS
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import Role
from securebench.run.state.entries import Entry, LaunchBegun
from support.build import context_of, question, run_body, write_pack
from support.fake_cluster import FakeCluster
from support.pod_ends import handed_in, judged

LIMIT = 1.0
"""After which calls are late here, in place of some seconds."""

PATIENCE_SECONDS = 60.0
GATE_SECONDS = 120.0
"""After which a gate that nobody opens fails its call."""

NAME = "nightly"


class Gate:
    """Lets calls through, or lets them block as a file server that is away does."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.blocked = 0

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def before(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return work that first gets through the gate."""

        def through(*given: Any, **named: Any) -> Any:
            assert threading.current_thread() is not threading.main_thread()
            self.blocked += not self._open.is_set()
            assert self._open.wait(GATE_SECONDS)
            return work(*given, **named)

        return through


class World:
    """A real operator with real threads and real time; its cluster is in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gate = Gate()
        self.statuses: list[dict[str, Any]] = []
        self.clock: Any = SystemClock()
        self.cluster = FakeCluster(namespace="bench", clock=self.clock)
        write_pack(root / "packs/smoke", [question("a")])
        self.supervisor = Supervisor(context_of(self.cluster, self.clock, root))

    async def apply(self) -> str:
        body = run_body(NAME, parallelism=1)
        made: Any = await self.cluster.create(ObjectKind.BENCHMARK_RUN, body)
        self.supervisor.observe("ADDED", made)
        return str(made["metadata"]["uid"])

    @property
    def said(self) -> tuple[str, str]:
        """Reason and message of ``Succeeded``."""
        run: Any = self.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]
        for item in run.get("status", {}).get("conditions", []):
            if item["type"] == "Succeeded":
                return item["reason"], item["message"]
        return "", ""

    @property
    def is_told(self) -> bool:
        reason, message = self.said
        is_silent = message.startswith("the results volume has not answered since ")
        return reason == "StorageUnavailable" and is_silent

    @property
    def events(self) -> list[dict[str, Any]]:
        """The Events about the volume."""
        found: Any = self.cluster.objects(ObjectKind.EVENT).values()
        return [event for event in found if event["reason"] == "StorageUnavailable"]

    async def until(self, is_so: Callable[[], bool], uid: str = "") -> None:
        """Wait until something is so; Pods end well meanwhile if the run is given."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            assert time.monotonic() < end, self.said
            self._move(uid)
            await asyncio.sleep(0.02)

    def _move(self, uid: str) -> None:
        for raw in list(self.cluster.objects(ObjectKind.POD).values()) if uid else ():
            view = pod_view(raw)
            if view is None or view.is_terminal or view.launch is None:
                continue
            is_verifier = view.launch.role is Role.VERIFIER
            ending = judged if is_verifier else handed_in
            given: Any = (view,) if is_verifier else (view.launch, "B")
            self.cluster.set_pod_status(view.name, ending(self.root, uid, *given))

    async def end(self, uid: str) -> list[dict[str, Any]]:
        """Let the run end; return its records."""
        await self.until(lambda: self.said[0] == "Completed", uid)
        lines = (self.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def entries(self, uid: str) -> tuple[Entry, ...]:
        return read_journal(self.root / "runs" / uid, uid).entries


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(volume_calls, "ANSWER_SECONDS", LIMIT)
    world = World(tmp_path)
    yield world
    world.gate.open()
    await world.supervisor.close()


CALLS = {
    "journal": (Journal, "append"),
    "record": (RunStore, "write_record"),
    "capture": (attempt_keeper, "capture"),
    "lanes": (LaneKeeper, "_find_or_write"),
    "launch folders": (RunStore, "make_launch_folders"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_run_says_that_the_volume_hangs_and_then_goes_on(
    call: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name = CALLS[call]
    monkeypatch.setattr(place, name, world.gate.before(getattr(place, name)))
    uid = await world.apply()
    if call in {"record", "capture"}:  # they come later than the first Pod
        await world.until(lambda: bool(world.cluster.objects(ObjectKind.POD)))
    world.gate.shut()

    await world.until(lambda: world.is_told, uid)

    told, seen = world.said, _files(world.root)
    await asyncio.sleep(1.2)  # more than one look
    assert world.said == told
    assert [event["note"] for event in world.events] == ["the results volume has not answered"]
    assert "series" not in world.events[0]
    assert _files(world.root) == seen, "something was written past the call that hangs"
    world.gate.open()
    await world.until(lambda: not world.is_told)
    records = await world.end(uid)
    assert [record["passed"] for record in records] == [True]
    begun = [each.launch for each in world.entries(uid) if isinstance(each, LaunchBegun)]
    assert len(begun) == len(set(begun)) == 2
    assert world.gate.blocked >= 1


async def test_a_status_is_written_while_every_thread_for_the_volume_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it need a thread of the loop's own, which others may have taken."""
    one = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(one)
    taken = threading.Event()
    blocker = one.submit(taken.wait, GATE_SECONDS)
    monkeypatch.setattr(Journal, "append", world.gate.before(Journal.append))
    world.gate.shut()
    others = [
        asyncio.create_task(volume_calls.on_volume(world.gate.before(int)))
        for _ in range(volume_calls.THREADS)
    ]
    try:
        await world.apply()
        await world.until(lambda: world.is_told)
    finally:
        taken.set()
        world.gate.open()
    assert await asyncio.gather(*others) == [0] * volume_calls.THREADS
    blocker.result()
    await world.until(lambda: not world.is_told)


async def test_calls_that_hang_take_no_thread_from_other_work() -> None:
    gate = Gate()
    gate.shut()
    count = volume_calls.THREADS
    calls = [asyncio.create_task(volume_calls.on_volume(gate.before(int))) for _ in range(count)]
    try:
        await asyncio.sleep(0.5)
        assert gate.blocked == count
        assert await asyncio.wait_for(asyncio.to_thread(int), 5) == 0
    finally:
        gate.open()
        await asyncio.gather(*calls)


async def test_a_run_that_is_deleted_meanwhile_holds_up_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal's file is busy until the call returns; who waits for it is no event loop."""
    monkeypatch.setattr(os, "fsync", world.gate.before(os.fsync))
    await world.apply()
    await world.until(lambda: bool(world.cluster.objects(ObjectKind.POD)))
    world.gate.shut()
    await world.until(lambda: world.gate.blocked > 0, await _uid(world))
    began = time.monotonic()
    world.supervisor.observe("DELETED", world.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME])
    await asyncio.sleep(0.3)
    assert time.monotonic() < began + GATE_SECONDS / 2, "the event loop stood still"
    world.gate.open()
    await world.supervisor.close()


async def _uid(world: World) -> str:
    run: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]
    return str(run["metadata"]["uid"])


def _files(root: Path) -> dict[str, int]:
    """Return the sizes of files on the volume but for what launches wait for, which is no state."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != LAUNCH_WAITS]
    return {str(path): path.stat().st_size for path in paths}
