"""The command line as a whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from securebench.cli import options
from securebench.cli.main import kubectl_complete, kubectl_plugin
from securebench.client import output, volume
from securebench.client.session import run_tester_config
from securebench.client.tester_config import load_tester_config, with_tester_overrides
from securebench.client.volume import ClusterTarget
from securebench.cluster.port import ObjectKind
from securebench.controller.volume_settings import Bounds, VolumeSettings
from securebench.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    SecureBenchError,
    TransientClusterError,
)
from securebench.json_values import object_at
from securebench.version import VERSION
from support.cli_fixtures import only_run
from support.cli_shell import Shell
from support.fake_operator import OperatorRun, record
from support.interrupts import interruptible


def test_a_whole_run(shell: Shell) -> None:
    result = shell.run()
    assert result.code == 0
    assert result.stdout == (
        "securebench: run_id=My run total=3 verification=complete verified=3 passed=2"
        f" output={shell.folder}/out/candidates.jsonl\n"
    )
    started, *lines = result.stderr.splitlines()
    assert re.fullmatch(
        r"securebench: started BenchmarkRun my-run-[0-9a-f]{8}-[0-9a-f]{6} \(0:00\)", started
    )
    assert lines == [
        "securebench: [1/3] b",
        'securebench: FAIL b score=0.0 (0:00) wrong_answer: the answer was "x"',
        "securebench: [2/3] a",
        "securebench: PASS a score=1.0 (0:00)",
        "securebench: [3/3] c",
        "securebench: PASS c score=1.0 (0:00)",
        "securebench: 1 of 3 attempts without a pass: wrong_answer 1",
        "securebench: passed 66.7 % (95 % interval 20.8 to 93.9)",
    ]


USAGE = {"requests": 2, "input_tokens": 3_000, "cached_tokens": 1_000, "output_tokens": 500}
PRICES = "prices:\n- {model: m, input: 1250000, cached_input: 125000, output: 10000000}\n"


def test_several_attempts_with_their_cost(shell: Shell) -> None:
    """Attempts come from the flag; the cost from the table, which summary.json keeps."""

    def attempt(number: int, model: str, *, passed: bool) -> dict[str, object]:
        metadata = {"usage": USAGE, "provider_models": [model]}
        changes = {"attempt": number, "producer_metadata": metadata}
        return {**record("a", passed=passed), **changes}

    async def script(run: OperatorRun) -> None:
        assert run.spec["attempts"] == 2
        run.bind()
        run.write(attempt(1, "m", passed=True), attempt(2, "other", passed=False))
        await run.end()

    shell.script = script
    prices = shell.folder / "prices.yaml"
    prices.write_text(PRICES)
    result = shell.run("--attempts", "2", "--prices", str(prices))
    assert result.code == 0
    assert result.stderr.splitlines()[-4:] == [
        "securebench: passed 50.0 % (95 % interval 5.5 to 94.5)",
        "securebench: pass@1 50.0 % (95 % interval 5.5 to 94.5), 1 tasks",
        "securebench: pass@2 100.0 % (95 % interval 20.7 to 100.0), 1 tasks",
        "securebench: cost $0.007625 without 3,500 tokens of other, for which there is no price",
    ]
    summary = json.loads((shell.folder / "out/summary.json").read_text())
    assert summary["cost"] == {"micro_dollars": 7_625, "unpriced_tokens": {"other": 3_500}}
    assert summary["prices"]["m"]["output"] == 10_000_000
    fetched = shell("results", only_run(shell), "--prices", str(prices))
    assert "cost $0.007625 without" in fetched.stderr


def test_too_many_attempts(shell: Shell) -> None:
    result = shell.run("--attempts", "101")
    assert result.code == 1
    assert "attempts must be an integer from 1 to 100: 101" in result.stdout


def test_quiet_has_no_progress(shell: Shell) -> None:
    result = shell.run("--quiet")
    assert (result.code, result.stderr) == (0, "")
    assert result.last.startswith("securebench: run_id=My run ")


def test_flags_reach_the_run(shell: Shell) -> None:
    result = shell.run(
        *("--limit", "2", "--output-dir", "elsewhere", "--parallelism", "9"),
        *("--budget-tokens", "5000"),
        *("-n", "bench", "--context", "kind", "--operator-pod", "sb-0"),
    )
    assert result.code == 0
    assert result.last.endswith(f"output={shell.folder}/elsewhere/candidates.jsonl")
    spec = shell.namespace.runs()[0]["spec"]
    assert isinstance(spec, dict)
    assert (spec["taskSelector"], spec["parallelism"]) == ({"limit": 2}, 9)
    assert spec["budget"] == {"tokens": 5000}
    assert shell.places == [ClusterTarget("bench", "kind", "sb-0")]


def test_an_incomplete_run_is_partial_with_a_warning(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a"), record("b", passed=None, outcome="infrastructure"))
        await run.end("Incomplete")

    shell.script = script
    result = shell.run()
    assert result.code == 0
    assert "total=2 verification=partial verified=1 passed=1" in result.last
    assert "securebench: warning: 1 of 2 attempts have no verdict\n" in result.stderr
    told = "securebench: PENDING b score=None outcome=infrastructure (0:00) infrastructure\n"
    assert told in result.stderr
    assert "securebench: 1 of 2 attempts without a pass: infrastructure 1\n" in result.stderr


def test_a_run_without_any_verdict_is_no_success(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(*(record(name, passed=None, outcome="infrastructure") for name in "ab"))
        await run.end("Incomplete")

    shell.script = script
    result = shell.run()
    error, last = result.stdout.splitlines()
    want = "securebench: error: nothing was graded: none of 2 attempts has a verdict"
    assert (result.code, error) == (1, want)
    assert want in result.stderr.splitlines()
    assert "total=2 verification=pending verified=0 passed=0" in last
    assert shell("results", only_run(shell)).code == 1


def test_a_run_without_an_attempt_is_no_success(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write()
        await run.end("Completed", "0 of 0 passed")

    shell.script = script
    result = shell.run()
    assert result.code == 1
    assert "error: nothing was graded: the run has no attempt\n" in result.stdout


def test_families_without_a_verifier_are_no_failure(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a", passed=None, outcome=None))
        await run.end("Completed")

    shell.script = script
    result = shell.run()
    assert result.code == 0
    assert "total=1 verification=pending verified=0 passed=0" in result.last


def test_what_a_run_waits_for_is_told_also_after_the_first_task(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        for seconds in (5, 7, 12):
            await run.status("Running", f"pulling python:3.11 for {seconds} s")
        await run.status("Probing", "waiting for the isolation canary")
        run.write(record("a"))
        await run.status("Running", "task b waits for a node")
        await run.end()

    shell.script = script
    told = [line for line in shell.run().stderr.splitlines() if "ing: " in line]
    assert told == [
        "securebench: Running: pulling python:3.11 for 5 s (0:00)",
        "securebench: Probing: waiting for the isolation canary (0:00)",
        "securebench: Running: task b waits for a node (0:00)",
    ]


def test_a_run_that_failed(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        await run.status("IsolationNotVerified", "the canary reached 10.0.0.1")

    shell.script = script
    result = shell.run()
    assert result.code == 1
    assert re.fullmatch(
        r"securebench: error: BenchmarkRun my-run-\S+ ended with IsolationNotVerified:"
        r" the canary reached 10\.0\.0\.1",
        result.last,
    )


def test_every_config_error_has_its_line_and_nothing_is_started(shell: Shell) -> None:
    shell.yaml.write_text(shell.yaml.read_text().replace("command:", "comand:"))
    (shell.folder / "pack" / "tasks.jsonl").write_text('{"id": "a"}\n{"id": "a"\n')
    result = shell.run()
    lines = result.stdout.splitlines()
    assert result.code == 1
    assert len(lines) >= 3
    assert all(line.startswith("securebench: error: ") for line in lines)
    assert any(f"{shell.folder}/pack/tasks.jsonl:2: invalid JSON" in line for line in lines)
    assert shell.places == []
    assert not (shell.folder / "out").exists()


@pytest.mark.parametrize(
    ("content", "want"),
    {
        "no YAML": ("{", "tester.yaml:"),
        "no object": ("[]", "Tester config root must be an object"),
    }.values(),
)
def test_a_broken_tester_yaml(shell: Shell, content: str, want: str) -> None:
    shell.yaml.write_text(content)
    result = shell.run()
    assert (result.code, result.stderr) == (1, result.stdout)
    assert result.last.startswith("securebench: error: ")
    assert want in result.last


def test_a_missing_tester_yaml(shell: Shell) -> None:
    result = shell("run", "--config", "none.yaml")
    assert (result.code, result.last[:33]) == (1, "securebench: error: none.yaml: ca")


def test_a_bad_env_file_names_the_line_and_no_value(shell: Shell) -> None:
    (shell.folder / ".env").write_text("A=1\nsecret\n")
    result = shell.run()
    assert result.code == 1
    assert result.stdout == "securebench: error: .env:2: expected KEY=VALUE\n"


def test_an_env_file_that_is_named_and_missing_is_warned_about(shell: Shell) -> None:
    warning = "securebench: warning: --env-file: there is no file absent.env"
    named = shell("run", "--config", str(shell.yaml), "--quiet", "--env-file", "absent.env")
    assert (named.code, named.stderr.count(warning)) == (0, 1)
    default = shell("run", "--config", str(shell.yaml), "--quiet")
    assert "env-file" not in default.stderr


def test_unknown_keys_are_warned_about(shell: Shell) -> None:
    manifest = shell.folder / "pack" / "manifest.yaml"
    manifest.write_text(manifest.read_text() + "typo: 1\n")
    result = shell.run("--quiet")
    assert result.code == 0
    assert result.stderr == f"securebench: warning: {manifest}:6: unknown manifest key 'typo'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("run",),
        ("run", "--config", "a", "--unknown"),
        ("run", "--config", "a", "--limit", "x"),
        ("run", "--config", "a", "--parallelism", "0"),
        ("submit", "--config", "a", "--budget-tokens", "0"),
        ("pack", "nonsense"),
        ("results",),
    ],
)
def test_wrong_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    result = shell(*arguments)
    assert (result.code, result.stdout) == (2, "")
    assert "Error" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("lint",), "No such command 'lint'. Did you mean 'pack lint'?"),
        (("run", "--config", "a", "--limit", "abc"), "'abc' is no whole number"),
        (("run", "--config", "a", "--fail-below", "80"), "write 0.8 for 80 %"),
        (("run", "--config", "a", "--fail-below", "all"), "'all' is no number from 0 to 1"),
    ],
)
def test_wrong_usage_says_what_is_right(
    shell: Shell, arguments: tuple[str, ...], want: str
) -> None:
    assert shell(*arguments).stderr.rstrip().endswith(want)


def test_tasks_time_and_nodes_by_keys_and_flags(shell: Shell) -> None:
    text = shell.yaml.read_text()
    shell.yaml.write_text(
        text.replace("run: {", 'run: {tasks: ["a*", c], deadline_seconds: 60, ')
        + "pods: {resources: {limits: {cpu: 2, memory: 1Gi}}, node_selector: {disk: ssd}}\n"
    )
    assert shell.run().code == 0
    spec = object_at(shell.namespace.runs()[0], "spec")
    assert spec["taskSelector"] == {"include": ["a*", "c"]}
    assert spec["activeDeadlineSeconds"] == 60
    assert spec["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}}
    assert spec["podTemplate"] == {"nodeSelector": {"disk": "ssd"}}


def test_flags_replace_tasks_time_and_nodes(shell: Shell) -> None:
    flags = ("--task", "b", "--task", "c", "--deadline", "90", "--node-selector", "disk=hdd")
    assert shell.run(*flags).code == 0
    spec = object_at(shell.namespace.runs()[0], "spec")
    assert spec["taskSelector"] == {"include": ["b", "c"]}
    assert spec["activeDeadlineSeconds"] == 90
    assert spec["podTemplate"] == {"nodeSelector": {"disk": "hdd"}}


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        (("--task", "x*"), "none of 3 tasks matches x*; securebench pack show lists them"),
        (("--task", "x" * 257), "--task[0] must be a text of 1 to 256 characters"),
        (("--deadline", "0"), "--deadline must be an integer from 1 to 2592000"),
    ],
)
def test_flags_that_leave_nothing(shell: Shell, flags: tuple[str, ...], want: str) -> None:
    refused = shell.run(*flags)
    assert refused.code == 1
    assert refused.last.endswith(want)
    assert shell.places == []


def test_the_records_of_another_run_are_not_replaced(shell: Shell) -> None:
    assert shell.run().code == 0
    records = shell.folder / "out" / "candidates.jsonl"
    before = records.read_bytes()
    text = shell.yaml.read_text()
    shell.yaml.write_text(text.replace("My run", "Another"))
    refused = shell.run()
    assert (refused.code, refused.last) == (
        1,
        (
            f"securebench: error: {records.parent} has the records of run 'My run'; choose another"
            " folder with --output-dir, or remove them"
        ),
    )
    assert records.read_bytes() == before
    shell.yaml.write_text(text)
    assert "had the records of an earlier start" in shell.run().stderr


def test_an_interrupt_says_how_to_come_back(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        await run.status("Running")
        signal.raise_signal(signal.SIGINT)

    shell.script = script
    monkeypatch.setattr(sys, "argv", ["securebench", "run", "--config", "my tester.yaml"])
    result = shell.run()
    assert (result.code, result.stdout) == (130, "")
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"securebench: interrupted; BenchmarkRun my-run-\S+ continues\."
        r" Follow it again with: securebench run --config 'my tester\.yaml'",
        last,
    )


def test_an_interrupt_before_the_start(shell: Shell) -> None:
    def interrupt(data: bytes) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return data

    shell.namespace.tamper = interrupt
    result = shell.run()
    assert result.code == 130
    assert result.stderr == "securebench: interrupted; nothing was started\n"
    assert shell.namespace.runs() == []


@pytest.mark.parametrize(
    ("error", "want"),
    {
        "no connection": (
            TransientClusterError("no connection: GET /api: refused"),
            "no connection: GET /api: refused",
        ),
        "not allowed": (
            PermanentClusterError("API server answered 403: may not create", status=403),
            (
                "your account lacks a permission; ask for the chart's role 'tester'"
                " (API server answered 403: may not create)"
            ),
        ),
        "no CRD": (
            PermanentClusterError("API server answered 404", status=404),
            (
                "the cluster has no resource BenchmarkRun; install the chart with its CRDs"
                " (API server answered 404)"
            ),
        ),
    }.values(),
)
def test_cluster_errors_are_one_line(shell: Shell, error: ClusterError, want: str) -> None:
    shell.namespace.cluster.fail_next("list", error, kind=ObjectKind.BENCHMARK_RUN)
    result = shell.run()
    assert (result.code, result.stdout) == (1, f"securebench: error: {want}\n")


def test_no_kubeconfig(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(shell.folder / "none"))
    monkeypatch.setattr("securebench.client.session.open_connection", volume.open_connection)
    result = shell.run()
    assert result.code == 1
    assert result.stdout.count("\n") == 1
    assert result.stdout.startswith("securebench: error: no cluster")


def test_an_output_folder_that_cannot_be_made(shell: Shell) -> None:
    (shell.folder / "file").write_text("")
    result = shell.run("--output-dir", "file/out")
    assert result[:2] == (
        1,
        (
            f"securebench: error: the output folder {shell.folder}/file/out cannot be created:"
            f" {shell.folder}/file is a file; choose another with --output-dir\n"
        ),
    )
    assert shell.namespace.runs() == []


def test_an_error_is_said_once_in_each_place(tmp_path: Path) -> None:
    code = "from securebench.client.output import print_error; print_error('broken')"
    line = "securebench: error: broken\n"
    apart = _python("-c", code)
    assert (apart.stdout, apart.stderr) == (line, line)
    with (tmp_path / "both").open("w+") as both:
        subprocess.run(
            [sys.executable, "-c", code],
            stdout=both,
            stderr=both,
            check=True,
            env=ENVIRONMENT,
        )
        both.seek(0)
        assert both.read() == line


def test_the_version_and_shell_completion(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    assert shell("--version")[:2] == (0, f"securebench {VERSION}\n")
    monkeypatch.setenv("_SECUREBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "securebench res")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert shell().stdout.split() == ["resume", "results"]


def test_errors_of_several_lines_are_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ConfigError("one\x1b\ntwo")

    with pytest.raises(BaseException, match="1"):
        output.end_with(fail)
    assert capsys.readouterr().out == ("securebench: error: one\ufffd\nsecurebench: error: two\n")


@pytest.mark.parametrize(("limit", "want"), [(None, 1), (2, 2)])
def test_the_facade_keeps_the_overrides_of_a_configuration(
    shell: Shell, limit: int | None, want: int
) -> None:
    config = with_tester_overrides(load_tester_config(shell.yaml), limit=1)
    run_tester_config(config, limit=limit)
    (run,) = shell.namespace.runs()
    assert run["spec"]["taskSelector"] == {"limit": want}  # type: ignore[index]


def test_the_facade_runs_a_configuration(shell: Shell) -> None:
    summary = run_tester_config(load_tester_config(shell.yaml), limit=2)
    assert (summary.total, summary.passed) == (3, 2)

    async def script(run: OperatorRun) -> None:
        await run.status("Cancelled", "by hand")

    shell.script = script
    with pytest.raises(SecureBenchError, match="ended with Cancelled: by hand"):
        run_tester_config(load_tester_config(shell.yaml))


@pytest.mark.parametrize(("terminal", "want"), [(True, "\x1b["), (False, "codex: hello\n")])
def test_agent_output(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, want: str
) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write({**record("a"), "producer_stdout": "hello"})
        await run.end()

    shell.script = script
    shell.yaml.write_text(shell.yaml.read_text().replace("python3 answer.py", "codex exec x"))
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = shell.run("--show-agent-output")
    assert result.code == 0
    assert want in result.stderr
    assert (shell.folder / "out" / "agent-trace.log").read_text() == "a | codex: hello\n"


def test_operator_io_takes_root_and_bounds_from_the_settings(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = VolumeSettings(data_root=shell.namespace.root, bounds=Bounds(pack_files=1))
    monkeypatch.setattr("securebench.controller.exec_io.load_volume_settings", lambda: settings)
    found = shell("operator-io", "--", "find-run", "--help")
    assert (found.code, found.stdout) == (0, "[]\n")
    assert json.loads(found.stderr) == {"ok": True, "runs": 0}
    folder = shell.namespace.root / "packs" / "big"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("")
    too_large = shell("operator-io", "--", "show-pack", "big")
    assert too_large.code == 1
    assert json.loads(too_large.stderr)["kind"] == "TooLargeError"


def test_the_operator_command_runs_the_operator(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = ModuleType("securebench.controller.handlers")
    started: list[bool] = []
    handlers.run_operator = lambda: started.append(True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "securebench.controller.handlers", handlers)
    assert shell("operator").code == 0
    assert started == [True]


def test_the_module_is_the_program_and_loads_no_large_library() -> None:
    code = (
        "import sys, atexit; from securebench.cli.main import main;"
        "import securebench.controller.exec_io;"
        "large = {'kopf', 'kubernetes', 'jsonschema', 'cryptography', 'aiohttp'};"
        "atexit.register(lambda: print(sorted(large & set(sys.modules))));"
        "sys.argv = ['securebench', '--help']; main()"
    )
    done = _python("-c", code)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]")
    assert _python("-m", "securebench.cli", "nonsense").returncode == 2


ENVIRONMENT = {"PYTHONPATH": str(Path(output.__file__).parents[2])}
"""Of a Python that finds the package where these tests do, and knows nothing else."""


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )


def test_looks_are_of_two_runs(shell: Shell) -> None:
    end = shell("compare", "a", "b", "c", "--looks", "2")
    assert end.code == 2
    assert "--looks compares two runs" in end.stderr


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


ASK = (sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT))")


def test_children_can_be_interrupted_where_interrupts_are_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inherited = subprocess.check_output(ASK, text=True)
        with interruptible():
            given = subprocess.check_output(ASK, text=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (int(inherited), "default_int_handler" in given) == (signal.SIG_IGN, True)
