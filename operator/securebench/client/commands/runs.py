"""Commands that list runs and change them: ``ps``, ``cancel``, ``suspend`` and ``rm``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from securebench.client.inspection.find import require_one_run
from securebench.client.output import print_error, print_errors, print_line, print_table
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.volume.connection import ClusterTarget, open_cluster
from securebench.client.watch.follow import RunState, run_state
from securebench.client.watch.run_view import RunView, ShownScore, run_view
from securebench.cluster.port import ObjectKind
from securebench.errors import InvalidInputError, SecureBenchError
from securebench.json_values import object_at
from securebench.run.api.field_types import CancelMode

_HEADER = ("NAME", "RUN ID", "STATE", "DONE", "PASSED", "CREATED")
_WIDE_HEADER = ("ACTIVE", "SCORE", "PACK", "HARNESS", "TOKENS", "MESSAGE")


def ps(form: OutputForm, target: ClusterTarget) -> int:
    """Print the namespace's runs, the newest last."""
    views = sorted(asyncio.run(_views(target)), key=lambda view: view.created)
    if form.is_data:
        print_objects((view.to_json() for view in views), form)
    elif form is OutputForm.WIDE:
        print_table((*_HEADER, *_WIDE_HEADER), [(*_row(view), *_wide(view)) for view in views])
    else:
        print_table(_HEADER, [_row(view) for view in views])
    return 0


def cancel(run: str, target: ClusterTarget, *, is_immediate: bool) -> int:
    """Cancel a run; with ``is_immediate``, also end its launches in progress."""
    mode = CancelMode.IMMEDIATE if is_immediate else CancelMode.GRACEFUL
    state = asyncio.run(_cancel(run, target, mode))
    return _tell_change(state, f"cancel={mode.value}")


def suspend(run: str, target: ClusterTarget) -> int:
    """Let a run begin nothing new until it is resumed."""
    return _tell_change(asyncio.run(_suspend(run, target)), "suspend=true")


def remove(runs: Sequence[str], target: ClusterTarget, *, is_forced: bool) -> int:
    """Delete BenchmarkRuns; their results stay on the volume.

    Args:
        runs: Names or run ids.
        target: Namespace of the runs.
        is_forced: Also delete runs that have not ended.
    """
    return max(asyncio.run(_remove(runs, target, is_forced=is_forced)))


def score_text(score: ShownScore | None) -> str:
    """Return a score with its interval in percent, or an empty text."""
    if score is None:
        return ""
    return f"{100 * score.value:.1f} % ({100 * score.low:.1f} to {100 * score.high:.1f})"


async def _views(target: ClusterTarget) -> list[RunView]:
    async with open_cluster(target) as cluster:
        return [run_view(run) for run in (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items]


async def _cancel(name: str, target: ClusterTarget, mode: CancelMode) -> RunState:
    async with open_cluster(target) as cluster:
        run = await require_one_run(cluster, name)
        state = run_state(run)
        wanted = object_at(run, "spec").get("cancel")
        if state.end is None and wanted != CancelMode.IMMEDIATE:
            change = {"spec": {"cancel": mode.value}}
            await cluster.patch(ObjectKind.BENCHMARK_RUN, state.name, change)
        return state


async def _suspend(name: str, target: ClusterTarget) -> RunState:
    async with open_cluster(target) as cluster:
        state = run_state(await require_one_run(cluster, name))
        if state.end is None:
            change = {"spec": {"suspend": True}}
            await cluster.patch(ObjectKind.BENCHMARK_RUN, state.name, change)
        return state


def _tell_change(state: RunState, what: str) -> int:
    if state.end is not None:
        print_error(f"BenchmarkRun {state.name} has already ended: {state.reason}")
        return 1
    print_line(f"run={state.name} {what}")
    return 0


async def _remove(runs: Sequence[str], target: ClusterTarget, *, is_forced: bool) -> list[int]:
    codes = list[int]()
    async with open_cluster(target) as cluster:
        for name in runs:
            try:
                state = run_state(await require_one_run(cluster, name))
                _require_removable(state, is_forced=is_forced)
                await cluster.delete(
                    ObjectKind.BENCHMARK_RUN, state.name, uid=state.uid, grace_seconds=None
                )
            except SecureBenchError as error:
                print_errors(error)
                codes.append(1)
            else:
                print_line(f"run={state.name} removed=true")
                codes.append(0)
    return codes


def _require_removable(state: RunState, *, is_forced: bool) -> None:
    if state.end is None and not is_forced:
        raise InvalidInputError(
            f"BenchmarkRun {state.name} has not ended ({state.reason or 'new'}); end it with"
            f" securebench cancel {state.name}, or delete it all the same with --force"
        )


def _row(view: RunView) -> tuple[str, ...]:
    return (
        view.name,
        view.run_id,
        view.state,
        f"{view.done}/{view.total or '?'}",
        "" if view.passed is None else str(view.passed),
        view.created,
    )


def _wide(view: RunView) -> tuple[str, ...]:
    tokens = view.usage.get("inputTokens", 0) + view.usage.get("outputTokens", 0)
    return (
        str(view.active),
        score_text(view.score),
        view.pack,
        view.harness,
        str(tokens) if view.usage else "",
        view.message,
    )
