from __future__ import annotations

from pathlib import Path

import pytest

from unit.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    for module in ("tester.facade", "cli.pack", "cli.results"):
        monkeypatch.setattr(f"securebench.{module}.open_connection", made.connect)
    return made
