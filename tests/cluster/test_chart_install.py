"""The chart's life without make: installed, upgraded under a run, uninstalled, as documented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import yaml

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "securebench"
PACK = ROOT / "benchmarks" / "multiple-choice-smoke"
ENFORCE = "pod-security.kubernetes.io/enforce"
CLAIM = "pvc/securebench-results"
POD = "pod/securebench-0"
OWN_KINDS = (
    "statefulsets,pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
)
EVERYTHING = f"{OWN_KINDS},benchmarkruns,persistentvolumeclaims,secrets"
RUN_SECONDS = 240


def tool(*arguments: str, timeout: float = 60) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr or done.stdout}"
    return done.stdout


class Release(NamedTuple):
    """One release of the chart in a namespace of its own."""

    namespace: str

    def kubectl(self, *arguments: str, timeout: float = 60) -> str:
        return tool("kubectl", "-n", self.namespace, *arguments, timeout=timeout)

    def helm(self, verb: str, *arguments: str) -> str:
        return tool("helm", verb, "securebench", "-n", self.namespace, *arguments, timeout=240)

    def install(self, *values: str) -> None:
        images = [
            f"image.{part}={os.environ[f'SECUREBENCH_{part.upper()}_IMAGE']}"
            for part in ("operator", "pod")
        ]
        sets = [word for value in (*images, *values) for word in ("--set", value)]
        self.helm("install", str(CHART), "--wait", "--timeout", "3m", *sets)

    def start(self, folder: Path) -> str:
        """Apply a pack's kustomization and return the run's name."""
        self.kubectl("apply", "-k", str(folder))
        manifest = yaml.safe_load((folder / "benchmarkrun.yaml").read_text(encoding="utf-8"))
        return str(manifest["metadata"]["name"])

    def get(self, what: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.kubectl("get", what, "-o", "json"))
        return loaded

    def names(self, *arguments: str) -> list[str]:
        return self.kubectl("get", *arguments, "-o", "name").split()

    def wait(self, run: str) -> None:
        self.kubectl(
            "wait",
            "--for=condition=Complete",
            f"brun/{run}",
            f"--timeout={RUN_SECONDS}s",
            timeout=RUN_SECONDS + 10,
        )

    def records(self, run: str) -> list[dict[str, Any]]:
        uid = self.get(f"brun/{run}")["metadata"]["uid"]
        command = ("securebench", "operator-io", "get-run", uid, "candidates.jsonl")
        text = self.kubectl("exec", POD, "-c", "operator", "--", *command)
        return [json.loads(line) for line in text.splitlines()]


def recycle() -> None:
    tool(str(ROOT / "tests" / "cluster" / "cluster"), "recycle")


@contextmanager
def release_in(level: str) -> Iterator[Release]:
    """Make a namespace that enforces a Pod Security level; it is removed afterwards."""
    namespace = f"install-{uuid.uuid4().hex[:8]}"
    tool("kubectl", "create", "namespace", namespace)
    try:
        tool("kubectl", "label", "namespace", namespace, f"{ENFORCE}={level}")
        yield Release(namespace)
    finally:
        tool("kubectl", "delete", "namespace", namespace, "--ignore-not-found", timeout=180)
        recycle()


def slow_copy(folder: Path, name: str, seconds: int) -> Path:
    """Copy the pack with a run of another name whose harness takes longer, one task at a time."""
    shutil.copytree(PACK, folder)
    path = folder / "benchmarkrun.yaml"
    run = yaml.safe_load(path.read_text(encoding="utf-8"))
    run["metadata"]["name"] = name
    run["spec"]["parallelism"] = 1
    command = run["spec"]["harness"]["config"]["command"]
    command[-1] = f"import time\ntime.sleep({seconds})\n{command[-1]}"
    path.write_text(yaml.safe_dump(run), encoding="utf-8")
    return folder


def until(reached: Callable[[], bool], what: str, seconds: float = 120) -> None:
    late = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < late, f"not within {seconds:.0f} s: {what}"
        time.sleep(1)


def verdicts(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what must not depend on an interruption; a second launch would be work repeated."""
    keys = ("task_id", "outcome", "passed", "candidate_text", "launches")
    return [tuple(record.get(key) for key in keys) for record in records]


@pytest.mark.beside
def test_a_release_runs_a_pack_and_is_upgraded_under_a_run() -> None:
    with release_in("restricted") as release, TemporaryDirectory() as folder:
        run_and_upgrade(release, Path(folder))


def run_and_upgrade(release: Release, folder: Path) -> None:
    release.install()
    first = release.start(PACK)
    release.wait(first)
    calm = verdicts(release.records(first))
    assert [passed for _, _, passed, *_ in calm] == [True, True, True, False]

    assert refusals(release) == []

    objects = {*release.names(EVERYTHING)}
    said = release.helm("test", "--logs", "--timeout", f"{RUN_SECONDS}s")
    assert "its task was run, verified and passed" in said
    # What the finished run still had is taken away meanwhile.
    until(lambda: {*release.names(EVERYTHING)} <= objects, "nothing of the test is left")

    second = release.start(slow_copy(folder / "pack", "upgraded", seconds=5))
    before = release.get(POD)["metadata"]["uid"]
    until(lambda: _done(release, second) >= 1, "a finished task")
    release.helm(
        "upgrade",
        str(CHART),
        "--reset-then-reuse-values",
        "--wait",
        "--set",
        "settings.statusIntervalSeconds=1",
    )
    assert _done(release, second) < len(calm)
    assert release.get(POD)["metadata"]["uid"] != before
    release.wait(second)
    assert verdicts(release.records(second)) == calm
    assert refusals(release) == []


def refusals(release: Release) -> list[str]:
    """Return what the operator logged of rights that it lacks."""
    lines = release.kubectl("logs", POD).splitlines()
    return [line for line in lines if "forbidden" in line.lower()]


def _done(release: Release, run: str) -> int:
    tasks = release.get(f"brun/{run}").get("status", {}).get("tasks", {})
    return int(tasks.get("done", 0))


@pytest.mark.beside
def test_an_uninstalled_release_leaves_results_and_nothing_that_hangs() -> None:
    with release_in("baseline") as release, TemporaryDirectory() as folder:
        uninstall(release, Path(folder))


def uninstall(release: Release, folder: Path) -> None:
    release.install("settings.userNamespaces=Never")
    run = release.start(slow_copy(folder / "pack", "cut-off", seconds=60))
    until(lambda: bool(harness_pods(release)), "a harness Pod")
    assert CLAIM.removeprefix("pvc/") in release.helm("uninstall", "--wait")
    own = (OWN_KINDS, "-l", "app.kubernetes.io/instance=securebench")
    until(lambda: not release.names(*own), "the release's objects are gone")
    claims = release.names("persistentvolumeclaims", "-l", own[-1])
    assert claims == ["persistentvolumeclaim/securebench-results"]
    assert harness_pods(release)
    assert release.get(CLAIM)["status"]["phase"] == "Bound"

    release.kubectl("delete", f"brun/{run}", "--timeout=20s")
    until(lambda: not release.names("pods,networkpolicies"), "the run's Pods and policy are gone")
    release.start(PACK)
    release.kubectl("delete", CLAIM, "--timeout=60s")
    tool("kubectl", "delete", "namespace", release.namespace, "--timeout=90s", timeout=100)


def harness_pods(release: Release) -> list[str]:
    return release.names("pods", "-l", "securebench.dev/role=harness")
