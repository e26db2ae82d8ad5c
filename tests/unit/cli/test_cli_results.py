from __future__ import annotations

import json
import signal

from securebench.analysis.results import read_results
from securebench.cluster.port import metadata
from support.cli_fixtures import leave_running, only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun


def test_results_of_a_finished_run(shell: Shell) -> None:
    ran = shell.run()
    name = only_run(shell)
    fetched = shell("results", name)
    assert fetched.code == 0
    assert fetched.last == ran.last.replace("/out/", f"/{name}/")
    records = (shell.folder / name / "candidates.jsonl").read_bytes()
    assert records == (shell.folder / "out" / "candidates.jsonl").read_bytes()
    assert json.loads((shell.folder / name / "summary.json").read_text())["total"] == 3


def test_results_of_a_run_that_goes_on(shell: Shell) -> None:
    leave_running(shell)
    name = only_run(shell)
    fetched = shell("results", name, "--output-dir", "here")
    assert fetched.code == 0
    assert fetched.last == (
        f"securebench: run={name} state=Running records=1"
        f" output={shell.folder}/here/candidates.jsonl"
    )


def test_results_of_a_run_without_records(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        await run.status("Probing", "waiting for the isolation canary")
        signal.raise_signal(signal.SIGINT)

    shell.script = script
    shell.run()
    name = only_run(shell)
    assert shell("results", name)[:2] == (
        1,
        (
            f"securebench: error: run {name} has no record;"
            " it is Probing: waiting for the isolation canary\n"
        ),
    )


def test_results_of_a_run_that_goes_on_leave_no_summary_of_an_earlier_one(
    shell: Shell, finished: str
) -> None:
    assert shell("results", finished, "--output-dir", "kept").code == 0
    leave_running(shell)
    (second,) = {str(metadata(run)["name"]) for run in shell.namespace.runs()} - {finished}
    fetched = shell("results", second, "--output-dir", "kept")
    assert "state=Running records=1" in fetched.last
    assert not read_results(shell.folder / "kept", "kept").has_ended


def test_results_of_a_run_without_records_leave_those_of_an_earlier_one(
    shell: Shell, finished: str
) -> None:
    async def script(run: OperatorRun) -> None:
        await run.status("Probing")
        signal.raise_signal(signal.SIGINT)

    assert shell("results", finished, "--output-dir", "kept").code == 0
    shell.script = script
    shell.run("--output-dir", "other")
    (second,) = {str(metadata(run)["name"]) for run in shell.namespace.runs()} - {finished}
    assert shell("results", second, "--output-dir", "kept").code == 1
    assert read_results(shell.folder / "kept", "kept").has_ended


def test_results_of_an_unknown_run(shell: Shell) -> None:
    result = shell("results", "none")
    assert (result.code, result.last) == (
        1,
        (
            "securebench: error: there is no BenchmarkRun 'none' in this namespace, and none has"
            " this run id, nor on the results volume; securebench ps lists them"
        ),
    )
    assert not (shell.folder / "none").exists()


def test_logs(shell: Shell) -> None:
    shell.run()
    uid = next((shell.namespace.root / "runs").glob("*/candidates.jsonl")).parent
    attempt = uid / "tasks" / "0" / "attempts" / "1"
    (attempt / "launches" / "1" / "producer").mkdir(parents=True)
    (attempt / "launches" / "1" / "producer" / "stdout").write_text("hello")
    (attempt / "record.json").write_text('{"task_id": "a"}')
    result = shell("logs", only_run(shell), "a")
    assert (result.code, result.stdout) == (0, "==> producer/stdout <==\nhello\n")
    assert shell("logs", only_run(shell), "zzz").code == 1


def test_a_diff_of_a_run_with_itself(shell: Shell, finished: str) -> None:
    told = shell("results", "--diff", finished, finished)
    assert told[:2] == (0, "securebench: 0 of 3 tasks flipped: 0 lost, 0 gained\n")


def test_a_diff_needs_two_runs(shell: Shell, finished: str) -> None:
    refused = shell("results", "--diff", finished)
    assert (refused.code, "--diff needs two runs" in refused.stderr) == (2, True)
