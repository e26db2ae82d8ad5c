"""The chart's life without make: installed, upgraded under a run, uninstalled, as documented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import yaml

from cluster.shell import kubeconfig
from support.documented import Reader
from support.release import remove_policies
from support.waiting import COMMAND_SECONDS, KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "securebench"
PACK = ROOT / "benchmarks" / "multiple-choice-smoke"
CLAIM = "pvc/securebench-results"
POD = "pod/securebench-0"
OWN_KINDS = (
    "statefulsets,pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
)
PUSHED = "--values ~/.cache/securebench/images/pushed.yaml"
"""How the pages name the images that a reader has pushed."""
EVERYTHING = f"{OWN_KINDS},benchmarkruns,persistentvolumeclaims,secrets"


def tool(*arguments: str) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=COMMAND_SECONDS
    )
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr or done.stdout}"
    return done.stdout


def images() -> tuple[str, str]:
    """Return the chart's values that name the images under test."""
    operator, pod = (os.environ[f"SECUREBENCH_{part}_IMAGE"] for part in ("OPERATOR", "POD"))
    return f"image.operator={operator}", f"image.pod={pod}"


class Release(NamedTuple):
    """One release of the chart in a namespace of its own."""

    namespace: str

    def kubectl(self, *arguments: str) -> str:
        return tool("kubectl", "-n", self.namespace, *arguments)

    def helm(self, verb: str, *arguments: str) -> str:
        return tool("helm", verb, "securebench", "-n", self.namespace, *arguments)

    def start(self, folder: Path) -> str:
        """Apply a pack's kustomization and return the run's name."""
        self.kubectl("apply", "-k", str(folder))
        manifest = yaml.safe_load((folder / "benchmarkrun.yaml").read_text(encoding="utf-8"))
        return str(manifest["metadata"]["name"])

    def get(self, what: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.kubectl("get", what, "-o", "json"))
        return loaded

    def pod_uid(self) -> str:
        """Return the uid of the operator's Pod; empty while it is replaced."""
        words = ("get", POD, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*words)

    def names(self, *arguments: str) -> list[str]:
        return self.kubectl("get", *arguments, "-o", "name").split()

    def records(self, run: str) -> list[dict[str, Any]]:
        uid = self.get(f"brun/{run}")["metadata"]["uid"]
        command = ("securebench", "operator-io", "get-run", uid, "candidates.jsonl")
        text = self.kubectl("exec", POD, "-c", "operator", "--", *command)
        return [json.loads(line) for line in text.splitlines()]


def recycle() -> None:
    tool(str(ROOT / "tests" / "cluster" / "cluster"), "recycle")


