"""Fixtures of the command line before a fake namespace: a terminal, and a run that has ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from securebench.cluster.port import metadata
from support.cli_shell import Shell
from support.fake_operator import OperatorRun, record
from support.interrupts import interruptible


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    made = Shell(tmp_path)
    monkeypatch.chdir(tmp_path)
    for module in ("session", "results", "why", "logs", "packs", "runs"):
        monkeypatch.setattr(f"securebench.client.{module}.open_connection", made.connect)
    for module in ("why", "run", "runs"):
        monkeypatch.setattr(f"securebench.client.{module}.open_cluster", made.open_cluster)
    monkeypatch.setattr("securebench.client.results.open_published", made.open_published)
    monkeypatch.setattr("securebench.client.run.open_watched", made.open_watched)
    return made


@pytest.fixture(autouse=True)
def interrupt() -> Iterator[None]:
    """Let Ctrl-C interrupt, also where the tests were started in the background of a shell."""
    with interruptible():
        yield


@pytest.fixture
def finished(shell: Shell) -> str:
    """Run to the end and return the name of the run."""
    assert shell.run().code == 0
    return only_run(shell)


def only_run(shell: Shell) -> str:
    (run,) = shell.namespace.runs()
    return str(metadata(run)["name"])


def leave_running(shell: Shell) -> None:
    """Begin a run, and let Ctrl-C end the command once the run has one record."""

    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a"))
        await run.status("Running")
        signal.raise_signal(signal.SIGINT)

    shell.script = script
    shell.run()
