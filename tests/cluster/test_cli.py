"""The command line against the real cluster, by an account that has the chart's role tester."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster.proxy import proxy
from cluster.shell import Command, Shell, api_server, kubeconfig, write_pack, wrong
from securebench.run.layout import HARNESS
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import Role
from securebench.run.state.entries import LaunchBegun
from support.release import DATA, OPERATOR, CommandError, Release
from support.waiting import KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.cluster

CANARY = "canary-value-of-the-tester"
HOSTILE = "\x1b]0;owned\x07\x1b[2J"
UNSTARTABLE = {
    "family": "terminal_task",
    "input": {"instructions": "Wait."},
    "environment": {"workdir": "/app/absent", "materialize_workdir_from_image": True},
    "eval": {"checker": {"command": "true"}},
}
"""Infrastructure trouble within seconds; the kubelet takes a minute to give an image up."""

THREE = {"a": {}, "b": {}, "c": {}}
SLOWLY = "sleep 3; echo A"
HELD = "until [ -e /tmp/go ]; do sleep 0.1; done; echo A"
"""An agent that waits for ``let_go``."""
RUN = ("run", "--config", "tester.yaml")
ONE_BY_ONE = (*RUN, "--parallelism", "1")


class Begun(NamedTuple):
    """A run that was started before the first test that needs one.

    Attributes:
        shell: Where its command was given; the output folder is ``out``.
        command: The command.
        objects: What the cluster showed while it went on, as JSON.
    """

    shell: Shell
    command: Command
    objects: str = ""


@pytest.fixture(scope="module")
def begun(user: Callable[..., Shell], place: Release) -> dict[str, Begun]:
    """Start at once what takes long; every command has its run when this ends."""
    whole, broken, limited = _begin_whole(user()), _begin_broken(user()), _begin_limited(user())
    selector = f"securebench.dev/run={whole.command.run},securebench.dev/role=harness"
    until(lambda: place.kubectl("get", "pods", "-l", selector, "-o", "name"), "a harness Pod")
    objects = place.kubectl("get", "pods,benchmarkruns", "-o", "json")
    assert broken.command.run
    until((limited.shell.folder / "out" / "candidates.jsonl").exists, "a quiet run")
    return {"whole": whole._replace(objects=objects), "limited": limited, "broken": broken}


def _begin_whole(shell: Shell) -> Begun:
    write_pack(
        shell.folder,
        "whole run",
        'sleep 3; printf "oops\\033[31m" >&2; test -n "$MY_TOKEN" && echo A; exit 3',
        tasks={"a": {}, "b": {**wrong(), "extra_key": 1}},
        harness={"env": ["MY_TOKEN", "NOT_SET"]},
        manifest={"typo_key": 1},
    )
    (shell.folder / "env").write_text(f"export MY_TOKEN='{CANARY}'\n")
    return Begun(shell, shell.start(*ONE_BY_ONE, "--env-file", "env"))


def _begin_limited(shell: Shell) -> Begun:
    write_pack(shell.folder / "pack", "limited", "echo A", tasks=THREE)
    words = ("run", "--config", "pack/tester.yaml", "--limit", "1", "--output-dir", "out")
    return Begun(shell, shell.start(*words, "--quiet"))


def _begin_broken(shell: Shell) -> Begun:
    write_pack(shell.folder, "broken", "echo A", tasks={"good": {}, "gone": UNSTARTABLE})
    return Begun(shell, shell.start(*RUN))


def last_line(run_id: str, counts: str, folder: Path) -> str:
    return f"securebench: run_id={run_id} {counts} output={folder}/candidates.jsonl\n"


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "candidates.jsonl").read_text().splitlines()]


def lines(stderr: str) -> list[str]:
    """Return the lines without times and without those that tell what the cluster is doing."""
    told = re.sub(r" \(\d+:\d\d\)", "", stderr).splitlines()
    return [line for line in told if not re.match("securebench: [A-Z][A-Za-z]+: ", line)]


def listed(place: Release, folder: str) -> str:
    """Return what lies in a folder of the volume, "" also where the folder is still to be made."""
    found = place.operator(
        *("find", DATA, "-ignore_readdir_race", "-maxdepth", str(folder.count("/") + 2)),
        *("-path", f"{DATA}/{folder}/*"),
    )
    return found.decode()


def created(place: Release) -> str:
    """Return the names of everything that a tester's command could have created."""
    objects = place.kubectl("get", "benchmarkruns,secrets", "-o", "name")
    return objects + listed(place, "packs")