@contextmanager
def namespace() -> Iterator[Release]:
    """Name a namespace that the test makes; it is removed afterwards."""
    # Helm does not replace the CRDs of an earlier version.
    tool("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    name = f"install-{uuid.uuid4().hex[:8]}"
    try:
        yield Release(name)
    finally:
        tool("kubectl", "delete", "namespace", name, "--ignore-not-found")
        remove_policies(name)
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


def verdicts(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what must not depend on an interruption; a second launch would be work repeated."""
    keys = ("task_id", "outcome", "passed", "candidate_text", "launches")
    return [tuple(record.get(key) for key in keys) for record in records]


def test_a_release_runs_a_pack_and_is_upgraded_under_a_run() -> None:
    with namespace() as release, TemporaryDirectory() as folder:
        follow_installation(release, Path(folder))


def follow_installation(release: Release, folder: Path) -> None:
    """Follow the page from the first command to the last; a run goes on during an upgrade."""
    page = Reader("installation.md", ROOT, filled_in=reader_of(release))
    page.run_next()
    objects = {*release.names(EVERYTHING)}
    assert "its task was run, verified and passed" in page.run_next()
    # What the finished run of the test still had is taken away meanwhile.
    until(lambda: {*release.names(EVERYTHING)} <= objects, "nothing of the test is left")
    assert PACK.name in page.run_next()
    calm = verdicts(release.records(PACK.name))
    assert [passed for _, _, passed, *_ in calm] == [True, True, True, False]
    assert refusals(release) == []

    page.run_next()
    signing = follow_signing(release, folder)
    upgraded = release.start(slow_copy(folder / "pack", "nightly", seconds=5))
    before = release.pod_uid()
    until(lambda: _done(release, upgraded) >= 1, "a finished task")
    signing.run_next()
    until(lambda: release.pod_uid() not in {"", before}, "another operator's Pod")
    assert _done(release, upgraded) < len(calm)
    follow_waiting(release, upgraded)
    assert verdicts(release.records(upgraded)) == calm
    assert refusals(release) == []
    for told in signing.run_all():
        assert "signed" in told
    follow_operations(release, upgraded)
    page.run_all()
    assert "NotFound" in absent("namespace", release.namespace)


def reader_of(release: Release) -> dict[str, str]:
    """Return what a reader of the installation page writes in the place of its examples."""
    return {
        "namespace bench": f"namespace {release.namespace}",
        "-n bench": f"-n {release.namespace}",
        "enforce=baseline": "enforce=restricted",
        PUSHED: " ".join(f"--set {value}" for value in (*images(), "settings.logFormat=Json")),
        # Other releases of this cluster go on.
        "kubectl delete crd": "kubectl get crd",
    }


def follow_signing(release: Release, folder: Path) -> Reader:
    """Make a key as the page on signed results says; its next commands upgrade the release."""
    config = kubeconfig(folder / "kubeconfig", namespace=release.namespace)
    own = {"charts/securebench": str(CHART)}
    page = Reader("how-to/verify-results.md", folder, {"KUBECONFIG": str(config)}, own)
    page.run_next()
    return page


def follow_waiting(release: Release, run: str) -> None:
    """Wait for a run as the page on GitOps does."""
    own = {"kubectl wait": f"kubectl -n {release.namespace} wait", "brun/NAME": f"brun/{run}"}
    Reader("how-to/gitops.md", ROOT, filled_in=own).run_all()


def follow_operations(release: Release, run: str) -> None:
    """Look at log, journal and Lease as the page for administrators does."""
    own = {"-n bench": f"-n {release.namespace}", "nightly": run}
    page = Reader("operations.md", ROOT, filled_in=own)
    _, journal, lease = page.run_all()
    assert "Finished" in journal
    assert "securebench-0" in lease


def refusals(release: Release) -> list[str]:
    """Return what the operator logged of rights that it lacks."""
    lines = release.kubectl("logs", POD).splitlines()
    return [line for line in lines if "forbidden" in line.lower()]


def _done(release: Release, run: str) -> int:
    tasks = release.get(f"brun/{run}").get("status", {}).get("tasks", {})
    return int(tasks.get("done", 0))


def test_an_uninstalled_release_leaves_results_and_nothing_that_hangs() -> None:
    with namespace() as release, TemporaryDirectory() as folder:
        follow_readme(release)
        uninstall(release, Path(folder))


def follow_readme(release: Release) -> None:
    """Install as the README says, by a reader whose nodes have no user namespaces."""
    values = (*images(), "settings.userNamespaces=Never")
    own = {
        "namespace bench": f"namespace {release.namespace}",
        "-n bench": f"-n {release.namespace}",
        PUSHED: " ".join(f"--set {value}" for value in values),
    }
    page = Reader("../README.md", ROOT, filled_in=own)
    page.skip("make run")
    page.skip('eval "$(tests/cluster/cluster env)"')
    (table,) = page.run_all()
    assert PACK.name in table
    release.kubectl("delete", "brun", PACK.name)


def uninstall(release: Release, folder: Path) -> None:
    run = release.start(slow_copy(folder / "pack", "cut-off", seconds=60))
    until(lambda: bool(harness_pods(release)), "a harness Pod")
    assert len(policies(release.namespace)) == 2
    assert CLAIM.removeprefix("pvc/") in release.helm("uninstall", "--wait")
    assert policies(release.namespace) == []
    own = (OWN_KINDS, "-l", "app.kubernetes.io/instance=securebench")
    until(lambda: not release.names(*own), "the release's objects are gone")
    claims = release.names("persistentvolumeclaims", "-l", own[-1])
    assert claims == ["persistentvolumeclaim/securebench-results"]
    assert harness_pods(release)
    assert release.get(CLAIM)["status"]["phase"] == "Bound"

    release.kubectl("delete", f"brun/{run}", KUBECTL_TIMEOUT)
    until(lambda: not release.names("pods,networkpolicies"), "the run's Pods and policy are gone")
    release.start(PACK)
    release.kubectl("delete", CLAIM, KUBECTL_TIMEOUT)
    tool("kubectl", "delete", "namespace", release.namespace, KUBECTL_TIMEOUT)


def policies(namespace: str) -> list[str]:
    """Return the names of a namespace's admission policies."""
    kinds = "validatingadmissionpolicies,mutatingadmissionpolicies"
    found = tool("kubectl", "get", kinds, "-o", "name").split()
    return [name for name in found if f"/{namespace}." in name]


def absent(*what: str) -> str:
    """Return what kubectl says of an object that is not there."""
    done = subprocess.run(("kubectl", "get", *what), capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


def harness_pods(release: Release) -> list[str]:
    return release.names("pods", "-l", "securebench.dev/role=harness")
