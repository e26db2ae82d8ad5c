from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.controller import loop_tasks, process
from securebench.errors import StorageError
from support.build import FakeClock


async def test_the_operator_waits_until_the_volume_has_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = iter([OSError(28, "No space left on device"), StorageError("no folder"), "tools/7"])

    def install(*_: object) -> str:
        end = next(ends)
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(process, "install_tools", install)
    monkeypatch.setattr(loop_tasks, "AGAIN_SECONDS", 0.0)
    found = process.installed_tools(tmp_path, tmp_path, FakeClock())

    assert await asyncio.wait_for(found, 5) == "tools/7"
    assert "No space left on device" in caplog.text
