"""Which results suites still need: baselines, the current round, the last one that passed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from securebench.cluster.port import Raw
from securebench.controller.context import Context
from securebench.controller.suites.orphans import listed_suites
from securebench.controller.volume.registers import RunIndex
from securebench.controller.volume.suite_store import SuiteStore
from securebench.controller.volume_calls import bulk_on_volume
from securebench.json_values import object_at, objects_at, text_at


async def needed_by_suites(context: Context) -> Collection[str]:
    """Return the uids of the runs whose results the BenchmarkSuites of the namespace need.

    Raises:
        ClusterError: The API server did not answer.
        StorageError: The state of a suite cannot be read.
        OSError: The volume did not do what was asked.
    """
    suites = await listed_suites(context)
    return await bulk_on_volume(_needed, context, suites or ())


def _needed(context: Context, suites: Collection[Raw]) -> Collection[str]:
    root, names, uids = context.settings.data_root, set[str](), set[str]()
    for suite in suites:
        names.update(_baselines(object_at(suite, "spec")))
        state = SuiteStore(root, text_at(object_at(suite, "metadata"), "uid")).read()
        if state is not None:
            names.update(state.plan.run_names)
            uids.update(good.uid for good in (*state.good.values(), *state.passed.values()))
    return uids | {entry.uid for entry in RunIndex(root).entries() if entry.run in names}


def _baselines(spec: Raw) -> Iterator[str]:
    """Yield the names of the BenchmarkRuns that cells are compared with."""
    for place in (spec, *objects_at(object_at(spec, "matrix"), "packs")):
        name = text_at(object_at(place, "baseline"), "run")
        if name:
            yield name
