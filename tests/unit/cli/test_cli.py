from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from securebench.client.commands import output
from securebench.client.session.facade import run_tester_config
from securebench.client.submit.tester_config import load_tester_config, with_tester_overrides
from securebench.client.volume import connection
from securebench.client.volume.connection import ClusterTarget, PodExec, operator_pod
from securebench.cluster.podexec import PodExecResult
from securebench.cluster.port import ObjectKind
from securebench.controller.settings.parts import Bounds
from securebench.controller.settings.settings import Settings
from securebench.core.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    SecureBenchError,
    TooLargeError,
    TransientClusterError,
)
from securebench.core.version import VERSION
from support.cli_shell import Shell
from support.fake_cluster import FakeCluster
from support.fake_operator import OperatorRun, record


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
    ]


def test_quiet_has_no_progress(shell: Shell) -> None:
    result = shell.run("--quiet")
    assert (result.code, result.stderr) == (0, "")
    assert result.last.startswith("securebench: run_id=My run ")


def test_flags_reach_the_run(shell: Shell) -> None:
    result = shell.run(
        *("--limit", "2", "--output-dir", "elsewhere", "--parallelism", "9"),
        *("-n", "bench", "--context", "kind", "--operator-pod", "sb-0"),
    )
    assert result.code == 0
    assert result.last.endswith(f"output={shell.folder}/elsewhere/candidates.jsonl")
    spec = shell.namespace.runs()[0]["spec"]
    assert isinstance(spec, dict)
    assert (spec["taskSelector"], spec["parallelism"]) == ({"limit": 2}, 9)
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
    assert shell("results", _only_run(shell)).code == 1


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


def test_what_comes_before_the_first_task_is_told(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        for seconds in (5, 7, 12):
            await run.status("Running", f"pulling python:3.11 for {seconds} s")
        await run.status("Probing", "waiting for the isolation canary")
        run.write(record("a"))
        await run.status("Running", "a message while tasks end is not repeated")
        await run.end()

    shell.script = script
    told = [line for line in shell.run().stderr.splitlines() if "ing: " in line]
    assert told == [
        "securebench: Running: pulling python:3.11 for 5 s (0:00)",
        "securebench: Probing: waiting for the isolation canary (0:00)",
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
        ("pack", "nonsense"),
        ("results",),
    ],
)
def test_wrong_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    result = shell(*arguments)
    assert (result.code, result.stdout) == (2, "")
    assert "Error" in result.stderr


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
    monkeypatch.setattr(
        "securebench.client.session.facade.open_connection", connection.open_connection
    )
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
    code = "from securebench.client.commands.output import print_error; print_error('broken')"
    line = "securebench: error: broken\n"
    apart = _python("-c", code)
    assert (apart.stdout, apart.stderr) == (line, line)
    with (tmp_path / "both").open("w+") as both:
        subprocess.run(
            [sys.executable, "-c", code],
            stdout=both,
            stderr=both,
            check=True,
            env={"PYTHONPATH": str(Path(output.__file__).parents[3])},
        )
        both.seek(0)
        assert both.read() == line


