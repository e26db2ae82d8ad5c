"""Runs of a namespace: the run that a user means, and the commands that list runs and change them.

A name goes before a run id. Several runs may have one run id: commands that only show take the
newest one and print which one it is, commands that change something require the name. The commands
are ``ps``, ``cancel``, ``suspend`` and ``rm``.

Shell completion prints nothing: without a cluster there are no names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import NamedTuple

from securebench.client.follow import (
    RunState,
    RunView,
    created_at,
    run_id_of,
    run_state,
    run_view,
)
from securebench.client.output import (
    OutputForm,
    print_error,
    print_errors,
    print_line,
    print_note,
    print_objects,
    print_table,
)
from securebench.client.volume import ClusterTarget, Connection, open_cluster, open_connection
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import InvalidInputError, PermanentClusterError, SecureBenchError
from securebench.json_values import object_at, text_at
from securebench.run.api.field_types import CancelMode
from securebench.text import did_you_mean

_SHOWN = 5
"""Runs that a message names."""


class NamedRuns(NamedTuple):
    """The BenchmarkRuns that a text may mean.

    Args:
        chosen: The one with this name, else the newest with this run id, else None.
        others: Those with this run id that were not chosen, the newest first.
        is_name: Whether the text is the name of the chosen one.
    """

    chosen: Raw | None
    others: tuple[Raw, ...]
    is_name: bool


def named_runs(runs: Iterable[Raw], text: str) -> NamedRuns:
    """Return the runs that a text may mean."""
    known = list(runs)
    by_id = sorted((run for run in known if run_id_of(run) == text), key=created_at, reverse=True)
    by_name = next((run for run in known if _name(run) == text), None)
    chosen = by_name or next(iter(by_id), None)
    others = tuple(run for run in by_id if run is not chosen)
    return NamedRuns(chosen, others, is_name=by_name is not None)


async def find_run(cluster: Cluster, text: str) -> Raw | None:
    """Return the BenchmarkRun with a name, or the newest with a run id; say which of several."""
    found = named_runs((await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items, text)
    if found.chosen is not None and found.others:
        print_note(_which(found, text))
    return found.chosen


async def require_run(cluster: Cluster, text: str) -> Raw:
    """Return the run that a text means, for commands that only show it.

    Raises:
        InvalidInputError: There is none.
    """
    run = await find_run(cluster, text)
    if run is None:
        raise await _missing(cluster, text)
    return run


async def require_one_run(cluster: Cluster, text: str) -> Raw:
    """Return the only run that a text means, for commands that change it.

    Raises:
        InvalidInputError: There is none, or several have this run id.
    """
    found = named_runs((await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items, text)
    if found.chosen is None:
        raise await _missing(cluster, text)
    if found.others and not found.is_name:
        names = _names([found.chosen, *found.others])
        raise InvalidInputError(
            f"{len(found.others) + 1} runs have the run id {text!r}: {names}; use a name"
        )
    return found.chosen


async def _missing(cluster: Cluster, text: str, *, where: str = "") -> InvalidInputError:
    """Return the error for a text that means no run.

    Args:
        text: As written.
        where: What else was looked through.
    """
    if await _is_suite(cluster, text):
        return InvalidInputError(
            f"{text!r} is a BenchmarkSuite and no BenchmarkRun; securebench ps lists its runs"
        )
    runs = (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
    hint = did_you_mean([text], {*map(_name, runs), *filter(None, map(run_id_of, runs))})
    return InvalidInputError(
        f"there is no BenchmarkRun {text!r} in this namespace, and none has this run id{where}"
        f"{hint or '; securebench ps lists them'}"
    )


async def _is_suite(cluster: Cluster, text: str) -> bool:
    try:
        suites = (await cluster.list(ObjectKind.BENCHMARK_SUITE, "")).items
    except PermanentClusterError:  # testers need no right to see suites
        return False
    return text in map(_name, suites)


async def find_state(connection: Connection, text: str) -> RunState:
    """Find a run by its BenchmarkRun or, on the volume, by its former name or its run id.

    Raises:
        InvalidInputError: There is none, or its results were removed.
    """
    found = await find_run(connection.cluster, text)
    if found is not None:
        return run_state(found)
    entries = await connection.link.find_named(text)
    if not entries:
        raise await _missing(connection.cluster, text, where=", nor on the results volume")
    last = entries[-1]
    if len({entry.uid for entry in entries}) > 1:
        names = ", ".join(entry.run for entry in entries[-2 : -2 - _SHOWN : -1])
        print_note(f"{text!r} means the run {last.run}, the newest; earlier ones: {names}")
    if last.removed_at:
        raise InvalidInputError(
            f"the results of run {last.run!r} were removed from the volume at {last.removed_at}"
        )
    return RunState(last.run, last.uid, "", last.outcome, "", total=0, done=0)


def _which(found: NamedRuns, text: str) -> str:
    assert found.chosen is not None  # noqa: S101 - the caller has looked
    name, others = _name(found.chosen), _names(found.others)
    if found.is_name:
        return f"{text!r} means the BenchmarkRun of this name; it is also the run id of {others}"
    return f"{text!r} means the BenchmarkRun {name}, the newest with this run id; others: {others}"


def _names(runs: Sequence[Raw]) -> str:
    names = [_name(run) for run in runs]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _name(run: Raw) -> str:
    return str(object_at(run, "metadata").get("name"))


def run_names(target: ClusterTarget) -> list[str]:
    """Return the names of the namespace's runs, the newest first, then their run ids."""
    return _silently(_run_names(target))


def task_names(run: str, target: ClusterTarget) -> list[str]:
    """Return the ids of the tasks of a run's pack, in pack order.

    Args:
        run: Name or run id of a BenchmarkRun.
    """
    return _silently(_task_names(run, target))


def _silently(names: Coroutine[object, object, list[str]]) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(names)
    except (SecureBenchError, OSError, ValueError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _run_names(target: ClusterTarget) -> list[str]:
    async with open_cluster(target) as cluster:
        runs = (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
    newest = sorted(runs, key=created_at, reverse=True)
    names = [text_at(object_at(run, "metadata"), "name") for run in newest]
    return list(dict.fromkeys([*names, *filter(_is_one_word, map(run_id_of, newest))]))


async def _task_names(run: str, target: ClusterTarget) -> list[str]:
    async with open_connection(target) as connection:
        runs = (await connection.cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
        found = named_runs(runs, run).chosen
        if found is None:
            return []
        uid = text_at(object_at(found, "metadata"), "uid")
        return list(filter(_is_one_word, await connection.link.list_tasks(uid)))


def _is_one_word(text: str) -> bool:
    """Whether a shell can take a text as it is."""
    return text.isprintable() and not any(each.isspace() or each in "'\"\\$`" for each in text)


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
        is_forced: Also delete runs that have not ended.
    """
    return max(asyncio.run(_remove(runs, target, is_forced=is_forced)))


def score_text(view: RunView) -> str:
    """Return a run's score in percent and its mean reward, as far as it has them."""
    score, reward = view.score, view.mean_reward
    if score is None:
        return ""
    rewards = "" if reward is None else f", reward {reward.value:.4g}"
    return f"{100 * score.value:.1f} % ({100 * score.low:.1f} to {100 * score.high:.1f}){rewards}"


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
        score_text(view),
        view.pack,
        view.harness,
        str(tokens) if view.usage else "",
        view.message,
    )
