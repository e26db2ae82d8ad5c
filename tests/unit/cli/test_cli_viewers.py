from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from securebench.client.volume import viewers_pod
from securebench.cluster.port import ObjectKind
from securebench.controller import exec_io
from securebench.controller.volume.results import prepare_published
from support.cli_fixtures import leave_running, only_run
from support.cli_shell import Shell


def test_a_viewer_fetches_an_ended_run(shell: Shell, finished: str) -> None:
    shell.is_viewer = True
    fetched = shell("results", finished)
    assert fetched.code == 0
    counts = "run_id=My run total=3 verification=complete verified=3 passed=2"
    assert fetched.last == (
        f"securebench: {counts} output={shell.folder}/{finished}/candidates.jsonl"
    )
    lines = (shell.folder / finished / "candidates.jsonl").read_text().splitlines()
    assert [json.loads(line)["task_id"] for line in lines] == ["a", "b", "c"]
    assert json.loads((shell.folder / finished / "summary.json").read_text())["passed"] == 2


@pytest.mark.parametrize("file", ["candidates.jsonl", "summary.json"])
def test_what_somebody_changed_on_the_way_is_found_or_not_believed(
    shell: Shell, finished: str, file: str
) -> None:
    """Viewers share one Pod, and may change what a program there answers to another."""
    shell.is_viewer = True
    (path,) = (shell.namespace.root / "published").glob(f"*/{file}")
    path.write_bytes(path.read_bytes().replace(b'"passed": ', b'"passed":  '))
    fetched = shell("results", finished)
    if file == "candidates.jsonl":
        assert fetched.code == 1
        assert "error: candidates.jsonl arrived damaged: expected " in fetched.last
        assert not (shell.folder / finished / "candidates.jsonl").exists()
    else:
        assert (fetched.code, "passed=2" in fetched.last) == (0, True)


def test_a_viewer_fetches_a_run_whose_object_is_gone(shell: Shell, finished: str) -> None:
    shell.is_viewer = True
    shell.namespace.cluster.remove(ObjectKind.BENCHMARK_RUN, finished)
    assert shell("results", "My run").code == 0


def test_a_viewer_gets_nothing_of_a_run_that_goes_on(shell: Shell) -> None:
    leave_running(shell)
    shell.is_viewer = True
    fetched = shell("results", only_run(shell))
    assert fetched.code == 1
    assert f"run {only_run(shell)} has no published results: they appear when" in fetched.last


def test_the_viewers_pod_stands_beside_the_operators() -> None:
    assert viewers_pod("securebench-0") == "securebench-viewers-0"
    assert viewers_pod("bench-securebench-0") == "bench-securebench-viewers-0"


class EndedError(Exception):
    pass


def wait(root: Path, times: list[float]) -> int:
    def pause() -> None:
        raise EndedError

    waits: list[float] = []
    try:
        code = exec_io.wait_for_viewers(
            root, pause=pause, clock=lambda: times.pop(0), sleep=waits.append
        )
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return code


def test_the_pod_waits_for_the_operators_folder(tmp_path: Path) -> None:
    assert wait(tmp_path, [0.0, 30.0, 61.0]) == 1
    prepare_published(tmp_path)
    (tmp_path / "published").rename(tmp_path / "runs")
    with pytest.raises(EndedError):
        wait(tmp_path, [0.0])


def test_the_viewers_program_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": None}))
    assert exec_io.viewer_io(["find-named", "none"], tmp_path) == 0
    assert capsys.readouterr().out == "[]\n"
