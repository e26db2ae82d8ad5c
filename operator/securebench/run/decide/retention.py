"""Decides which ended runs and results folders have expired. Pure.

Source: decisions 0045 and 0071.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class ObservedRun(NamedTuple):
    """A BenchmarkRun that is there.

    Attributes:
        needs: Names or run ids of the runs that it continues or grades again.
    """

    name: str
    uid: str
    needs: tuple[str, ...] = ()


class ResultsFolder(NamedTuple):
    """The folder of a run on the volume.

    Attributes:
        uid: The run.
        run: Name of its BenchmarkRun, or empty where it never started.
        ended_at: When it ended, in seconds since the epoch, or None.
        touched_at: When anything of it was written last, in seconds since the epoch.
        has_results: Whether more is left than how it ended.
        run_id: Run ID of its records, or empty where it never started.
        is_going: Whether its removal was begun, and perhaps broken off.
    """

    uid: str
    run: str
    ended_at: float | None
    touched_at: float
    has_results: bool = True
    run_id: str = ""
    is_going: bool = False


class RetentionPlan(NamedTuple):
    """What goes now.

    Attributes:
        results: Runs whose BenchmarkRun is still there: all but how they ended goes.
        folders: Runs whose whole folder goes.
    """

    results: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def retention_plan(
    runs: Iterable[ObservedRun],
    folders: Sequence[ResultsFolder],
    ttl_seconds: float,
    now: float,
    kept: Collection[str] = (),
) -> RetentionPlan:
    """Decide what of the volume goes.

    Args:
        runs: All BenchmarkRuns of the namespace.
        folders: All folders of runs.
        ttl_seconds: How long results stay after the end of their run.
        now: Seconds since the epoch.
        kept: Uids of runs that something else still needs.

    Returns:
        Nothing of a run that is active or waits, nothing of a run that an active one continues or
        grades again, nothing of one that is ``kept``. A run whose BenchmarkRun is gone counts as
        ended when it wrote for the last time. A removal that was begun is finished at once.
    """
    ended = {folder.uid for folder in folders if folder.ended_at is not None}
    known = {run.uid: run for run in runs}
    going = {uid: run for uid, run in known.items() if uid not in ended}
    needed = {name for run in going.values() for name in run.needs}
    results: list[str] = []
    whole: list[str] = []
    for folder in folders:
        ended_at = folder.touched_at if folder.ended_at is None else folder.ended_at
        is_needed = folder.uid in going or not needed.isdisjoint({folder.run, folder.run_id})
        is_over = folder.is_going or now >= ended_at + ttl_seconds
        if is_needed or folder.uid in kept or not is_over:
            continue
        if folder.uid not in known:
            whole.append(folder.uid)
        elif folder.has_results:
            results.append(folder.uid)
    return RetentionPlan(tuple(results), tuple(whole))
