"""What an ended verifier launch left, in a plain folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from securebench.run.observe.pods import PodView
from securebench.run.plan.model import LaunchKey, Role
from support.build import VERIFIER, pod_status, view_of


class LeftIn(NamedTuple):
    """What the interface of verifications knows of a launch that ended with an exit code."""

    folder: Path
    code: int = 0
    messages: dict[str, str] = {}  # noqa: RUF012 - read only
    launch: LaunchKey = LaunchKey(0, 1, Role.VERIFIER, 1)
    batch: LaunchKey | None = None
    view: PodView = view_of(VERIFIER, pod_status("Succeeded"))

    def message(self, container: str) -> str:
        return self.messages.get(container, "")

    def read(self, launch: LaunchKey, name: str, most_bytes: int) -> bytes:
        assert launch in (self.launch, self.batch)
        with (self.folder / name).open("rb") as file:
            return file.read(most_bytes + 1)
