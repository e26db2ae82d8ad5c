from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_shell import Shell
from support.interrupts import interruptible


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    for module in ("client.session.facade", "client.commands.packs", "client.commands.results"):
        monkeypatch.setattr(f"securebench.{module}.open_connection", made.connect)
    monkeypatch.setattr("securebench.client.commands.runs.open_cluster", made.open_cluster)
    monkeypatch.setattr("securebench.client.commands.results.open_published", made.open_published)
    return made


@pytest.fixture(autouse=True)
def interrupt() -> Iterator[None]:
    """Let Ctrl-C interrupt, also where the tests were started in the background of a shell."""
    with interruptible():
        yield
