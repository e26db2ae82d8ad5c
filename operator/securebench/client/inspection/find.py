"""Find the run that a user means by a name or a run id.

A name goes before a run id. Several runs may have one run id: commands that only show take the
newest one and say so, commands that change something ask for the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from securebench.client.output import print_note
from securebench.client.volume.connection import Connection
from securebench.client.watch.follow import RunState, run_state
from securebench.client.watch.run_view import created_at, run_id_of
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import InvalidInputError
from securebench.json_values import object_at

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
        raise no_such_run(text)
    return run


async def require_one_run(cluster: Cluster, text: str) -> Raw:
    """Return the only run that a text means, for commands that change it.

    Raises:
        InvalidInputError: There is none, or several have this run id.
    """
    found = named_runs((await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items, text)
    if found.chosen is None:
        raise no_such_run(text)
    if found.others and not found.is_name:
        names = _names([found.chosen, *found.others])
        raise InvalidInputError(
            f"{len(found.others) + 1} runs have the run id {text!r}: {names}; use a name"
        )
    return found.chosen


def no_such_run(text: str) -> InvalidInputError:
    """Return the error for a text that means no BenchmarkRun."""
    return InvalidInputError(
        f"there is no BenchmarkRun {text!r} in this namespace, and none has this run id;"
        " securebench ps lists them"
    )


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
        raise InvalidInputError(
            f"there is no BenchmarkRun {text!r} in this namespace, and the results volume has no"
            " run with this name or run id"
        )
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
