"""Observes what the gateway of one run says of its model provider."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from securebench.controller.volume.gateway_reports import read_gateway_state
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import on_volume
from securebench.run.observe.provider_waits import ObservedProvider, observed_provider

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
"""Polling interval; a shared volume gives no change notifications."""


class ProviderWatch:
    """Reads the gateway's files in the background.

    Args:
        store: The run's folder.
        run_uid: UID of the run.
        host: Host of its model provider.
        on_change: Called when a file has changed.
    """

    def __init__(
        self, store: RunStore, run_uid: str, host: str, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._run_uid = run_uid
        self._host = host
        self._on_change = on_change
        self._reader: asyncio.Task[None] | None = None
        self.observed = ObservedProvider(host)
        """What the files say."""

    def check(self) -> None:
        """Raise what ended the reading, if it has ended."""
        if self._reader is not None and self._reader.done():
            self._reader.result()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Read the files at once, and again and again until the block ends."""
        await self._read()
        self._reader = asyncio.create_task(self._keep_reading())
        try:
            yield
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(READ_SECONDS)
            await self._read()

    async def _read(self) -> None:
        try:
            state = await on_volume(read_gateway_state, self._store)
        except OSError as error:
            logger.warning("the gateway's files of run %s cannot be read: %s", self._run_uid, error)
            return
        found = observed_provider(state.waits, self._run_uid, self._host, state.tokens_used)
        if found != self.observed:
            self.observed = found
            self._on_change()
