"""Names for shell completion; a cluster that is away means no names, and nothing is printed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from securebench.client.inspection.find import named_runs
from securebench.client.volume.connection import ClusterTarget, open_cluster, open_connection
from securebench.client.watch.run_view import created_at, run_id_of
from securebench.cluster.port import ObjectKind
from securebench.errors import SecureBenchError
from securebench.json_values import object_at, text_at


def run_names(target: ClusterTarget) -> list[str]:
    """Return the names of the namespace's runs, the newest first, then their run ids."""
    return _silently(_run_names(target))


def task_names(run: str, target: ClusterTarget) -> list[str]:
    """Return the ids of the tasks of a run's pack, in pack order.

    Args:
        run: Name or run id of a BenchmarkRun.
        target: Namespace of the run.
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
