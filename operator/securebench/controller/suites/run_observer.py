"""The runs of a suite: BenchmarkRuns that are there, and those that the volume's index names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from securebench.cluster.port import ObjectKind
from securebench.controller.context import Context
from securebench.controller.volume.gateway_reports import budget_tokens
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume
from securebench.names import SUITE_LABEL
from securebench.suite.progress import ObservedRuns, PastRun, SuiteRun, suite_run


class RunObserver:
    """Observes the runs of one suite.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: Name of the suite.
    """

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
    )
