"""The worlds of the port's contract: the fake, and a namespace of a real cluster."""

import json
import os
import subprocess
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from securebench.cluster.client import classify, connect
from securebench.cluster.port import ObjectKind
from support.fake_cluster import FakeCluster
from support.waiting import COMMAND_SECONDS, KUBECTL_TIMEOUT

ANSWERS = json.loads(
    (Path(__file__).parents[1] / "support" / "kube_answers.json").read_text(encoding="utf-8")
)
IMAGE = "python:3.11-slim"
CLOSED_LATE = (
    "ignore:Exception ignored in. .*(Transport|socket):pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items):
    """Let a connection that the last step of a loop closed be collected during a later test.

    asyncio reports a closed transport in a step of its own, which a loop that ends may not reach.
    """
    for item in items:
        item.add_marker(pytest.mark.filterwarnings(CLOSED_LATE))


def kubectl(*words, manifest=None):
    """Run kubectl as the administrator of the cluster and return what it prints."""
    result = subprocess.run(
        ["kubectl", *words],
        input=None if manifest is None else json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def make_namespace(*, labels=None, objects=()):
    """Make a namespace in which Pods can be created at once, and return its name."""
    name = f"sb-contract-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": labels or {}}
    kubectl(
        "create",
        "-f",
        "-",
        manifest={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
    )
    kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", KUBECTL_TIMEOUT)
    for item in objects:
        kubectl("-n", name, "create", "-f", "-", manifest=item)
        if item["kind"] == "ResourceQuota":
            path = "--for=jsonpath={.status.hard}"
            kubectl("-n", name, "wait", path, f"resourcequota/{item['metadata']['name']}")
    return name


class FakeWorld:
    real = False

    def __init__(self):
        self.cluster = FakeCluster(namespace="fake")

    async def run_pod(self, name):
        self.cluster.edit(ObjectKind.POD, name, {"spec": {"schedulingGates": []}})
        self.cluster.set_pod_status(name, {"phase": "Running"})


class RealWorld:
    real = True

    def __init__(self, cluster):
        self.cluster = cluster

    async def run_pod(self, name):
        """Open the Pod's scheduling gate and wait until the kubelet has started it."""
        namespace = ("-n", self.cluster.namespace)
        gate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
        kubectl(*namespace, "patch", "pod", name, "--type=json", "-p", gate)
        kubectl(*namespace, "wait", "--for=condition=Ready", f"pod/{name}", KUBECTL_TIMEOUT)


def needs_cluster():
    if "KUBECONFIG" not in os.environ:
        pytest.skip("no cluster: KUBECONFIG is not set")


@pytest.fixture
def namespaces():
    """Return make_namespace; what it made goes at the end."""
    needs_cluster()
    made = []

    def make(**settings):
        made.append(make_namespace(**settings))
        return made[-1]

    yield make
    for name in made:
        kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def edit_kubeconfig(tmp_path, monkeypatch):
    """Return a function that lets connections use a changed copy of the kubeconfig."""

    def edit(*, user=None, server=None):
        needs_cluster()
        settings = json.loads(kubectl("config", "view", "--minify", "--raw", "-o", "json"))
        if user is not None:
            settings["users"][0]["user"] = user
        if server is not None:
            settings["clusters"][0]["cluster"]["server"] = server
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(settings), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(path))

    return edit


@pytest.fixture
def nobody(namespaces, edit_kubeconfig):
    """Return a namespace, with connections being those of its default service account."""
    namespace = namespaces()
    token = kubectl("-n", namespace, "create", "token", "default").strip()
    edit_kubeconfig(user={"token": token})
    return namespace


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
async def world(request):
    if request.param == "fake":
        yield FakeWorld()
        return
    namespace = request.getfixturevalue("namespaces")()
    async with connect(namespace) as cluster:
        yield RealWorld(cluster)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def refusing(request):
    """Return how to open a namespace whose admission refuses the next Pod.

    The fake has no admission: it is given the answer that a real server gave.
    """

    @asynccontextmanager
    async def opened(answer, **settings):
        if request.param == "fake":
            cluster = FakeCluster()
            recorded = ANSWERS[answer]
            cluster.fail_next("create", classify(recorded["status"], recorded["body"]))
            yield cluster
            return
        async with connect(request.getfixturevalue("namespaces")(**settings)) as cluster:
            yield cluster

    return opened


@pytest.fixture(scope="module")
def sleeping_pod():
    """Return the namespace and name of a Pod whose container main sleeps."""
    needs_cluster()
    namespace = make_namespace()
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"]}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    kubectl("-n", namespace, "create", "-f", "-", manifest=manifest)
    kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/a", KUBECTL_TIMEOUT)
    yield namespace, "a"
    kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.cluster)])
async def running_pod(sleeping_pod):
    namespace, name = sleeping_pod
    async with connect(namespace) as cluster:
        yield cluster, name