def test_a_whole_run(begun: dict[str, Begun], place: Release) -> None:
    shell, command, objects = begun["whole"]
    name, end = command.run, command.end()
    folder = shell.folder / "out"
    counts = "total=2 verification=complete verified=2 passed=1"
    assert (end.code, end.stdout) == (0, last_line("whole run", counts, folder))
    assert lines(end.stderr) == [
        "securebench: warning: manifest.yaml:7: unknown manifest key 'typo_key'",
        (
            "securebench: warning: tasks.jsonl:2: task 'b' (multiple_choice): unknown row key"
            " 'extra_key'"
        ),
        (
            "securebench: warning: harness.env: NOT_SET is not set, so the harness runs without it;"
            " set it in the environment or in env"
        ),
        f"securebench: started BenchmarkRun {name}",
        "securebench: [1/2] a",
        "securebench: PASS a score=1.0",
        "securebench: [2/2] b",
        'securebench: FAIL b score=0.0 wrong_answer: the answer was "A"',
        "securebench: 1 of 2 attempts without a pass: wrong_answer 1",
        "securebench: passed 50.0 % (95 % interval 9.5 to 90.5)",
    ]

    local = (folder / "candidates.jsonl").read_bytes()
    assert local == place.file(name, "candidates.jsonl")
    summary = json.loads((folder / "summary.json").read_text())
    kept = json.loads(place.file(name, "summary.json"))
    paths = {"output_dir": str(folder), "output_path": f"{folder}/candidates.jsonl"}
    assert summary == kept | paths
    assert summary["sha256"] == hashlib.sha256(local).hexdigest()

    run, secret = place.get("benchmarkrun", name), place.get("secret", name)
    assert secret["metadata"]["labels"]["securebench.dev/usable-by-runs"] == "true"
    owners = [(one["kind"], one["uid"]) for one in secret["metadata"]["ownerReferences"]]
    assert owners == [("BenchmarkRun", run["metadata"]["uid"])]
    assert list(secret["data"]) == ["MY_TOKEN"]
    assert '"MY_TOKEN"' in objects
    assert CANARY not in objects + end.stderr + local.decode()
    assert {one["producer_metadata"]["credentials"] for one in records(folder)} == {"exposed"}
    assert [one["producer_metadata"]["exit_code"] for one in records(folder)] == [3, 3]


def test_results_and_logs_of_a_run(begun: dict[str, Begun]) -> None:
    shell, command, _ = begun["whole"]
    name, first = command.run, command.end()
    fetched = shell("results", name)
    assert fetched.code == 0
    assert fetched.stdout == first.stdout.replace("/out/", f"/{name}/")
    again = (shell.folder / name / "candidates.jsonl").read_bytes()
    assert again == (shell.folder / "out" / "candidates.jsonl").read_bytes()
    (shell.folder / name / "candidates.jsonl").write_bytes(again[:100] + b"?" + again[101:])
    assert shell("results", name, "--output-dir", name).code == 0
    assert (shell.folder / name / "candidates.jsonl").read_bytes() == again

    logs = shell("logs", name, "b")
    assert (logs.code, logs.stdout) == (
        0,
        "==> producer/stderr <==\noops\x1b[31m\n==> producer/stdout <==\nA\n",
    )
    assert b"oops\x1b" not in shell.on_terminal("logs", name, "b")
    none = shell("logs", name, "z")
    assert (none.code, none.stdout.count("\n")) == (1, 1)
    assert "the run's pack has no task 'z'" in none.stdout

    told = shell("results", name, "--why", "b", "-o", "json")
    (attempt,) = map(json.loads, told.stdout.splitlines())
    evidence = attempt["launches"][0]["evidence"]
    (harness,) = (each for each in evidence["containers"] if each["name"] == "harness")
    assert (told.code, attempt["task_id"]) == (0, "b")
    assert attempt["launches"][0]["command"]["exit_code"] == 3
    assert evidence["node"]
    assert evidence["scheduled_at"] <= harness["started_at"] <= harness["finished_at"]
    assert "sha256:" in harness["image_id"]
    assert harness["limits"]["memory"]
    assert "b attempt 1: " in shell("results", name, "--why", "b").stdout


