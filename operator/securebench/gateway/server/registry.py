"""All launches that a gateway has seen, persisted periodically."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path

from securebench.clock import Clock
from securebench.files.durable import make_folder
from securebench.gateway.net.causes import Cause, RefusedError
from securebench.gateway.server.back_off import waits_of
from securebench.gateway.server.launch import Identity, ServedLaunch
from securebench.gateway.server.launch_files import (
    ReportNotWrittenError,
    read_launches,
    write_launch,
)
from securebench.protocol.gateway import GatewayConfig, LaunchReport, ProviderWaits, RelayReport

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0
"""Interval between flushes; the answer to ``close`` also waits for a flush."""


class Launches:
    """The launches of a run.

    Args:
        folder: Holds reports and logs; existing ones are loaded.
        config: Limits of each launch, and whether there is a provider to report on.
        clock: Wall clock, for the logs.

    Attributes:
        waits_changed: Set when ``waits`` may have changed.

    Raises:
        StorageError: A report is damaged.
        OSError: The volume failed.
    """

    def __init__(self, folder: Path, config: GatewayConfig, clock: Clock) -> None:
        make_folder(folder)
        self._folder = folder
        self._limits = config.limits
        self._relay = None if config.provider is None else RelayReport()
        self._clock = clock
        self.waits_changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._all = {
            stored.report.pod: self._served(stored.report, stored.log_lines)
            for stored in read_launches(folder)
        }

    def of(self, identity: Identity) -> ServedLaunch:
        """Return the launch of a Pod; a new one on its first connection.

        Raises:
            RefusedError: Another Pod had this name.
        """
        launch = self._all.get(identity.pod)
        if launch is None:
            report = LaunchReport(identity.pod, identity.uid, relay=self._relay)
            launch = self._all[identity.pod] = self._served(report)
        elif launch.identity != identity:
            raise RefusedError(f"Another Pod had the name {identity.pod}.", Cause.TOKEN)
        return launch

    def tokens_used(self) -> int:
        """Return what all launches have used of the run's budget."""
        return sum(launch.relay.budget_tokens for launch in self._all.values())

    def answered_models(self) -> set[str]:
        """Return the models that the provider has answered in any launch."""
        return {model for each in self._all.values() for model in each.relay.answered_models}

    def waits(self) -> ProviderWaits:
        """Return the launches that the model provider makes wait."""
        return waits_of(launch.back_off for launch in self._all.values())

    def _served(self, report: LaunchReport, log_lines: int = 0) -> ServedLaunch:
        on_wait = self.waits_changed.set
        return ServedLaunch(report, self._limits, self._clock, log_lines, on_wait)

    async def flush(self, launch: ServedLaunch) -> None:
        """Persist all changes of a launch.

        Raises:
            OSError: The write failed; the changes are kept for the next flush.
        """
        # A writing thread cannot be cancelled, so a cancelled flush still holds the lock until it
        # ends.
        await asyncio.shield(self._in_background(self._write(launch)))

    def flush_soon(self, launch: ServedLaunch) -> None:
        """Persist all changes of a launch in the background, as ``flush_all`` does."""
        self._in_background(self._flush_logged(launch))

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _write(self, launch: ServedLaunch) -> None:
        async with self._writing[launch.identity.pod]:
            changes = launch.take_changes()
            if changes is None:
                return
            try:
                await asyncio.to_thread(write_launch, self._folder, *changes)
            except OSError as error:
                is_in_log = isinstance(error, ReportNotWrittenError)
                launch.put_back(b"" if is_in_log else changes.lines)
                raise

    async def flush_all(self) -> None:
        """Persist all launches; failures are logged, and the changes kept for the next flush."""
        for launch in list(self._all.values()):
            await self._flush_logged(launch)

    async def _flush_logged(self, launch: ServedLaunch) -> None:
        try:
            await self.flush(launch)
        except OSError as error:
            logger.error("cannot persist launch %s: %s", launch.identity.pod, error)  # noqa: TRY400 - expected

    async def keep_flushing(self) -> None:
        """Flush all launches periodically, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush_all()
