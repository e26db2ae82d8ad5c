from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.client.volume import (
    VIEWER_COMMAND,
    ClusterTarget,
    Connection,
    OperatorLink,
    WatchedNamespace,
)
from securebench.errors import PermanentClusterError
from support.fake_operator import (
    FakeCluster,
    Namespace,
    OperatorRun,
    Script,
    complete,
    write_tester,
)


class Outcome(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def last(self) -> str:
        return self.stdout.splitlines()[-1]


class Shell:
    """A terminal in front of a fake namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.yaml = write_tester(folder)
        self.namespace = Namespace(folder / "volume")
        self.script: Script = complete
        self.places: list[ClusterTarget] = []
        self.is_viewer = False
        self.continue_run: Script | None = None

    @asynccontextmanager
    async def connect(self, place: ClusterTarget) -> AsyncIterator[Connection]:
        self.places.append(place)
        if self.is_viewer:
            raise PermanentClusterError("pods is forbidden", status=403)

        operator = asyncio.create_task(self.operate())
        link = OperatorLink(self.namespace.execute)
        yield Connection(self.namespace.cluster, link)  # type: ignore[arg-type]
        operator.cancel()

    @asynccontextmanager
    async def open_published(self, _place: ClusterTarget) -> AsyncIterator[Connection]:
        link = OperatorLink(self.namespace.execute_for_viewer, VIEWER_COMMAND)
        yield Connection(self.namespace.cluster, link)  # type: ignore[arg-type]

    @asynccontextmanager
    async def open_watched(self, _place: ClusterTarget) -> AsyncIterator[WatchedNamespace]:
        link = None if self.is_viewer else OperatorLink(self.namespace.execute)
        operator = asyncio.create_task(self.operate())
        yield WatchedNamespace(self.namespace.cluster, link)
        operator.cancel()

    async def operate(self) -> None:
        """Work on the next run, or go on with the one that is there."""
        if self.continue_run is None:
            await self.script(await self.namespace.next_run())
        else:
            (run,) = self.namespace.runs()
            await self.continue_run(OperatorRun(self.namespace, run))

    @asynccontextmanager
    async def open_cluster(self, _place: ClusterTarget) -> AsyncIterator[FakeCluster]:
        yield self.namespace.cluster

    def __call__(self, *arguments: str) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    def run(self, *arguments: str) -> Outcome:
        return self("run", "--config", str(self.yaml), *arguments)

    def submit(self, *arguments: str) -> Outcome:
        return self("submit", "--config", str(self.yaml), *arguments)

    async def aside(self, *arguments: str) -> Outcome:
        """Run a command, which has an event loop of its own, from within another one."""
        return await asyncio.to_thread(self, *arguments)