def test_a_run_that_is_left_and_watched(user: Callable[..., Shell], place: Release) -> None:
    shell = user()
    write_pack(shell.folder, "left", "echo begun >&2; sleep 600", tasks={"a": {}})
    submitted = shell("submit", "--config", "tester.yaml")
    assert submitted.code == 0
    match = re.fullmatch(r"securebench: run=(\S+) run_id=left\n", submitted.stdout)
    assert match is not None
    name = match[1]
    watching, printing = shell.start("watch", "left"), shell.start("logs", "-f", name, "a")
    until(lambda: printing.stdout == "==> producer/stderr <==\nbegun\n", "live output")
    works = "a attempt 1: agent for "
    until(lambda: works in shell("why", name).stdout, "no launch is old enough to be said to work")
    listed_runs = map(json.loads, shell("ps", "-o", "json").stdout.splitlines())
    (run,) = (each for each in listed_runs if each["name"] == name)
    assert (run["run_id"], run["done"], run["total"], run["active"]) == ("left", 0, 1, 1)
    refused = shell("rm", name)
    assert (refused.code, "has not ended (Running)" in refused.stdout) == (1, True)
    assert shell("cancel", "--now", name).code == 0
    ended = watching.end()
    assert (ended.code, f"{name} ended with Cancelled" in ended.stdout) == (1, True)
    assert printing.end().code == 0
    assert "to do: run the rest: securebench resume" in shell("why", name).stdout
    assert shell("rm", name)[:2] == (0, f"securebench: run={name} removed=true\n")
    assert name not in place.kubectl("get", "benchmarkruns", "-o", "name")
    assert shell("logs", "left", "a").code == 0


def test_a_limited_quiet_run(begun: dict[str, Begun]) -> None:
    shell, command, _ = begun["limited"]
    end = command.end()
    counts = "total=1 verification=complete verified=1 passed=1"
    assert end == (0, last_line("limited", counts, shell.folder / "out"), "")
    assert [one["task_id"] for one in records(shell.folder / "out")] == ["a"]


def let_go(place: Release, run: str, task: int) -> None:
    """Let the agent of a task, by its index, go on as soon as it holds on.

    It may end so quickly that kubectl only hears that its container is gone.
    """
    tried: set[str] = set()

    def is_told() -> bool:
        pods = harness_pods(place, run, task)
        if any(name not in pods or has_ended(pods[name]) for name in tried):
            return True
        for name in pods:
            try:
                place.kubectl("exec", name, "-c", "harness", "--", "touch", "/tmp/go")
            except CommandError:  # it does not run yet, or has ended
                tried.add(name)
                continue
            return True
        return False

    until(is_told, f"no agent of task {task} of {run} holds on")


def harness_pods(place: Release, run: str, task: int) -> dict[str, PodView]:
    """Return the harness Pods of a task by name."""
    views = filter(None, map(pod_view, place.pods(run)))
    return {
        view.name: view
        for view in views
        if view.role is Role.HARNESS and view.launch is not None and view.launch.task == task
    }


def has_ended(view: PodView) -> bool:
    """Whether the agent's container of a harness Pod has ended."""
    container = view.containers.get(HARNESS)
    return container is not None and container.terminated is not None


