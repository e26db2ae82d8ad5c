"""Whoever opens a run's journal gives it back, wherever the run's loop is cut."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import lifecycle, volume_calls
from securebench.controller.lifecycle import Supervisor
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.store import RunStore
from support.build import context_of
from unit.controller.binding.test_prepare import World as Bound
from unit.controller.loop.test_silent_volume import NAME, PATIENCE_SECONDS, Gate, World

TRIES = 50
"""Of what a thread of its own may be faster than."""


class Journals:
    """The journals that were opened and are not given back."""

    def __init__(self) -> None:
        self.opened = 0
        self.open: set[Journal] = set()

    def opening(self, real: Callable[..., Journal]) -> Callable[..., Journal]:
        def opening(store: RunStore) -> Journal:
            journal = real(store)
            self.opened += 1
            self.open.add(journal)
            return journal

        return opening

    def closing(self, real: Callable[..., None]) -> Callable[..., None]:
        def closing(journal: Journal, *last: Any) -> None:
            real(journal, *last)
            self.open.discard(journal)

        return closing

    async def given_back(self) -> None:
        await until(lambda: self.opened > 0 and not self.open)


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> Journals:
    journals = Journals()
    monkeypatch.setattr(RunStore, "open_journal", journals.opening(RunStore.open_journal))
    monkeypatch.setattr(Journal, "close", journals.closing(Journal.close))
    return journals


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS / 10
    while not is_so():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def cut(work: Awaitable[object], before: Callable[[], None] = lambda: None) -> None:
    """Cancel work right after it has asked for a thread."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    before()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def take_threads(until_set: threading.Event) -> list[asyncio.Task[bool]]:
    """Have every thread for the volume taken for a while."""
    wait = (volume_calls.on_volume(until_set.wait, 60) for _ in range(volume_calls.THREADS))
    others = [asyncio.create_task(each) for each in wait]
    await asyncio.sleep(0.05)
    return others


async def test_a_close_that_is_cancelled_is_done_all_the_same(
    journals: Journals, tmp_path: Path
) -> None:
    bound = await Bound(tmp_path).bind()
    for _ in range(TRIES):
        await cut((await RunLedger.open(bound.plan, bound.store, Bound(tmp_path).clock)).close())
        await journals.given_back()


async def test_a_close_that_finds_no_thread_is_done_all_the_same(
    journals: Journals, tmp_path: Path
) -> None:
    """Who closes is let go at once, whenever a thread is free again."""
    bound, free = await Bound(tmp_path).bind(), threading.Event()
    ledger = await RunLedger.open(bound.plan, bound.store, Bound(tmp_path).clock)
    others = await take_threads(free)
    try:
        await cut(ledger.close())
        assert journals.open
    finally:
        free.set()
        await asyncio.gather(*others)
    await journals.given_back()


async def test_a_journal_whose_opener_is_cut_before_it_hears_of_it_is_closed(
    journals: Journals, tmp_path: Path
) -> None:
    bound = await Bound(tmp_path).bind()

    def wait_in_the_loop() -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not journals.opened:
            assert time.monotonic() < end
        time.sleep(0.05)  # nothing that the thread tells is heard meanwhile

    await cut(RunLedger.open(bound.plan, bound.store, Bound(tmp_path).clock), wait_in_the_loop)
    await journals.given_back()


async def open_in_vain(world: World, monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    """Stop the operator while a thread opens a run's journal, which takes until then."""
    gate, context = Gate(), context_of(world.cluster, world.clock, world.root)
    monkeypatch.setattr(RunStore, "open_journal", gate.before(RunStore.open_journal))
    gate.shut()
    world.supervisor = Supervisor(context)
    world.supervisor.observe("ADDED", body)
    await until(lambda: gate.blocked > 0)
    await world.supervisor.close()
    gate.open()


@pytest.mark.parametrize("spec", [{}, {"nonsense": 1}], ids=["goes on", "is refused"])
async def test_a_run_that_is_cut_while_its_journal_is_opened_leaves_it_closed(
    spec: dict[str, object], world: World, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.apply()
    await world.until(lambda: bool(world.cluster.objects(ObjectKind.POD)))
    await world.supervisor.close()
    await journals.given_back()
    run: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]
    opened = journals.opened
    await open_in_vain(world, monkeypatch, run | {"spec": run["spec"] | spec})
    await until(lambda: journals.opened > opened)
    await journals.given_back()


async def test_a_run_whose_loop_cannot_be_made_leaves_its_journal_closed(
    world: World, journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(lifecycle, "RunLoop", defect)
    await world.apply()
    await world.until(lambda: world.said[0] == "Internal")
    await journals.given_back()
    await world.supervisor.close()
