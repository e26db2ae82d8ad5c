"""``securebench list`` and ``securebench cancel``: the BenchmarkRuns of a namespace."""

from __future__ import annotations

import asyncio

from securebench.client.commands.output import print_error, print_line, print_table
from securebench.client.volume.connection import Place, open_cluster
from securebench.client.watch.follow import run_state
from securebench.cluster.port import ObjectKind, Raw
from securebench.core.errors import InvalidInputError
from securebench.core.json_values import object_at
from securebench.run.api.field_types import CancelMode

_HEADER = ("NAME", "RUN ID", "STATE", "DONE", "PASSED", "CREATED")


def list_runs(place: Place) -> int:
    """Print a table of the runs, the newest last."""
    runs = asyncio.run(_runs(place))
    print_table(_HEADER, [_row(run) for run in sorted(runs, key=_created)])
    return 0


def cancel(run: str, place: Place, *, is_immediate: bool) -> int:
    """Cancel a run.

    Args:
        run: Name of the BenchmarkRun.
        place: The run's namespace.
        is_immediate: Also what runs now is ended.
    """
    mode = CancelMode.IMMEDIATE if is_immediate else CancelMode.GRACEFUL
    reason = asyncio.run(_cancel(run, place, mode))
    if reason:
        print_error(f"BenchmarkRun {run} has ended already: {reason}")
        return 1
    print_line(f"run={run} cancel={mode.value}")
    return 0


async def _runs(place: Place) -> tuple[Raw, ...]:
    async with open_cluster(place) as cluster:
        return (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items


async def _cancel(name: str, place: Place, mode: CancelMode) -> str:
    """Return an empty text, or how the run has ended before."""
    async with open_cluster(place) as cluster:
        run = await cluster.get(ObjectKind.BENCHMARK_RUN, name)
        if run is None:
            raise InvalidInputError(f"there is no BenchmarkRun {name!r} in this namespace")
        state = run_state(run)
        if state.end is not None:
            return state.reason
        if object_at(run, "spec").get("cancel") != CancelMode.IMMEDIATE:
            await cluster.patch(ObjectKind.BENCHMARK_RUN, name, {"spec": {"cancel": mode.value}})
        return ""


def _row(run: Raw) -> tuple[str, ...]:
    state, status = run_state(run), object_at(run, "status")
    resolved, score = object_at(status, "resolved"), object_at(status, "score")
    run_id = resolved.get("runId") or object_at(run, "spec").get("runId") or ""
    return (
        state.name,
        str(run_id),
        state.reason or "new",
        f"{state.done}/{state.total or '?'}",
        str(score.get("passed", "")),
        _created(run),
    )


def _created(run: Raw) -> str:
    return str(object_at(run, "metadata").get("creationTimestamp") or "")