def test_an_interrupted_command_comes_back(user: Callable[..., Shell], place: Release) -> None:
    shell = user()
    write_pack(shell.folder, "slow", HELD, tasks={"a": {}, "b": {}})
    command = shell.start(*ONE_BY_ONE)
    name, interrupted = command.run, command.send(signal.SIGINT)
    assert (interrupted.code, interrupted.stdout) == (130, "")
    words = f"{' '.join(ONE_BY_ONE)} --namespace {place.namespace}"
    assert interrupted.stderr.splitlines()[-1] == (
        f"securebench: interrupted; BenchmarkRun {name} continues."
        f" Follow it again with: securebench {words}"
    )
    again = shell.start(*ONE_BY_ONE)
    assert again.run == name
    let_go(place, name, 0)
    again.wait_for("PASS ")
    assert again.send(signal.SIGKILL).code == -signal.SIGKILL
    last = shell.start(*ONE_BY_ONE)
    assert last.run == name
    let_go(place, name, 1)
    assert "securebench: resume completed=" in last.end().stderr
    counts = "total=2 verification=complete verified=2 passed=2"
    assert last.end()[:2] == (0, last_line("slow", counts, shell.folder / "out"))
    assert [one["task_id"] for one in records(shell.folder / "out")] == ["a", "b"]
    assert [one["launches"] for one in records(shell.folder / "out")] == [1, 1]


def test_a_lost_connection_and_a_lost_operator(
    user: Callable[..., Shell], begun: dict[str, Begun], place: Release
) -> None:
    assert begun
    with proxy(api_server()) as way:
        shell = user(server=f"https://127.0.0.1:{way.port}")
        write_pack(shell.folder, "followed", SLOWLY, tasks=THREE)
        command = shell.start(*ONE_BY_ONE)
        command.wait_for("PASS a")
        way.cut()
        command.wait_for("connection lost; the run continues, reconnecting")
        way.mend()
        command.wait_for("connected again")
        assert "PASS c" not in command.stderr
        place.kubectl("delete", "pod", OPERATOR, "--wait=false")
        end = command.end()
    place.kubectl("rollout", "status", "statefulset/securebench", KUBECTL_TIMEOUT)
    counts = "total=3 verification=complete verified=3 passed=3"
    assert (end.code, end.stdout) == (0, last_line("followed", counts, shell.folder / "out"))
    assert [line for line in lines(end.stderr) if "PASS" in line] == [
        f"securebench: PASS {name} score=1.0" for name in THREE
    ]


def test_a_resume_runs_only_what_has_no_verdict(begun: dict[str, Begun], place: Release) -> None:
    shell, command, _ = begun["broken"]
    first, end = command.run, command.end()
    counts = "total=2 verification=partial verified=1 passed=1"
    assert (end.code, end.stdout) == (0, last_line("broken", counts, shell.folder / "out"))
    assert "securebench: warning: 1 of 2 attempts have no verdict\n" in end.stderr
    assert any(
        line.startswith("securebench: PENDING gone score=None outcome=infrastructure ")
        for line in lines(end.stderr)
    )
    path = shell.folder / "out" / "candidates.jsonl"
    good, gone = path.read_text().splitlines(keepends=True)
    path.write_text(good + gone + good + '{"cut": ')
    before = path.read_bytes(), created(place)

    pack, tester = shell.folder / "manifest.yaml", shell.folder / "tester.yaml"
    for file, old, new, what in (
        (tester, "echo A", "echo B", "harness digest"),
        (pack, "version: 1", "version: 2", "pack digest"),
    ):
        text = file.read_text()
        file.write_text(text.replace(old, new))
        refused = shell(*RUN, "--resume")
        file.write_text(text)
        assert (refused.code, refused.stdout.count("\n")) == (1, 1)
        start = f"securebench: error: cannot resume run {first}: its {what} is sha256:"
        assert refused.stdout.startswith(start)
        assert ", now it is sha256:" in refused.stdout
        assert (path.read_bytes(), created(place)) == before

    resumed = shell.start(*RUN, "--resume")
    assert resumed.end()[:2] == (0, end.stdout)
    assert [line for line in lines(resumed.end().stderr) if "score" not in line] == [
        (
            "securebench: warning: out/candidates.jsonl:3: foreign line is ignored: second line of"
            " task good"
        ),
        "securebench: warning: out/candidates.jsonl:4: damaged line is ignored: cut line",
        "securebench: runs again: gone (infrastructure)",
        f"securebench: started BenchmarkRun {resumed.run}",
        "securebench: resume completed=1 remaining=1",
        "securebench: [2/2] gone",
        *(line for line in lines(end.stderr) if " attempts without a pass: " in line),
        "securebench: passed 100.0 % (95 % interval 20.7 to 100.0)",
        "securebench: warning: 1 of 2 attempts have no verdict",
    ]
    assert resumed.run != first
    assert path.read_text().splitlines(keepends=True)[0] == good
    assert [one["resume_generation"] for one in records(path.parent)] == [0, 1]
    begins = [one for one in place.entries(resumed.run) if isinstance(one, LaunchBegun)]
    assert {one.launch.task for one in begins} == {1}
    summary = json.loads((path.parent / "summary.json").read_text())
    assert (summary["foreign"], summary["damaged"]) == (1, 1)


