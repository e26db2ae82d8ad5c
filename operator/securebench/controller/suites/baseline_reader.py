"""What the cells of a suite are compared with.

A name can be freed and taken again by anybody who may create objects of its kind. So a suite binds
each name of a baseline to the uid that has it when the suite first uses it, and writes that down
before it compares anything. Another object of that name decides nothing until the spec says which
uid is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.context import Context
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import read_baseline, read_run, sealed_digest
from securebench.controller.volume.suite_store import SuiteStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import StorageError
from securebench.files import UnreadableError
from securebench.json_values import object_at, text_at
from securebench.run.api.status import Reason
from securebench.suite.api.models import Baseline, BenchmarkSuiteSpec
from securebench.suite.expansion import Cell
from securebench.suite.gates.results import CellResults, read_results
from securebench.suite.rounds import BoundBaseline
from securebench.text import listed


class SealedRun(NamedTuple):
    """The records of a run that has ended.

    Args:
        name: How the run is called in messages.
        uid: UID of the run.
        sha256: Hex digest of its records.
    """

    name: str
    uid: str
    sha256: str


class NoBaselineYet(NamedTuple):
    """The suite is its own baseline and has no good result of the cell yet."""


Bindings = Mapping[str, BoundBaseline]
"""What the baselines of a suite are bound to, by ``Baseline.key``."""

NamedBaseline = SealedRun | NoBaselineYet | Baseline | str | None
"""What a cell is compared with; a text says why there is nothing, None: nothing is named."""


class BaselineReader:
    """Finds and reads the baselines of one suite.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: Name of the suite.
    """

    def __init__(self, context: Context, suite: str) -> None:
        self._suite = suite
        self._cluster: Cluster = context.cluster
        self._root = context.settings.data_root

    async def bound(self, spec: BenchmarkSuiteSpec, known: Bindings) -> Bindings:
        """Return what the baselines of a spec are bound to; what is bound stays so.

        A baseline that the spec no longer names is forgotten.

        Args:
            spec: Spec of the suite.
            known: What the suite remembers.

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
            spec: Spec of the suite.
            cell: The cell.
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
    ) -> SealedRun | NoBaselineYet | str:
        name = str(named.suite)
        uid = await self._suite_uid(name)
        if not uid:
            return f"its baseline, BenchmarkSuite {name}, does not exist"
        if named.uid not in (None, uid):
            return f"its baseline, BenchmarkSuite {name}, has uid {uid}, not {named.uid}"
        if bound is not None and bound.uid != uid:
            return _taken(f"BenchmarkSuite {name}", bound.uid, [uid])
        state = await on_volume(SuiteStore(self._root, uid).read)
        is_own = name == self._suite
        known = {} if state is None else state.good if is_own else state.latest_good
        good = known.get(cell)
        if good is None and is_own:
            return NoBaselineYet()
        if good is None:
            return f"its baseline, BenchmarkSuite {name}, has no good result of this cell yet"
        return SealedRun(good.run, good.uid, good.sha256)

    def _of_run(self, named: Baseline, bound: BoundBaseline | None) -> SealedRun | str:
        name, entries = str(named.run), self._runs_named(named)
        uids = [each.uid for each in entries]
        if bound is None and len(uids) > 1:
            return (
                f"its baseline, BenchmarkRun {name}, may be any of the {len(uids)} runs that had"
                f" that name (uids {listed(uids)}): {_SAY_WHICH}"
            )
        others = [uid for uid in uids if bound is not None and uid != bound.uid]
        if bound is not None and others:
            return _taken(f"BenchmarkRun {name}", bound.uid, others)
        entry = entries[0] if entries else None
        if entry is None or bound is None or not entry.outcome:
            which = f" with uid {named.uid}" if named.uid is not None else ""
            return f"its baseline, BenchmarkRun {name}{which}, was not run to its end"
        if entry.outcome == Reason.CANCELLED:
            return (
                f"its baseline, BenchmarkRun {name}, was cancelled: what it had done by then is no"
                " fair choice of its tasks"
            )
        if not bound.sha256:
            return f"its baseline, BenchmarkRun {name}, has no sealed records yet"
        return SealedRun(name, bound.uid, bound.sha256)

    def read(self, named: NamedBaseline) -> CellResults | str | None:
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
                return f"its baseline cannot be read: {error}"
        return named if isinstance(named, str) else None


_SAY_WHICH = "set uid of the baseline to the one that is meant"


def _taken(what: str, uid: str, others: Sequence[str]) -> str:
    """Say that a name belongs to others than the object that the suite is bound to."""
    return (
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


def read_sealed(root: Path, run: SealedRun) -> CellResults | str:
    """Return the records of a run that has ended, or why they cannot be read; blocks.

    Args:
        root: Where the volume is mounted.
        run: The run.
    """
    try:
        return read_run(root, run.uid, run.sha256, partial(read_results, run.name))
    except (UnreadableError, StorageError, ValueError) as error:
        return f"the records of {run.name} cannot be read: {error}"
