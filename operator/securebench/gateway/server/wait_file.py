"""Tells the operator which launches the model provider makes wait, in one file of the run."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from securebench.files.durable import replace_file
from securebench.gateway.server.registry import Launches
from securebench.protocol.gateway import ProviderWaits, encode

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 1.0
"""Minimum time between two writes."""
RECHECK_SECONDS: Final = 60.0
"""Interval of rechecks without a change, for launches that ended unnoticed."""


class WaitFile:
    """Keeps the file up to date.

    Args:
        path: On the volume.
        launches: Those of the run.
    """

    def __init__(self, path: Path, launches: Launches) -> None:
        self._path = path
        self._launches = launches
        self._written: ProviderWaits | None = None

    async def write(self) -> None:
        """Write the file if it has changed; a failure is logged and repaired by the next write."""
        self._launches.waits_changed.clear()
        waits = self._launches.waits()
        if waits == self._written:
            return
        try:
            await asyncio.to_thread(replace_file, self._path, encode(waits))
        except OSError as error:
            logger.error("cannot write %s: %s", self._path.name, error)  # noqa: TRY400 - expected
            self._launches.waits_changed.set()
        else:
            self._written = waits

    async def keep_writing(self) -> None:
        """Write the file soon after each change, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await self._launches.waits_changed.wait()
            await self.write()
            await asyncio.sleep(WRITE_SECONDS)
