"""What a suite reads: its runs, its packs, its baselines; and what its gates say of them.

The runs of a suite are BenchmarkRuns that are there, and those that the volume's index names.
Unchanged packs on the volume are not copied again.

The name of a baseline can be freed and taken again by anybody who may create objects of its kind.
So a suite binds each name to the uid that has it when the suite first uses it, and writes that down
before it compares anything. Another object of that name decides nothing until the spec says which
uid is meant. Gates are evaluated after each round, and on the records of runs that go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.context import Context
from securebench.controller.packs import PackSource, fetch_pack, freeze
from securebench.controller.suite_store import SuiteStore
from securebench.controller.volume.gateway_reports import budget_tokens
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import (
    count_records,
    read_baseline,
    read_run,
    read_so_far,
    sealed_digest,
)
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.digests import content_digest
from securebench.errors import InvalidInputError, StorageError
from securebench.files import UnreadableError
from securebench.json_values import object_at, text_at
from securebench.names import SUITE_LABEL
from securebench.run.api.models import Pack
from securebench.run.api.status import ConditionStatus, Reason
from securebench.suite.api import (
    Baseline,
    BenchmarkSuiteSpec,
    CellState,
    Gates,
    SuitePack,
    Unavailable,
)
from securebench.suite.decide import LOOKS_SECONDS, RoundVerdict
from securebench.suite.gates import (
    CellResults,
    GateReport,
    JudgedCell,
    LookState,
    judge,
    look_state,
    read_results,
)
from securebench.suite.planning import Cell, PackContent
from securebench.suite.progress import CellProgress, ObservedRuns, PastRun, SuiteRun, suite_run
from securebench.suite.rounds import BoundBaseline, PassedResult
from securebench.text import listed


class RunObserver:
    """Observes the runs of one suite."""

    def __init__(self, context: Context, suite: str) -> None:
        self._cluster = context.cluster
        self._root = context.settings.data_root
        self._index = RunIndex(self._root)
        self._selector = f"{SUITE_LABEL}={suite}"
        self._taken: set[str] = set()
        self._used: dict[str, int] = {}

    def note_name_conflict(self, name: str) -> None:
        """Observe the run of this name too: it exists, and may lack the suite's label."""
        self._taken.add(name)

    async def observe(self, with_allowance: Collection[str]) -> ObservedRuns:
        """Return what there is now.

        Args:
            with_allowance: Names of the runs whose use of tokens counts.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume cannot be read.
        """
        # The index first: a run that is created and ends meanwhile is in the list.
        past = await bulk_on_volume(self._past)
        listing = await self._cluster.list(ObjectKind.BENCHMARK_RUN, self._selector)
        runs = {run.name: run for run in map(suite_run, listing.items)}
        for name in self._taken - set(runs):
            found = await self._named(name)
            if found is not None:
                runs[name] = found
        ended = _ended(with_allowance, runs, past)
        return ObservedRuns(runs, past, await bulk_on_volume(self._tokens_used, ended))

    async def _named(self, name: str) -> SuiteRun | None:
        raw = await self._cluster.get(ObjectKind.BENCHMARK_RUN, name)
        return suite_run(raw) if raw is not None else None

    def _tokens_used(self, ended: Mapping[str, str]) -> dict[str, int]:
        """Return what runs have used, by name; it does not change any more."""
        for uid in set(ended.values()) - set(self._used):
            used = budget_tokens(RunStore(self._root, uid))
            if used is not None:
                self._used[uid] = used
        return {name: self._used[uid] for name, uid in ended.items() if uid in self._used}

    def _past(self) -> dict[str, PastRun]:
        """Return what was begun first under each name: whoever takes it again is another."""
        return {entry.run: _past_run(entry) for entry in reversed(self._index.entries())}


def _ended(
    names: Collection[str], runs: Mapping[str, SuiteRun], past: Mapping[str, PastRun]
) -> dict[str, str]:
    """Return the uids of those runs that have ended, by name."""
    there = {name: runs[name].uid for name in names if name in runs and runs[name].has_ended}
    gone = {name: past[name].uid for name in names if name not in runs and name in past}
    return there | {name: uid for name, uid in gone.items() if past[name].outcome}


def _past_run(entry: IndexEntry) -> PastRun:
    return PastRun(
        name=entry.run,
        uid=entry.uid,
        run_id=entry.run_id,
        pack_digest=entry.pack_digest,
        harness_digest=entry.harness_digest,
        verifier_version=entry.verifier_version,
        outcome=entry.outcome,
        ordinal=entry.run_ordinal,
        agent_tries=entry.tries,
        tries_by_others=entry.tries_by_others,
    )


_Seen = tuple[Pack, object]


