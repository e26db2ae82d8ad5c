from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.controller import loop_tasks, process
from securebench.controller.volume.artifacts import VolumeArtifacts
from securebench.errors import StorageError
from securebench.run.artifacts import TaskPrograms
from support.build import FakeClock


async def test_the_operator_waits_until_the_volume_has_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = iter([OSError(28, "No space left on device"), StorageError("no folder"), "sha256:7"])

    def install(*_: object) -> TaskPrograms:
        end = next(ends)
        if isinstance(end, Exception):
            raise end
        return TaskPrograms(str(end))

    monkeypatch.setattr(VolumeArtifacts, "install", install)
    monkeypatch.setattr(loop_tasks, "AGAIN_SECONDS", 0.0)
    found = process.installed_tools(VolumeArtifacts(tmp_path), tmp_path, FakeClock())

    assert await asyncio.wait_for(found, 5) == "sha256:7"
    assert "No space left on device" in caplog.text
