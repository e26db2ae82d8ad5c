"""Evaluates the gates of a suite after each round; returns the results that passed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.runtime.context import Context
from securebench.controller.volume.index import RunIndex
from securebench.controller.volume.result_file import read_baseline, read_run, sealed_digest
from securebench.controller.volume.suite_store import SuiteStore
from securebench.core.errors import StorageError
from securebench.core.json_values import object_at, text_at
from securebench.files.untrusted import UnreadableError
from securebench.run.api.conditions import ConditionStatus
from securebench.suite.api.models import Baseline, BenchmarkSuiteSpec, Gates
from securebench.suite.api.status import CellState
from securebench.suite.decide import RoundVerdict
from securebench.suite.expansion import Cell
from securebench.suite.gates import CellResults, GateReport, JudgedCell, judge, read_results
from securebench.suite.progress import CellProgress
from securebench.suite.rounds import GoodResult


class _Source(NamedTuple):
    """Records to read; a text says why there are none.

    Args:
        name: How the run is called in messages.
        uid: UID of the run.
        sha256: Hex digest of its records.
    """

    name: str
    uid: str
    sha256: str


class _NoBaselineYet(NamedTuple):
    """The suite is its own baseline and has no good result of the cell yet."""


_Named = _Source | _NoBaselineYet | Baseline | str | None


class GateEvaluator:
    """Judges the rounds of one suite.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: Name of the suite.
    """

    def __init__(self, context: Context, suite: str) -> None:
        self._suite = suite
        self._cluster: Cluster = context.cluster
        self._root = context.settings.data_root
        self._judged: tuple[object, GateReport] | None = None

    async def verdict(
        self, spec: BenchmarkSuiteSpec, wanted: Sequence[Cell], cells: Sequence[CellProgress]
    ) -> RoundVerdict:
        """Return what the gates say.

        Args:
            spec: Spec of the suite.
            wanted: Its cells.
            cells: How far they are; their runs have ended.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        report = await self._report(spec, wanted, cells)
        is_good = report.status is ConditionStatus.TRUE
        return RoundVerdict(report, await self._good_results(cells) if is_good else {})

    async def _report(
        self, spec: BenchmarkSuiteSpec, wanted: Sequence[Cell], cells: Sequence[CellProgress]
    ) -> GateReport:
        gates = spec.gates or Gates()
        sources = [await self._baseline(spec, gates, cell) for cell in wanted]
        key = gates, tuple((each.cell, each.uid, each.state) for each in cells), *sources
        if self._judged is None or self._judged[0] != key:
            baselines = {str(cell.id): of for cell, of in zip(wanted, sources, strict=True)}
            report = await asyncio.to_thread(self._judge, gates, cells, baselines)
            self._judged = key, report
        return self._judged[1]

    async def _good_results(self, cells: Sequence[CellProgress]) -> dict[str, GoodResult]:
        return {
            cell.cell: GoodResult(
                cell.run, cell.uid, await asyncio.to_thread(sealed_digest, self._root, cell.uid)
            )
            for cell in cells
        }

    async def _baseline(self, spec: BenchmarkSuiteSpec, gates: Gates, cell: Cell) -> _Named:
        named = cell.pack.baseline or spec.baseline
        if gates.not_worse is None or named is None:
            return None
        if named.suite is not None:
            return await self._of_suite(named.suite, str(cell.id))
        if named.run is not None:
            return await asyncio.to_thread(self._of_run, named.run)
        return named

    async def _of_suite(self, name: str, cell: str) -> _Source | _NoBaselineYet | str:
        raw = await self._cluster.get(ObjectKind.BENCHMARK_SUITE, name)
        if raw is None:
            return f"its baseline, BenchmarkSuite {name}, does not exist"
        uid = text_at(object_at(raw, "metadata"), "uid")
        state = await asyncio.to_thread(SuiteStore(self._root, uid).read)
        is_own = name == self._suite
        known = {} if state is None else state.good if is_own else state.latest_good
        good = known.get(cell)
        if good is None and is_own:
            return _NoBaselineYet()
        if good is None:
            return f"its baseline, BenchmarkSuite {name}, has no good result of this cell yet"
        return _Source(good.run, good.uid, good.sha256)

    def _of_run(self, name: str) -> _Source | str:
        entry = RunIndex(self._root).latest(name)
        if entry is None or not entry.outcome:
            return f"its baseline, BenchmarkRun {name}, was not run to its end"
        return _Source(name, entry.uid, sealed_digest(self._root, entry.uid))

    def _judge(
        self,
        gates: Gates,
        cells: Sequence[CellProgress],
        baselines: dict[str, _Named],
    ) -> GateReport:
        judged = [
            JudgedCell(
                cell.cell,
                self._results(cell),
                self._compared_with(baselines.get(cell.cell)),
                cell.tries,
                isinstance(baselines.get(cell.cell), _NoBaselineYet),
            )
            for cell in cells
        ]
        return judge(gates, judged)

    def _results(self, cell: CellProgress) -> CellResults | str:
        if cell.state is not CellState.SUCCEEDED:
            return f"{cell.cell} has no result: {cell.message}"
        digest = sealed_digest(self._root, cell.uid)
        return self._read(_Source(cell.run, cell.uid, digest))

    def _compared_with(self, source: _Named) -> CellResults | str | None:
        if isinstance(source, _Source):
            return self._read(source)
        if isinstance(source, Baseline) and source.file is not None:
            file = source.file
            read = partial(read_results, file.path)
            try:
                return read_baseline(self._root, file.path, file.sha256, read)
            except UnreadableError as error:
                return f"its baseline cannot be read: {error}"
        return source if isinstance(source, str) else None

    def _read(self, source: _Source) -> CellResults | str:
        read = partial(read_results, source.name)
        try:
            return read_run(self._root, source.uid, source.sha256, read)
        except (UnreadableError, StorageError, ValueError) as error:
            return f"the records of {source.name} cannot be read: {error}"
