"""The operator's process: probes at once, the work only while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import NoReturn, TypeVar

from prometheus_client import Gauge

from securebench.clock import SystemClock, elapsed_seconds
from securebench.cluster.client import connect
from securebench.cluster.port import Cluster
from securebench.controller.leadership import Elector
from securebench.controller.process.health import heartbeat
from securebench.controller.settings import Settings
from securebench.controller.volume.lead import (
    VolumeLead,
    claim_epoch,
    highest_epoch,
    revoke_earlier,
)
from securebench.controller.volume_calls import on_volume
from securebench.names import lease_holder

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOST_EXIT_CODE = 3
"""Of a process that leads no longer."""

VOLUME_RETRY_SECONDS = 5.0
"""Between two tries to begin on a volume that refuses it."""

LEADER = Gauge("securebench_leader", "Whether this operator works (1) or may not (0).")

Work = Callable[[Cluster, VolumeLead], Awaitable[None]]
"""What the leader does, until it is cancelled."""


async def run_when_leader(settings: Settings, work: Work) -> None:
    """Answer probes, wait until this operator leads, and work.

    Args:
        settings: As the chart wrote them.
        work: Gets the namespace and the right to write to the volume.

    Raises:
        StorageError: Another leader has begun on the volume.
        asyncio.CancelledError: It was cancelled while it waited.
    """
    task = asyncio.current_task()
    if task is not None:  # without a handler the first process of a container ignores SIGTERM
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with connect(settings.namespace) as cluster:
        beating = asyncio.create_task(heartbeat(cluster, settings, SystemClock()))
        beating.add_done_callback(end_process)
        async with leading(cluster, settings) as lead:
            await work(cluster, lead)
        beating.cancel()


@contextlib.asynccontextmanager
async def leading(cluster: Cluster, settings: Settings) -> AsyncIterator[VolumeLead]:
    """Wait until this operator leads; hold the Lease meanwhile, and give it back in the end.

    Args:
        cluster: The namespace.
        settings: Name the operator's Pod and the times of the Lease.
    """
    holder = lease_holder(settings.pod_name, settings.pod_uid)
    times, clock, root = settings.leadership, SystemClock(), settings.data_root
    elector = Elector(cluster, holder, times, clock, elapsed_seconds, end_at_once)
    epoch = await elector.acquire(partial(on_volume, highest_epoch, root))
    holding = asyncio.create_task(elector.hold(), name="lease")
    holding.add_done_callback(_end_with_lease)
    LEADER.set_function(lambda: float(elector.is_leader))
    try:
        lead = await _until_done(partial(claim_epoch, root, epoch, holder, elector.require))
        await _until_done(partial(revoke_earlier, lead))
        yield lead
    finally:
        holding.cancel()
        await elector.release()


async def _until_done(step: Callable[[], T]) -> T:
    while True:
        try:
            return await on_volume(step)
        except OSError as error:
            logger.warning("the results volume: %s; tried again", error)
        await asyncio.sleep(VOLUME_RETRY_SECONDS)


def end_at_once(reason: str) -> NoReturn:
    """End the process between two instructions: another one leads.

    Nothing is put in order, as nothing may be written any more; the next leader takes the runs
    over as after a kill.
    """
    logger.critical("the operator ends: %s", reason)
    logging.shutdown()
    os._exit(LOST_EXIT_CODE)


def end_process(task: asyncio.Task[None]) -> None:
    """End the operator with a task that has failed: Kubernetes starts it again with both."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("the operator ends: a task in the background failed", exc_info=error)
        os.kill(os.getpid(), signal.SIGTERM)


def _end_with_lease(task: asyncio.Task[NoReturn]) -> None:
    if not task.cancelled():
        end_at_once(f"the Lease is not renewed any more: {task.exception()!r}")