def test_config_errors_create_nothing(user: Callable[..., Shell], place: Release) -> None:
    shell = user()
    write_pack(shell.folder, "wrong", "echo A", tasks={"a": {"id": ""}, "b": {"eval": {}}})
    text = (shell.folder / "tester.yaml").read_text()
    (shell.folder / "tester.yaml").write_text(f"{text}    timeout_seconds: 0\n")
    before = created(place)
    end = shell(*RUN)
    assert end.code == 1
    assert [line.split(":")[:3] for line in end.stdout.splitlines()] == [
        ["securebench", " error", f" {file}"]
        for file in ("tester.yaml", "tasks.jsonl", "tasks.jsonl")
    ]
    assert created(place) == before
    assert not (shell.folder / "out").exists()
    usage = shell("run", "--no-such-flag")
    assert (usage.code, usage.stdout) == (2, "")
    assert "No such option: --no-such-flag" in usage.stderr


@pytest.fixture(scope="module")
def lost(user: Callable[..., Shell]) -> Callable[[str], Shell]:
    """Make a terminal with something wrong on the way to the operator."""

    def make(what: str) -> Shell:
        shell = user("nobody" if what == "no right" else "tester")
        write_pack(shell.folder, "unstarted", "echo A")
        config = shell.kubeconfig
        if what == "no kubeconfig":
            config.unlink()
        elif what == "broken kubeconfig":
            config.write_text("clusters: [")
        elif what == "no answer":
            kubeconfig(config, server="https://127.0.0.1:1")
        elif what == "old token":
            kubeconfig(config, token="no-token")
        return shell

    return make


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("no kubeconfig", "no cluster: not inside a Pod, and there is no kubeconfig at "),
        ("broken kubeconfig", "the kubeconfig cannot be used: while parsing a flow node"),
        ("no answer", "the cluster at https://127.0.0.1:1 (context "),
        ("old token", "the cluster does not accept the credentials of the kubeconfig (API server"),
        ("no right", "your account lacks a permission; ask for the chart's role 'tester' ("),
    ],
)
def test_what_is_in_the_way_is_said_in_one_line(
    lost: Callable[[str], Shell], what: str, want: str
) -> None:
    shell = lost(what)
    end = shell(*RUN)
    assert (end.code, end.stdout.count("\n"), end.stderr) == (1, 1, end.stdout)
    assert end.stdout.startswith(f"securebench: error: {want}")
    assert not (shell.folder / "out").exists()


def test_no_operator_and_one_that_does_not_run(place: Release, tmp_path: Path) -> None:
    write_pack(tmp_path, "unstarted", "echo A")
    admin = Path(os.environ["KUBECONFIG"])
    start = "securebench: error: no SecureBench operator runs in namespace"
    for namespace, want in (
        ("kube-public", f"{start} kube-public; install the chart there, or choose another"),
        (place.namespace, f"{start} {place.namespace}; install"),
    ):
        pod = ("--operator-pod", "absent-0") if namespace == place.namespace else ()
        end = Shell(tmp_path, namespace, admin)(*RUN, *pod)
        assert (end.code, end.stdout.count("\n")) == (1, 1)
        assert end.stdout.startswith(want)
    place.create(_pending_pod())
    words = (*RUN, "--operator-pod", "pending-0")
    end = Shell(tmp_path, place.namespace, admin)(*words)
    assert end[:2] == (
        1,
        (
            "securebench: error: the operator's Pod pending-0 in namespace"
            f" {place.namespace} is Pending\n"
        ),
    )


