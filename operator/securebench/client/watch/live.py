"""Stream the output of a run's agents while they work (contract 16.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from securebench.client.volume.link import OperatorLink
from securebench.client.volume.watch_answers import LivePart
from securebench.client.watch.background import in_background
from securebench.client.watch.progress import Event, Reporter
from securebench.errors import ClusterError, InvalidInputError, StorageError
from securebench.protocol.exec_calls import LaunchNumbers
from securebench.run.records.reading import RecordKey

_PAUSE_SECONDS = 2.0
_TROUBLE_SECONDS = 30.0
"""Pause before the next request after the operator's Pod failed to respond."""


class LiveOutput:
    """Reports complete lines that active agents print, each once.

    Args:
        link: Exec protocol with the operator's Pod.
        uid: Uid of the BenchmarkRun.
        task_ids: Ids of the rows, in pack order.
        reporter: Receives ``agent_output`` events.
    """

    def __init__(
        self, link: OperatorLink, uid: str, task_ids: Sequence[str], reporter: Reporter
    ) -> None:
        self._link = link
        self._uid = uid
        self._task_ids = task_ids
        self._reporter = reporter
        self._sizes: dict[LaunchNumbers, int] = {}
        self._pending: dict[LaunchNumbers, bytes] = {}
        self._finished: set[RecordKey] = set()

    def finish(self, key: RecordKey) -> None:
        """Note that an attempt's record has arrived; later live output of it is dropped."""
        self._finished.add(key)
        for launch in [seen for seen in self._sizes if self._key(seen) == key]:
            del self._sizes[launch]
            self._pending.pop(launch, None)

    def watched(
        self, sleep: Callable[[float], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Poll in the background while the body of the context runs."""
        return in_background(self._watch(sleep))

    async def poll(self) -> None:
        """Fetch once and report new lines.

        Raises:
            SecureBenchError: See ``OperatorLink.get_live``.
        """
        for part in await self._link.get_live(self._uid, dict(self._sizes)):
            key = self._key(part.launch)
            if key is not None and key not in self._finished:
                self._take(key, part)

    async def _watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            try:
                await self.poll()
            except InvalidInputError:
                return
            except (ClusterError, StorageError):
                await sleep(_TROUBLE_SECONDS)
            await sleep(_PAUSE_SECONDS)

    def _take(self, key: RecordKey, part: LivePart) -> None:
        if part.offset != self._sizes.get(part.launch, 0):
            return
        self._sizes[part.launch] = part.offset + len(part.data)
        data = self._pending.get(part.launch, b"") + part.data
        whole, end, rest = data.rpartition(b"\n")
        self._pending[part.launch] = rest
        if end:
            self._reporter.report(
                Event.AGENT_OUTPUT,
                task_id=key.task_id,
                launch=part.launch,
                text=whole.decode("utf-8", "replace"),
            )

    def _key(self, launch: LaunchNumbers) -> RecordKey | None:
        if launch.task >= len(self._task_ids):
            return None
        return RecordKey(self._task_ids[launch.task], launch.attempt)
