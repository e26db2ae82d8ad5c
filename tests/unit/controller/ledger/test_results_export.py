"""candidates.jsonl follows the journal, though not at every record; the end seals it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from unittest import mock

import pytest

from securebench.controller.run_ledger import RunLedger
from securebench.controller.sealing import EXPORT_SHARE, ResultsExport
from securebench.controller.volume.store import RunStore
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Finish
from support.build import inline
from unit.controller.binding.test_prepare import World


class Results(World):
    """A run of three tasks, and what it leaves for others to read."""

    async def begin(self) -> None:
        bound = await self.bind()
        self.store = bound.store
        self.ledger = await RunLedger.open(bound.plan, bound.store, self.clock)
        self.results = ResultsExport(self.context, self.ledger)
        self.interval = self.context.settings.status_interval_seconds

    async def finish(self, task: int) -> None:
        key = AttemptKey(task, 1)
        end = Finish(key, Outcome.INFRASTRUCTURE, "pod_lost", "producer", "gone")
        await self.ledger.finish([end])

    def lines(self) -> int:
        return len((self.store.folder / "candidates.jsonl").read_bytes().splitlines())


@pytest.fixture
async def kept(tmp_path: Path) -> Results:
    with mock.patch.object(asyncio, "to_thread", inline):
        world = Results(tmp_path)
        await world.begin()
        yield world
        await world.ledger.close()


async def test_the_first_export_comes_at_once_and_the_next_ones_less_often(kept: Results) -> None:
    assert kept.results.due_at() is None
    await kept.results.export()
    await kept.finish(0)
    await kept.results.export()
    assert (kept.lines(), kept.results.exported.records) == (0, 0)
    assert kept.results.due_at() == kept.clock.monotonic() + kept.interval
    kept.clock.advance(kept.interval)
    await kept.results.export()
    assert (kept.lines(), kept.results.exported.records) == (1, 1)
    assert kept.results.due_at() is None


async def test_a_long_file_is_written_for_a_share_of_the_time(kept: Results) -> None:
    real = RunStore.export

    def slow(*given: object) -> object:
        kept.clock.advance(30.0)
        return real(*given)

    with mock.patch.object(RunStore, "export", slow):
        await kept.results.export()
    await kept.finish(0)
    assert kept.results.due_at() == kept.clock.monotonic() + 30.0 * EXPORT_SHARE


async def test_what_is_held_back_is_there_when_it_is_asked_for(kept: Results) -> None:
    await kept.results.export()
    await kept.finish(0)
    await kept.results.export(at_once=True)
    assert kept.lines() == 1


async def test_the_end_is_written_behind_the_results(kept: Results) -> None:
    await kept.results.export()
    for task in range(3):
        await kept.finish(task)
    await kept.results.seal("Incomplete", "3 of 3 attempts have no verdict")
    exported, ended = kept.results.exported, kept.ledger.history.ended
    assert (kept.lines(), exported.records, exported.is_sealed) == (3, 3, True)
    assert exported.published_sha256
    assert ended is not None
    assert (ended.reason, ended.message) == ("Incomplete", "3 of 3 attempts have no verdict")
    summary = json.loads((kept.store.folder / "summary.json").read_bytes())
    assert summary["sha256"] == exported.sha256


async def test_an_end_is_journalled_once(kept: Results) -> None:
    await kept.results.seal("Completed", "")
    before = (kept.store.folder / "journal.jsonl").read_bytes()
    await kept.results.seal("Incomplete", "")
    assert (kept.store.folder / "journal.jsonl").read_bytes() == before