def test_the_version_and_shell_completion(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    assert shell("--version")[:2] == (0, f"securebench {VERSION}\n")
    monkeypatch.setenv("_SECUREBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "securebench res")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert shell().stdout.split() == ["results"]


def test_errors_of_several_lines_are_several_lines(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ConfigError("one\x1b\ntwo")

    with pytest.raises(BaseException, match="1"):
        output.end_with(fail)
    assert capsys.readouterr().out == ("securebench: error: one\ufffd\nsecurebench: error: two\n")


def test_results_of_a_finished_run(shell: Shell) -> None:
    ran = shell.run()
    name = _only_run(shell)
    fetched = shell("results", name)
    assert fetched.code == 0
    assert fetched.last == ran.last.replace("/out/", f"/{name}/")
    records = (shell.folder / name / "candidates.jsonl").read_bytes()
    assert records == (shell.folder / "out" / "candidates.jsonl").read_bytes()
    assert json.loads((shell.folder / name / "summary.json").read_text())["total"] == 3


def test_results_of_a_run_that_goes_on(shell: Shell) -> None:
    async def script(run: OperatorRun) -> None:
        run.bind()
        run.write(record("a"))
        await run.status("Running")
        signal.raise_signal(signal.SIGINT)

    shell.script = script
    shell.run()
    name = _only_run(shell)
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
    name = _only_run(shell)
    assert shell("results", name)[:2] == (
        1,
        (
            f"securebench: error: run {name} has no record;"
            " it is Probing: waiting for the isolation canary\n"
        ),
    )


def test_results_of_an_unknown_run(shell: Shell) -> None:
    result = shell("results", "none")
    assert (result.code, result.last) == (
        1,
        (
            "securebench: error: there is no BenchmarkRun 'none' in this namespace, and the results"
            " volume has no run with this name or run id"
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
    result = shell("logs", _only_run(shell), "a")
    assert (result.code, result.stdout) == (0, "==> producer/stdout <==\nhello\n")
    assert shell("logs", _only_run(shell), "zzz").code == 1


def _only_run(shell: Shell) -> str:
    (run,) = shell.namespace.runs()
    metadata = run["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["name"])


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
    settings = Settings.model_construct(data_root=shell.namespace.root, bounds=Bounds(pack_files=1))
    monkeypatch.setattr("securebench.controller.exec.operator_io.load_settings", lambda _: settings)
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
    handlers = ModuleType("securebench.controller.process.handlers")
    started: list[bool] = []
    handlers.run_operator = lambda: started.append(True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "securebench.controller.process.handlers", handlers)
    assert shell("operator").code == 0
    assert started == [True]


def test_the_module_is_the_program_and_loads_no_cluster_library() -> None:
    code = (
        "import sys, atexit; from securebench.cli.main import main;"
        "import securebench.controller.exec.operator_io;"
        "atexit.register(lambda: print(sorted({'kopf', 'kubernetes'} & set(sys.modules))));"
        "sys.argv = ['securebench', '--help']; main()"
    )
    done = _python("-c", code)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]")
    assert _python("-m", "securebench.cli", "nonsense").returncode == 2


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(output.__file__).parents[3]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
    )


async def test_the_operators_pod_is_found_by_label() -> None:
    cluster = FakeCluster()
    await cluster.create(ObjectKind.POD, _pod("other-0", "gateway"))
    await cluster.create(ObjectKind.POD, _pod("bench-securebench-0", "operator"))
    with pytest.raises(ClusterError, match="bench-securebench-0 in namespace ns is Pending"):
        await operator_pod(cluster, "ns", None)
    cluster.set_pod_status("bench-securebench-0", {"phase": "Running"})
    assert await operator_pod(cluster, "ns", None) == "bench-securebench-0"


async def test_the_operators_pod_is_found_by_name_without_the_right_to_list() -> None:
    cluster = FakeCluster()
    await cluster.create(ObjectKind.POD, _pod("securebench-0", "operator"))
    cluster.set_pod_status("securebench-0", {"phase": "Running"})
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    assert await operator_pod(cluster, "ns", None) == "securebench-0"
    assert await operator_pod(cluster, "ns", "securebench-0") == "securebench-0"
    with pytest.raises(ClusterError, match="no SecureBench operator runs in namespace ns"):
        await operator_pod(cluster, "ns", "other-0")


async def _operators(cluster: FakeCluster, holder: str) -> None:
    for name in ("bench-0", "bench-1"):
        await cluster.create(ObjectKind.POD, _pod(name, "operator"))
        cluster.set_pod_status(name, {"phase": "Running"})
    spec = {"holderIdentity": holder}
    await cluster.create(
        ObjectKind.LEASE, {"metadata": {"name": "securebench-operator"}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("holder", "want"),
    [("bench-1_uid", "bench-1"), ("bench-0_uid", "bench-0"), ("", "bench-0"), ("x_y", "bench-0")],
)
async def test_of_two_operators_the_one_that_leads_is_found(holder: str, want: str) -> None:
    cluster = FakeCluster()
    await _operators(cluster, holder)
    assert await operator_pod(cluster, "ns", None) == want


@pytest.mark.parametrize("status", [403, 422])
async def test_the_leader_is_found_without_the_right_to_list(status: int) -> None:
    cluster = FakeCluster()
    await _operators(cluster, "bench-1_uid")
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    assert await operator_pod(cluster, "ns", None) == "bench-1"
    cluster.fail_next("list", PermanentClusterError("no", status=403))
    cluster.fail_next("get", PermanentClusterError("no", status=status), kind=ObjectKind.LEASE)
    words = "no SecureBench operator" if status == 403 else "no"
    with pytest.raises(ClusterError, match=words):
        await operator_pod(cluster, "ns", None)


async def test_no_operator() -> None:
    with pytest.raises(ClusterError, match="no SecureBench operator runs in namespace ns"):
        await operator_pod(FakeCluster(), "ns", None)


def _pod(name: str, component: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/name": "securebench", "app.kubernetes.io/component": component}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


async def test_exec_streams_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[object] = []

    async def run_exec(
        _cluster: object, pod: str, container: str, argv: object, stdin: object, stdout: object
    ) -> PodExecResult:
        pieces = [piece async for piece in stdin]  # type: ignore[attr-defined]
        seen.extend([pod, container, argv, b"".join(pieces)])
        await stdout(b"an")  # type: ignore[operator]
        await stdout(b"swer")  # type: ignore[operator]
        return PodExecResult(3, b"err")

    monkeypatch.setattr(connection, "run_exec", run_exec)
    (tmp_path / "in").write_bytes(b"x" * 600_000)
    execute = PodExec(FakeCluster(), "securebench-0")  # type: ignore[arg-type]
    with (tmp_path / "in").open("rb") as stdin:
        result = await execute(["a", "b"], stdin)
    assert tuple(result) == (3, b"answer", b"err")
    assert seen == ["securebench-0", "operator", ["a", "b"], b"x" * 600_000]

    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 2)
    with (tmp_path / "in").open("rb") as stdin, pytest.raises(TooLargeError):
        await execute(["a"], stdin)
