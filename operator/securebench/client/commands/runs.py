"""``securebench list`` and ``securebench cancel``."""

from __future__ import annotations

import asyncio

from securebench.client.commands.output import print_error, print_line, print_table
from securebench.client.volume.connection import ClusterTarget, open_cluster
from securebench.client.watch.follow import run_state
from securebench.cluster.port import ObjectKind, Raw
from securebench.core.errors import InvalidInputError
from securebench.core.json_values import object_at
from securebench.run.api.field_types import CancelMode

_HEADER = ("NAME", "RUN ID", "STATE", "DONE", "PASSED", "CREATED")


def list_runs(target: ClusterTarget) -> int:
    """Print a table of the namespace's runs, the newest last."""
    runs = asyncio.run(_runs(target))
    print_table(_HEADER, [_row(run) for run in sorted(runs, key=_created)])
    return 0


def cancel(run: str, target: ClusterTarget, *, is_immediate: bool) -> int:
    """Cancel a run; with ``is_immediate``, also end its launches in progress."""
    mode = CancelMode.IMMEDIATE if is_immediate else CancelMode.GRACEFUL
    reason = asyncio.run(_cancel(run, target, mode))
    if reason:
        print_error(f"BenchmarkRun {run} has already ended: {reason}")
        return 1
    print_line(f"run={run} cancel={mode.value}")
    return 0


async def _runs(target: ClusterTarget) -> tuple[Raw, ...]:
    async with open_cluster(target) as cluster:
        return (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items


async def _cancel(name: str, target: ClusterTarget, mode: CancelMode) -> str:
    """Return the reason if the run has already ended, else an empty string."""
    async with open_cluster(target) as cluster:
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
