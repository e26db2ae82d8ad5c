"""Evaluates the gates of a suite: after each round, and on the records of runs that go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from securebench.controller.context import Context
from securebench.controller.suites.baseline_reader import (
    BaselineReader,
    Bindings,
    NamedBaseline,
    NoBaselineYet,
    SealedRun,
    read_sealed,
    said_bindings,
)
from securebench.controller.volume.results import (
    count_records,
    read_so_far,
    sealed_digest,
)
from securebench.controller.volume_calls import bulk_on_volume
from securebench.files import UnreadableError
from securebench.run.api.status import ConditionStatus
from securebench.suite.api.models import Baseline, BenchmarkSuiteSpec, Gates
from securebench.suite.api.status import CellState
from securebench.suite.decide import LOOKS_SECONDS, RoundVerdict
from securebench.suite.expansion import Cell
from securebench.suite.gates.judge import judge
from securebench.suite.gates.not_worse import LookState, look_state
from securebench.suite.gates.results import CellResults, JudgedCell, read_results
from securebench.suite.gates.verdict import GateReport
from securebench.suite.progress import CellProgress
from securebench.suite.rounds import PassedResult

_WITH_RECORDS = frozenset({CellState.SUCCEEDED, CellState.STOPPED})


class _Judged(NamedTuple):
    """What the gates said.

    Attributes:
        report: The condition.
        is_final: Whether it stays so while all that was judged is named as before.
        key: What was judged.
        at: When, in monotonic seconds.
    """

    report: GateReport
    is_final: bool
    key: object
    at: float

    def holds_at(self, now: float) -> bool:
        """Whether it is not asked again yet."""
        return self.is_final or now - self.at < LOOKS_SECONDS


class GateEvaluator:
    """Judges the rounds of one suite.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: Name of the suite.
    """

    def __init__(self, context: Context, suite: str) -> None:
        self._root = context.settings.data_root
        self._clock = context.clock
        self._baselines = BaselineReader(context, suite)
        self._judged: _Judged | None = None
        self._looked: dict[str, tuple[object, LookState]] = {}

    async def bound(self, spec: BenchmarkSuiteSpec, known: Bindings) -> Bindings:
        """Return what the baselines are bound to, see ``BaselineReader.bound``."""
        return await self._baselines.bound(spec, known)

    async def verdict(
        self,
        spec: BenchmarkSuiteSpec,
        wanted: Sequence[Cell],
        cells: Sequence[CellProgress],
        bindings: Bindings,
    ) -> RoundVerdict:
        """Return what the gates say.

        Args:
            spec: Spec of the suite.
            wanted: Its cells.
            cells: How far they are; their runs have ended.
            bindings: What the baselines are bound to.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        self._looked.clear()
        report = await self._report(spec, wanted, cells, bindings)
        is_good = report.status is ConditionStatus.TRUE
        return RoundVerdict(report, await self._passed_results(cells) if is_good else {})

    async def regressions(
        self,
        spec: BenchmarkSuiteSpec,
        wanted: Sequence[Cell],
        cells: Sequence[CellProgress],
        bindings: Bindings,
    ) -> Mapping[str, str]:
        """Return what shows that a cell is worse than its baseline, of those whose run goes on.

        Args:
            spec: Spec of the suite.
            wanted: Its cells.
            cells: How far they are.
            bindings: What the baselines are bound to.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        named = {str(cell.id): cell for cell in wanted}
        found: dict[str, str] = {}
        for cell in cells:
            # A round keeps its cells until the next one, whatever becomes of the matrix.
            if cell.state is CellState.RUNNING and cell.cell in named:
                baseline = await self._baselines.named(spec, named[cell.cell], bindings)
                said = await bulk_on_volume(self._regression, spec, cell, baseline, len(cells))
                found |= {cell.cell: said} if said else {}
        return found

    def _regression(
        self, spec: BenchmarkSuiteSpec, cell: CellProgress, named: NamedBaseline, cells: int
    ) -> str:
        """Return what the looks so far show; records are read only if another one can be due."""
        gate = spec.gates.not_worse if spec.gates is not None else None
        if gate is None or not isinstance(named, SealedRun | Baseline):
            return ""
        key = gate, named, cell.uid, cells
        known = self._looked.get(cell.cell)
        if known is not None and known[0] == key and not self._has_reached(cell.uid, known[1]):
            return known[1].regression
        baseline = self._baselines.read(named)
        judged = JudgedCell(cell.cell, self._results_so_far(cell), baseline)
        found = look_state(gate, judged, cells)
        self._looked[cell.cell] = key, found
        return found.regression

    def _has_reached(self, uid: str, known: LookState) -> bool:
        needed = known.next_tasks
        return needed is not None and count_records(self._root, uid) >= needed

    def _results_so_far(self, cell: CellProgress) -> CellResults | str:
        try:
            return read_so_far(self._root, cell.uid, partial(read_results, cell.run))
        except UnreadableError as error:
            return f"{cell.run}: {error}"

    async def _report(
        self,
        spec: BenchmarkSuiteSpec,
        wanted: Sequence[Cell],
        cells: Sequence[CellProgress],
        bindings: Bindings,
    ) -> GateReport:
        """Return what the gates say; undecided for want of a file, they try again once a minute."""
        gates = spec.gates or Gates()
        sources = [await self._baselines.named(spec, cell, bindings) for cell in wanted]
        key = gates, tuple((each.cell, each.uid, each.state) for each in cells), *sources
        known, now = self._judged, self._clock.monotonic()
        if known is not None and known.key == key and known.holds_at(now):
            return known.report
        baselines = {str(cell.id): of for cell, of in zip(wanted, sources, strict=True)}
        report, is_final = await bulk_on_volume(self._judge, gates, cells, baselines)
        if gates.not_worse is not None and bindings:
            message = f"{report.message} | baselines: {said_bindings(spec, bindings)}"
            report = report._replace(message=message)
        self._judged = _Judged(report, is_final, key, now)
        return report

    async def _passed_results(self, cells: Sequence[CellProgress]) -> dict[str, PassedResult]:
        return {
            cell.cell: PassedResult(
                cell.run,
                cell.uid,
                await bulk_on_volume(sealed_digest, self._root, cell.uid),
            )
            for cell in cells
        }

    def _judge(
        self,
        gates: Gates,
        cells: Sequence[CellProgress],
        baselines: Mapping[str, NamedBaseline],
    ) -> tuple[GateReport, bool]:
        """Return what the gates say, and whether that is decided or every file could be read."""
        judged = [
            JudgedCell(
                cell.cell,
                self._results(cell),
                self._baselines.read(baselines.get(cell.cell)),
                cell.tries,
                is_first=isinstance(baselines.get(cell.cell), NoBaselineYet),
                is_stopped=cell.state is CellState.STOPPED,
                agent_tries=cell.agent_tries,
            )
            for cell in cells
        ]
        report = judge(gates, judged)
        is_unread = any(
            _is_unread(cell, each, baselines.get(cell.cell))
            for cell, each in zip(cells, judged, strict=True)
        )
        return report, report.status is not ConditionStatus.UNKNOWN or not is_unread

    def _results(self, cell: CellProgress) -> CellResults | str:
        if cell.state not in _WITH_RECORDS:
            return f"{cell.cell} has no result: {cell.message}"
        digest = sealed_digest(self._root, cell.uid)
        return read_sealed(self._root, SealedRun(cell.run, cell.uid, digest))


def _is_unread(cell: CellProgress, judged: JudgedCell, named: NamedBaseline) -> bool:
    """Whether records of a cell or of its baseline are named, and could not be read."""
    if isinstance(judged.results, str) and cell.state in _WITH_RECORDS:
        return True
    return isinstance(judged.baseline, str) and not isinstance(named, str)
