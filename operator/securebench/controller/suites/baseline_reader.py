"""What the cells of a suite are compared with."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.cluster.port import Cluster, ObjectKind
from securebench.controller.runtime.context import Context
from securebench.controller.runtime.volume_calls import bulk_on_volume, on_volume
from securebench.controller.volume.index import RunIndex
from securebench.controller.volume.result_file import read_baseline, read_run, sealed_digest
from securebench.controller.volume.suite_store import SuiteStore
from securebench.core.errors import StorageError
from securebench.core.json_values import object_at, text_at
from securebench.files.untrusted import UnreadableError
from securebench.run.api.conditions import Reason
from securebench.suite.api.models import Baseline, BenchmarkSuiteSpec
from securebench.suite.expansion import Cell
from securebench.suite.gates.results import CellResults, read_results


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

    async def named(self, spec: BenchmarkSuiteSpec, cell: Cell) -> NamedBaseline:
        """Return what a cell is compared with, if a gate compares it.

        Raises:
            ClusterError: The API server did not answer.
            OSError: The volume did not do what was asked.
        """
        named = cell.pack.baseline or spec.baseline
        if spec.gates is None or spec.gates.not_worse is None or named is None:
            return None
        if named.suite is not None:
            return await self._of_suite(named.suite, str(cell.id))
        if named.run is not None:
            return await bulk_on_volume(self._of_run, named.run)
        return named

    async def _of_suite(self, name: str, cell: str) -> SealedRun | NoBaselineYet | str:
        raw = await self._cluster.get(ObjectKind.BENCHMARK_SUITE, name)
        if raw is None:
            return f"its baseline, BenchmarkSuite {name}, does not exist"
        uid = text_at(object_at(raw, "metadata"), "uid")
        state = await on_volume(SuiteStore(self._root, uid).read)
        is_own = name == self._suite
        known = {} if state is None else state.good if is_own else state.latest_good
        good = known.get(cell)
        if good is None and is_own:
            return NoBaselineYet()
        if good is None:
            return f"its baseline, BenchmarkSuite {name}, has no good result of this cell yet"
        return SealedRun(good.run, good.uid, good.sha256)

    def _of_run(self, name: str) -> SealedRun | str:
        entry = RunIndex(self._root).latest(name)
        if entry is None or not entry.outcome:
            return f"its baseline, BenchmarkRun {name}, was not run to its end"
        if entry.outcome == Reason.CANCELLED:
            return (
                f"its baseline, BenchmarkRun {name}, was cancelled: what it had done by then is no"
                " fair choice of its tasks"
            )
        return SealedRun(name, entry.uid, sealed_digest(self._root, entry.uid))

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
