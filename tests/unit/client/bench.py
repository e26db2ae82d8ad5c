from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from securebench.client.progress import Event
from securebench.client.run_start import NOT_WATCHING, SessionDependencies
from securebench.client.session import RunEnd, RunSession
from securebench.client.submit import prepare
from securebench.client.tester_config import load_tester_config, with_tester_overrides
from securebench.client.volume import OperatorLink
from support.fake_operator import Namespace, Script, complete, write_tester

ENV = {"MY_NAME": "value", "EMPTY": ""}


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def report(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    def done(self) -> list[object]:
        return [fields["task_id"] for event, fields in self.events if event == Event.TASK_DONE]

    def starts(self) -> list[tuple[object, object]]:
        starts = [fields for event, fields in self.events if event == Event.TASK_START]
        return [(fields["index"], fields["total"]) for fields in starts]

    def notes(self) -> str:
        return "\n".join(
            str(fields["message"])
            for event, fields in self.events
            if event in (Event.NOTE, Event.WARNING)
        )

    def fields_of(self, wanted: Event) -> Mapping[str, object]:
        return next(fields for event, fields in self.events if event == wanted)


class Bench:
    """A tester's machine: one folder, one namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.yaml = write_tester(folder)
        self.namespace = Namespace(folder / "volume")
        self.reporter = Recorder()
        self.suffixes = count()
        self.output = folder / "out"
        self.watching = NOT_WATCHING

    def start(
        self, *, resume: bool = False, limit: int | None = None, parallelism: int | None = None
    ) -> RunSession:
        config = with_tester_overrides(load_tester_config(self.yaml), resume=resume, limit=limit)
        self.reporter = Recorder()
        around = SessionDependencies(
            cluster=self.namespace.cluster,
            link=OperatorLink(self.namespace.execute),
            environ=ENV,
            reporter=self.reporter,
            sleep=self.namespace.sleep,
            user_name=self.namespace.cluster.user_name,
            suffix=lambda: f"{next(self.suffixes):06d}",
            watching=self.watching,
        )
        return RunSession(config, prepare(config), around, parallelism)

    async def run(
        self, script: Script = complete, *, resume: bool = False, limit: int | None = None
    ) -> RunEnd:
        async def operate() -> None:
            await script(await self.namespace.next_run())

        operator = asyncio.create_task(operate())
        try:
            return await self.start(resume=resume, limit=limit).execute()
        finally:
            operator.cancel()

    def edit(self, old: str, new: str) -> None:
        text = self.yaml.read_text()
        assert old in text
        self.yaml.write_text(text.replace(old, new))

    def lines(self) -> list[object]:
        text = (self.output / "candidates.jsonl").read_text()
        return [json.loads(line)["task_id"] for line in text.splitlines()]