class PackReader:
    """Reads the packs of one suite, and remembers what it has read."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root = context.settings.data_root
        self._known: dict[str, tuple[_Seen, PackContent]] = {}

    async def read(self, packs: Iterable[SuitePack]) -> Mapping[str, PackContent | Unavailable]:
        """Return the content of each pack by its name in the matrix, or why there is none.

        Raises:
            ClusterError: The API server did not answer.
            RegistryUnavailableError: A registry did not answer.
            OSError: The volume did not do what was asked.
        """
        return {each.name: await self._read(each) for each in packs}

    async def _read(self, item: SuitePack) -> PackContent | Unavailable:
        try:
            if self._is_known_image(item):
                return self._known[item.name][1]
            source = await fetch_pack(self._context, item.pack)
            return await bulk_on_volume(self._content, item, source)
        except InvalidInputError as error:
            return Unavailable(f"pack {item.name!r}: {error}")

    def _is_known_image(self, item: SuitePack) -> bool:
        """Return whether an image was read before: its digest says that it is the same."""
        known = self._known.get(item.name)
        return item.pack.image is not None and known is not None and known[0][0] == item.pack

    def _content(self, item: SuitePack, source: PackSource) -> PackContent:
        seen = item.pack, source.signature()
        known = self._known.get(item.name)
        if known is not None and known[0] == seen:
            return known[1]
        digest = freeze(self._root, item.pack, source).digest
        answers = source.answers()
        found = PackContent(digest, content_digest(answers) if answers is not None else "")
        self._known[item.name] = seen, found
        return found


class SealedRun(NamedTuple):
    """The records of a run that has ended.

    Args:
        name: How the run is called in messages.
        sha256: Hex digest of its records.
    """

    name: str
    uid: str
    sha256: str


class NoBaselineYet(NamedTuple):
    """The suite is its own baseline and has no good result of the cell yet."""


Bindings = Mapping[str, BoundBaseline]
"""What the baselines of a suite are bound to, by ``Baseline.key``."""

NamedBaseline = SealedRun | NoBaselineYet | Baseline | Unavailable | None
"""What a cell is compared with; None if nothing is named."""


class BaselineReader:
    """Finds and reads the baselines of one suite."""

    def __init__(self, context: Context, suite: str) -> None:
        self._suite = suite
        self._cluster: Cluster = context.cluster
        self._root = context.settings.data_root

    async def bound(self, spec: BenchmarkSuiteSpec, known: Bindings) -> Bindings:
        """Return what the baselines of a spec are bound to; what is bound stays so.

        A baseline that the spec no longer names is forgotten.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        found: dict[str, BoundBaseline] = {}
        for named in named_baselines(spec):
            bound = known.get(named.key)
            if named.run is not None and (bound is None or not bound.sha256):
                bound = await bulk_on_volume(self._bound_run, named, bound)
            elif named.suite not in (None, self._suite) and bound is None:
                uid = await self._suite_uid(str(named.suite))
                bound = BoundBaseline(uid) if uid else None
            if bound is not None:
                found[named.key] = bound
        return found

    def _bound_run(self, named: Baseline, bound: BoundBaseline | None) -> BoundBaseline | None:
        """Bind a name that one run alone has had, and its records once they are sealed."""
        entries = self._runs_named(named)
        if bound is None and len(entries) == 1:
            bound = BoundBaseline(entries[0].uid)
        if bound is None or not any(each.uid == bound.uid and each.outcome for each in entries):
            return bound
        return BoundBaseline(bound.uid, sealed_digest(self._root, bound.uid))

    def _runs_named(self, named: Baseline) -> list[IndexEntry]:
        """Return the runs that a baseline may mean: all that were ever begun under its name."""
        return [
            entry
            for entry in RunIndex(self._root).named(str(named.run))
            if named.uid in (None, entry.uid)
        ]

    async def _suite_uid(self, name: str) -> str:
        raw = await self._cluster.get(ObjectKind.BENCHMARK_SUITE, name)
        return text_at(object_at(raw, "metadata"), "uid") if raw is not None else ""

    async def named(
        self, spec: BenchmarkSuiteSpec, cell: Cell, bindings: Bindings
    ) -> NamedBaseline:
        """Return what a cell is compared with, if a gate compares it.

        Args:
            bindings: What its baselines are bound to, as it is on the volume.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        named = cell.pack.baseline or spec.baseline
        if spec.gates is None or spec.gates.not_worse is None or named is None:
            return None
        if named.suite is not None:
            return await self._of_suite(named, bindings.get(named.key), str(cell.id))
        if named.run is not None:
            return await bulk_on_volume(self._of_run, named, bindings.get(named.key))
        return named

    async def _of_suite(
        self, named: Baseline, bound: BoundBaseline | None, cell: str
    ) -> SealedRun | NoBaselineYet | Unavailable:
        name = str(named.suite)
        uid = await self._suite_uid(name)
        if not uid:
            return Unavailable(f"its baseline, BenchmarkSuite {name}, does not exist")
        if named.uid not in (None, uid):
            return Unavailable(
                f"its baseline, BenchmarkSuite {name}, has uid {uid}, not {named.uid}"
            )
        if bound is not None and bound.uid != uid:
            return _taken(f"BenchmarkSuite {name}", bound.uid, [uid])
        state = await on_volume(SuiteStore(self._root, uid).read)
        is_own = name == self._suite
        known = {} if state is None else state.good if is_own else state.latest_good
        good = known.get(cell)
        if good is None and is_own:
            return NoBaselineYet()
        if good is None:
            return Unavailable(
                f"its baseline, BenchmarkSuite {name}, has no good result of this cell yet"
            )
        return SealedRun(good.run, good.uid, good.sha256)

    def _of_run(self, named: Baseline, bound: BoundBaseline | None) -> SealedRun | Unavailable:
        name, entries = str(named.run), self._runs_named(named)
        uids = [each.uid for each in entries]
        if bound is None and len(uids) > 1:
            return Unavailable(
                f"its baseline, BenchmarkRun {name}, may be any of the {len(uids)} runs that had"
                f" that name (uids {listed(uids)}): {_SAY_WHICH}"
            )
        others = [uid for uid in uids if bound is not None and uid != bound.uid]
        if bound is not None and others:
            return _taken(f"BenchmarkRun {name}", bound.uid, others)
        entry = entries[0] if entries else None
        if entry is None or bound is None or not entry.outcome:
            which = f" with uid {named.uid}" if named.uid is not None else ""
            return Unavailable(f"its baseline, BenchmarkRun {name}{which}, was not run to its end")
        if entry.outcome == Reason.CANCELLED:
            return Unavailable(
                f"its baseline, BenchmarkRun {name}, was cancelled: what it had done by then is no"
                " fair choice of its tasks"
            )
        if not bound.sha256:
            return Unavailable(f"its baseline, BenchmarkRun {name}, has no sealed records yet")
        return SealedRun(name, bound.uid, bound.sha256)

    def read(self, named: NamedBaseline) -> CellResults | Unavailable | None:
        """Return the records of a baseline, or why there are none; blocks.

        Raises:
            OSError: The volume did not do what was asked.
        """
        if isinstance(named, SealedRun):
            return read_sealed(self._root, named)
        if isinstance(named, Baseline) and named.file is not None:
            file = named.file
            read = partial(read_results, file.path)
            try:
                return read_baseline(self._root, file.path, file.sha256, read)
            except UnreadableError as error:
                return Unavailable(f"its baseline cannot be read: {error}")
        return named if isinstance(named, Unavailable) else None


_SAY_WHICH = "set uid of the baseline to the one that is meant"


def _taken(what: str, uid: str, others: Sequence[str]) -> Unavailable:
    """Say that a name belongs to others than the object that the suite is bound to."""
    return Unavailable(
        f"its baseline, {what}, had uid {uid} when this suite first used it, and another object"
        f" has taken that name since, uid {listed(others)}: {_SAY_WHICH}"
    )


def named_baselines(spec: BenchmarkSuiteSpec) -> Iterator[Baseline]:
    """Yield the baselines of a spec that are named, not those that are files."""
    for named in (spec.baseline, *(pack.baseline for pack in spec.matrix.packs)):
        if named is not None and named.file is None:
            yield named


def said_bindings(spec: BenchmarkSuiteSpec, bindings: Bindings) -> str:
    """Say which object each name of a baseline means."""
    return listed(
        sorted(
            {
                f"{named.run or named.suite} is uid {bindings[named.key].uid}"
                for named in named_baselines(spec)
                if named.key in bindings
            }
        )
    )


def read_sealed(root: Path, run: SealedRun) -> CellResults | Unavailable:
    """Return the records of a run that has ended, or why they cannot be read; blocks."""
    try:
        return read_run(root, run.uid, run.sha256, partial(read_results, run.name))
    except (UnreadableError, StorageError, ValueError) as error:
        return Unavailable(f"the records of {run.name} cannot be read: {error}")


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
    """Judges the rounds of one suite."""

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

    def _results_so_far(self, cell: CellProgress) -> CellResults | Unavailable:
        try:
            return read_so_far(self._root, cell.uid, partial(read_results, cell.run))
        except UnreadableError as error:
            return Unavailable(f"{cell.run}: {error}")

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
                tries_by_others=cell.tries_by_others,
            )
            for cell in cells
        ]
        report = judge(gates, judged)
        is_unread = any(
            _is_unread(cell, each, baselines.get(cell.cell))
            for cell, each in zip(cells, judged, strict=True)
        )
        return report, report.status is not ConditionStatus.UNKNOWN or not is_unread

    def _results(self, cell: CellProgress) -> CellResults | Unavailable:
        if cell.state not in _WITH_RECORDS:
            return Unavailable(f"{cell.cell} has no result: {cell.message}")
        digest = sealed_digest(self._root, cell.uid)
        return read_sealed(self._root, SealedRun(cell.run, cell.uid, digest))


def _is_unread(cell: CellProgress, judged: JudgedCell, named: NamedBaseline) -> bool:
    """Whether records of a cell or of its baseline are named, and could not be read."""
    if isinstance(judged.results, Unavailable) and cell.state in _WITH_RECORDS:
        return True
    return isinstance(judged.baseline, Unavailable) and not isinstance(named, Unavailable)
