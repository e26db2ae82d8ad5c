"""What BenchmarkSuites remember on the volume, and which results they still need.

A suite needs its baselines, its current round and the last one that passed. What a suite remembered
that was deleted while no operator worked is removed at the next start.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.loop_tasks import until_done
from securebench.controller.volume.lead import VolumeLead
from securebench.controller.volume.registers import RunIndex
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import ClusterError, PermanentClusterError, StorageError
from securebench.files import make_folder, replace_file
from securebench.json_values import object_at, objects_at, text_at
from securebench.suite.rounds import SuiteState

logger = logging.getLogger(__name__)


SUITES = "suites"
"""A folder for each BenchmarkSuite, named by its uid: what it remembers."""
STATE = "state.json"
_ADAPTER = TypeAdapter(SuiteState)


def suite_folders(root: Path) -> list[str]:
    """Return the uids of all suites with a folder on a volume."""
    folder = root / SUITES
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


class SuiteStore:
    """The folder of one suite.

    A thread that writes may outlive the loop that asked for it; once the folder was removed,
    nothing is written any more.

    Args:
        lead: Who writes; None only reads.
    """

    def __init__(self, root: Path, uid: str, lead: VolumeLead | None = None) -> None:
        self._folder = root / SUITES / uid
        self._lead = lead
        self._lock = threading.Lock()
        self._is_removed = False

    def read(self) -> SuiteState | None:
        """Return what was written last, or None.

        Raises:
            StorageError: The file holds something else.
        """
        path = self._folder / STATE
        try:
            return _ADAPTER.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise StorageError(f"{path.parent.name}/{STATE} holds no state of a suite") from error

    def write(self, state: SuiteState) -> None:
        """Replace what the suite remembers.

        Raises:
            StorageError: It was removed.
            OSError: The disk did not take it.
        """
        staging = self._lead.folder if self._lead is not None else None
        with self._lock:
            if self._is_removed:
                raise StorageError(f"suite {self._folder.name} was deleted: it remembers nothing")
            make_folder(self._folder)
            replace_file(self._folder / STATE, _ADAPTER.dump_json(state, indent=2), staging)

    def remove(self) -> None:
        """Forget the suite for good; what is gone already is no error.

        Raises:
            OSError: The folder is still there.
        """
        with self._lock, suppress(FileNotFoundError):
            self._is_removed = True
            shutil.rmtree(self._folder)


async def sweep_orphans(context: Context) -> None:
    """Remove the folders of suites that are gone; return when that is done."""
    await until_done("folders of deleted suites", (ClusterError, OSError), partial(_sweep, context))


async def listed_suites(context: Context) -> list[Raw] | None:
    """Return the BenchmarkSuites of the namespace; None in a cluster without that kind.

    Raises:
        ClusterError: The API server did not answer.
    """
    try:
        return list((await context.cluster.list(ObjectKind.BENCHMARK_SUITE, "")).items)
    except PermanentClusterError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


async def _sweep(context: Context) -> None:
    root = context.settings.data_root
    # The folders first: the suite of a folder that is made meanwhile is in the list.
    folders = await on_volume(suite_folders, root)
    suites = await listed_suites(context) if folders else None
    if suites is None:
        return
    there = {text_at(object_at(suite, "metadata"), "uid") for suite in suites}
    for uid in folders:
        if uid not in there:
            await bulk_on_volume(SuiteStore(root, uid, context.lead).remove)
            logger.info("suite %s was deleted: its folder on the volume is removed", uid)


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
