"""All launches that a gateway has seen, and the writing down of what they did."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from pathlib import Path

from securebench.core.clock import Clock
from securebench.files.durable import make_folder
from securebench.gateway.net.causes import Cause, RefusedError
from securebench.gateway.server.launch import Identity, ServedLaunch
from securebench.gateway.server.launch_files import read_launches, write_launch
from securebench.protocol.gateway import GatewayConfig, LaunchReport, RelayReport

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0
"""What a launch did is on the disk so long after it did it, or before its CLOSE is answered."""


class Launches:
    """The launches of a run.

    Args:
        folder: Where reports and logs are kept; what stands there is taken up again.
        config: Bounds of each, and whether there is a provider to report on.
        clock: Time of the logs.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume did not do what was asked.
    """

    def __init__(self, folder: Path, config: GatewayConfig, clock: Clock) -> None:
        make_folder(folder)
        self._folder = folder
        self._limits = config.limits
        self._relay = None if config.provider is None else RelayReport()
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._all = {
            kept.report.pod: ServedLaunch(kept.report, config.limits, clock, kept.log_lines)
            for kept in read_launches(folder)
        }

    def of(self, identity: Identity) -> ServedLaunch:
        """Return the launch of a Pod, a new one where the Pod was not seen before.

        Raises:
            RefusedError: Another Pod had this name.
        """
        launch = self._all.get(identity.pod)
        if launch is None:
            report = LaunchReport(identity.pod, identity.uid, relay=self._relay)
            launch = self._all[identity.pod] = ServedLaunch(report, self._limits, self._clock)
        elif launch.identity != identity:
            raise RefusedError(f"Another Pod had the name {identity.pod}.", Cause.TOKEN)
        return launch

    async def flush(self, launch: ServedLaunch) -> None:
        """Return when the disk has all that the launch did so far.

        Raises:
            OSError: The volume did not take it; it is kept for the next time.
        """
        # A thread that writes cannot be stopped: a cut flush still ends before the next one begins.
        task = asyncio.create_task(self._write(launch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _write(self, launch: ServedLaunch) -> None:
        async with self._writing[launch.identity.pod]:
            changes = launch.take_changes()
            if changes is None:
                return
            try:
                await asyncio.to_thread(write_launch, self._folder, *changes)
            except OSError:
                launch.put_back(changes.lines)
                raise

    async def flush_all(self) -> None:
        """Write down what all launches did; what the volume does not take is reported and kept."""
        for launch in list(self._all.values()):
            try:
                await self.flush(launch)
            except OSError as error:
                logger.error("cannot write down launch %s: %s", launch.identity.pod, error)  # noqa: TRY400 - expected

    async def keep_flushing(self) -> None:
        """Write everything down again and again, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush_all()
