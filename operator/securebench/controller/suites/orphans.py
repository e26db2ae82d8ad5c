"""Removes what suites remembered that were deleted while no operator worked."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from itertools import count

from securebench.clock import backoff
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.suites.suite_loop import RETRY_LIMIT_SECONDS, RETRY_SECONDS
from securebench.controller.volume.suite_store import SuiteStore, suite_folders
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import ClusterError, PermanentClusterError
from securebench.json_values import object_at, text_at

logger = logging.getLogger(__name__)


async def sweep_orphans(context: Context) -> None:
    """Remove the folders of suites that are gone; return when that is done."""
    for failures in count(1):
        try:
            await _sweep(context)
        except (ClusterError, OSError) as error:
            logger.warning("folders of deleted suites: %s; tried again", error)
            await asyncio.sleep(backoff(RETRY_SECONDS, RETRY_LIMIT_SECONDS, failures))
        else:
            return


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
