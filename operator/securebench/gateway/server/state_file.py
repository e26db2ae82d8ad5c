"""Files of the run in which a gateway tells the operator its state, each rewritten on changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from securebench.files.durable import replace_file
from securebench.protocol.gateway import ProviderWaits, RunUsage, encode

logger = logging.getLogger(__name__)

WRITE_SECONDS: Final = 1.0
"""Minimum time between two writes."""
RECHECK_SECONDS: Final = 60.0
"""Interval of rechecks without a change, for launches that ended unnoticed."""


class StateFile:
    """Keeps one file up to date.

    Args:
        path: On the volume.
        changed: Set when the state may have changed.
        state: Returns what the file has to say.
    """

    def __init__(
        self, path: Path, changed: asyncio.Event, state: Callable[[], ProviderWaits | RunUsage]
    ) -> None:
        self._path = path
        self._changed = changed
        self._state = state
        self._written: ProviderWaits | RunUsage | None = None

    async def write(self) -> None:
        """Write the file if it has changed; a failure is logged and repaired by the next write."""
        self._changed.clear()
        state = self._state()
        if state == self._written:
            return
        try:
            await asyncio.to_thread(replace_file, self._path, encode(state))
        except OSError as error:
            logger.error("cannot write %s: %s", self._path.name, error)  # noqa: TRY400 - expected
            self._changed.set()
        else:
            self._written = state

    async def keep_writing(self) -> None:
        """Write the file soon after each change, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await self._changed.wait()
            await self.write()
            await asyncio.sleep(WRITE_SECONDS)