def _pending_pod() -> dict[str, Any]:
    container = {"name": "operator", "image": "none", "resources": {"limits": {"memory": "1Mi"}}}
    spec = {"containers": [container], "nodeSelector": {"no-such": "node"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pending-0"}, "spec": spec}


def test_lint_push_and_show(user: Callable[..., Shell], place: Release) -> None:
    shell = user()
    write_pack(shell.folder, "pushed", "echo A", manifest={"typo_key": 1})
    lint = ("pack", "lint", "--config", "tester.yaml")
    linted = shell(*lint)
    assert (linted.code, linted.stdout.splitlines()[-1]) == (
        0,
        "securebench: pack lint errors=0 warnings=2",
    )
    assert shell(*lint, "--strict").code == 1

    push = ("pack", "push", "--config", "tester.yaml")
    first, second = shell(*push), shell(*push)
    assert (first.code, second.code) == (0, 0)
    words = dict(word.split("=") for word in first.stdout.split() if "=" in word)
    assert words["uploaded"] == "true"
    assert second.stdout == first.stdout.replace("uploaded=true", "uploaded=false")
    shown, local = shell("pack", "show", words["path"]), shell("pack", "show", *push[2:])
    content = next(word for word in shown.stdout.split() if word.startswith("content=sha256:"))
    assert content in local.stdout
    assert words["digest"] in local.stdout
    assert shell("pack", "show", "absent").code == 1

    (shell.folder / "assets").mkdir()
    (shell.folder / "assets" / "link").symlink_to("/etc/passwd")
    before = created(place)
    refused = shell(*push, "--name", "linked")
    assert (refused.code, refused.stdout) == (
        1,
        (
            "securebench: error: assets/link: is a symlink: replace it by the file;"
            " packs hold files and folders only\n"
        ),
    )
    (shell.folder / "manifest.yaml").write_text("id: [")
    assert shell(*lint).code == 1
    assert created(place) == before


def test_a_killed_push_leaves_nothing(user: Callable[..., Shell], place: Release) -> None:
    with proxy(api_server(), dry_after=6 * 2**20) as way:
        shell = user(server=f"https://127.0.0.1:{way.port}")
        write_pack(shell.folder, "large", "echo A")
        (shell.folder / "assets").mkdir()
        (shell.folder / "assets" / "noise").write_bytes(os.urandom(16 * 2**20))
        push = ("pack", "push", "--config", "tester.yaml", "--name", "large")
        command = shell.start(*push)
        assert way.is_dry.wait(60)
        until(lambda: listed(place, "packs/.incoming"), "a begun upload", 30)
        assert command.send(signal.SIGKILL).code == -signal.SIGKILL
        assert f"{DATA}/packs/large" not in listed(place, "packs").split()
    until(lambda: not listed(place, "packs/.incoming"), "the unfinished upload is removed", 30)
    kubeconfig(shell.kubeconfig, token=place.token("tester"))
    assert shell(*push).stdout.endswith("uploaded=true\n")
    shown = shell("pack", "show", "large")
    assert "files=3" in shown.stdout


def test_what_submitters_and_viewers_may_do(
    user: Callable[..., Shell], begun: dict[str, Begun], place: Release
) -> None:
    submitter, viewer = user("submitter"), user("viewer")
    assert begun["limited"].command.end().code == 0
    runs = json.loads(place.kubectl("get", "benchmarkruns", "-o", "json"))["items"]
    pack = next(run["spec"]["pack"] for run in runs if run["spec"]["runId"] == "limited")
    body = json.dumps(
        {
            "apiVersion": "securebench.dev/v1alpha1",
            "kind": "BenchmarkRun",
            "metadata": {"name": "submitted"},
            "spec": {
                "pack": pack,
                "harness": {"type": "command", "config": {"command": "echo A"}},
                "taskSelector": {"limit": 1},
            },
        }
    )
    assert viewer.kubectl("apply", "-f", "-", stdin=body).code == 1
    assert submitter.kubectl("apply", "-f", "-", stdin=body).code == 0
    waited = ("wait", "--for=condition=Complete", "brun/submitted", KUBECTL_TIMEOUT)
    assert submitter.kubectl(*waited).code == 0
    run = json.loads(viewer.kubectl("get", "brun", "submitted", "-o", "json").stdout)
    assert run["status"]["tasks"]["done"] == 1
    for one in (submitter, viewer):
        assert "forbidden" in one.kubectl("exec", OPERATOR, "--", "true").stderr
        assert "forbidden" in one.kubectl("get", "secrets").stderr
        assert one("logs", "submitted", "a").code == 1
        end = one("results", "submitted")
        counts = "total=1 verification=complete verified=1 passed=1"
        assert end[:2] == (0, last_line("submitted", counts, one.folder / "submitted"))
        (record,) = records(one.folder / "submitted")
        assert (record["passed"], "verifier_metadata" in record) == (True, False)


def test_progress_on_a_terminal(user: Callable[..., Shell]) -> None:
    shell = user()
    command = f"printf %s '{HOSTILE}' >&2; sleep 1; echo A"
    write_pack(shell.folder, "seen", command, tasks={"a": {}})
    received = shell.on_terminal(*RUN, "--show-command-output")
    assert "━".encode() in received
    assert b"0/1" in _without_colours(received)
    assert b"\x1b[32msecurebench: PASS a score=1.0\x1b[0m" in received
    assert "stderr: \ufffd]0;owned\ufffd\ufffd[2J".encode() in received
    assert HOSTILE[:5].encode() not in received
    assert b"\x1b[2J" not in received
    assert b"run_id=seen total=1" in received.splitlines()[-1]


def _without_colours(received: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-9;]*m", b"", received)


def test_the_programs_of_the_image(place: Release, user: Callable[..., Shell]) -> None:
    program = place.operator("securebench", "--help").decode()
    module = place.operator("python3", "-m", "securebench.cli", "--help").decode()
    assert program == module == user()("--help").stdout
    commands = program.partition("Commands:")[2]
    assert [line.split()[0] for line in commands.splitlines() if line.strip()] == [
        "run",
        "submit",
        "watch",
        "ps",
        "list",
        "cancel",
        "suspend",
        "resume",
        "regrade",
        "rm",
        "results",
        "verify",
        "why",
        "logs",
        "init",
        "pack",
        "report",
        "compare",
        "export",
        "audit",
        "doctor",
        "journal",
        "operator",
    ]
    shown = place.operator("securebench", "operator", "--help").decode()
    assert shown.startswith("Usage: securebench operator [OPTIONS]\n")


def test_the_doctor_says_what_an_account_may_and_how_the_namespace_is(
    place: Release, user: Callable[..., Shell]
) -> None:
    def doctor(account: str, *flags: str) -> tuple[int, dict[str, str]]:
        end = user(account)("doctor", "-o", "json", *flags)
        findings = json.loads(end.stdout)["findings"]
        return end.code, {finding["check"]: finding["state"] for finding in findings}

    code, states = doctor("tester", "--probe")
    assert code == 0, states
    probes = ("probe-network", "probe-storage")
    healthy = ("cluster", "crds", "rights", "operator", "storage", "images", *probes)
    assert {name: states[name] for name in healthy} == dict.fromkeys(healthy, "OK")
    assert "/doctor-" not in place.kubectl("get", "brun", "-o", "name")
    code, states = doctor("submitter")
    assert (code, states["rights"], states["storage"]) == (0, "WARN", "WARN")
    code, states = doctor("nobody")
    assert (code, states["rights"]) == (1, "FAIL")
