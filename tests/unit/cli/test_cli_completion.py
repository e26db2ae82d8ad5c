"""Shell completion, also of the kubectl plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from securebench.cli import options
from securebench.cli.main import kubectl_complete, kubectl_plugin
from securebench.errors import ConfigError
from support.cli_fixtures import only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun


@pytest.fixture(autouse=True)
def _no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_end_silently_after", lambda _: None)
    for name in ("_SECUREBENCH_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")


async def begin(run: OperatorRun) -> None:
    run.bind()
    run.freeze()
    await run.status("Running")


@pytest.fixture
def name(shell: Shell) -> str:
    shell.script = begin
    assert shell.submit().code == 0
    return only_run(shell)


def completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-securebench", *words])
    kubectl_complete()
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out.split()


CASES = {
    "a command": (("canc",), ["cancel", ":4"]),
    "a form": (("ps", "-o", "y"), ["yaml", ":4"]),
    "a run": (("cancel", "my-"), ["{run}", ":4"]),
    "a run behind flags": (("cancel", "-n", "bench", "my-"), ["{run}", ":4"]),
    "another run": (("rm", "{run}", "my-"), ["{run}", ":4"]),
    "a task": (("logs", "{run}", ""), ["a", "b", "c", ":4"]),
    "a task of a run id": (("why", "My run", "b"), ["b", ":4"]),
    "a task of no run": (("logs", "none", ""), [":0"]),
    "a file": (("run", "--config", "t"), [":0"]),
}


@pytest.mark.parametrize(("words", "want"), CASES.values(), ids=CASES)
def test_what_kubectl_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    words: tuple[str, ...],
    want: list[str],
) -> None:
    given = [word.format(run=name) for word in words]
    assert completed(monkeypatch, capsys, *given) == [word.format(run=name) for word in want]


def test_no_cluster_means_no_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> Iterator[None]:
        raise ConfigError("the kubeconfig cannot be used")

    for opener in ("open_cluster", "open_connection"):
        monkeypatch.setattr(f"securebench.client.runs.{opener}", refuse)
    assert completed(monkeypatch, capsys, "cancel", "") == [":0"]
    assert completed(monkeypatch, capsys, "logs", "run", "") == [":0"]


def test_a_slow_cluster_ends_the_completion_silently() -> None:
    code = (
        "import time; from securebench.cli.options import _end_silently_after as end;"
        "end(0.05); time.sleep(60)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_plugin_calls_itself_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-securebench", "cancel", "--help"])
    with pytest.raises(SystemExit):
        kubectl_plugin()
    assert "Usage: kubectl securebench cancel" in capsys.readouterr().out
