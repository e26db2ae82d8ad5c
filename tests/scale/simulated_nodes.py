"""A namespace whose Pods go to nodes that kwok simulates: no container ever starts there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from support.release import CHART, Raw, call, namespace
from support.waiting import KUBECTL_TIMEOUT

STAGES = Path(__file__).parents[1] / "cluster" / "kwok-stages.yaml"
MANAGED = "kwok.x-k8s.io/node"
"""Annotation of the nodes that kwok stands for; also the label that their Pods select, and the
taint that keeps all others away."""

SIMULATED = "fake"
CLAIM = "securebench-results"
NODE_PODS = 5000
"""As the stages say."""

GONE_SECONDS = 300

WITH_US = ("setpriv", "--pdeathsig", "TERM")
"""Begins the command of a process that ends when this program is killed."""

PREFIX = "sb-scale"
MADE = re.compile(rf"[^/]+/({PREFIX}-[0-9a-f]+)(?:-[0-9]+)?")
"""Namespaces, volumes and nodes of a measurement, as kubectl names them."""


def node(name: str) -> Raw:
    """Return a simulated node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MANAGED: SIMULATED},
            "labels": {MANAGED: SIMULATED, "kubernetes.io/os": "linux"},
        },
        "spec": {"taints": [{"key": MANAGED, "value": SIMULATED, "effect": "NoSchedule"}]},
    }


def volume(name: str, space: str, folder: Path) -> tuple[Raw, Raw]:
    """Return a results volume that no node is bound to, and its claim. No Pod ever mounts it."""
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    spec = {
        **shared,
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": space, "name": CLAIM},
    }
    wanted = {**shared, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": space},
            "spec": wanted,
        },
    )


def scheduling() -> Mapping[str, object]:
    """Return the part of a Pod template that leads to simulated nodes."""
    return {
        "nodeSelector": {MANAGED: SIMULATED},
        "tolerations": [{"key": MANAGED, "operator": "Exists"}],
    }


@contextmanager
def simulated(root: Path, nodes: int, log: IO[str]) -> Iterator[str]:
    """Make a namespace, its volume and the nodes, and start kwok; everything is gone afterwards.

    What an earlier measurement left that was killed goes first, so only one may run at a time.

    Args:
        root: Folder that is the results volume.
        nodes: How many; each takes ``NODE_PODS`` Pods.
        log: Gets what kwok says.

    Yields:
        The namespace.
    """
    call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    with kwok(log):
        remove_all(PREFIX)
        with namespace(PREFIX) as space:
            names = [f"{space}-{number}" for number in range(nodes)]
            bodies = [*(node(name) for name in names), *volume(space, space, root)]
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
            try:
                call("kubectl", "create", "-f", "-", stdin=text.encode())
                call("kubectl", "wait", "--for=condition=Ready", KUBECTL_TIMEOUT, "node", *names)
                call("kubectl", "-n", space, "wait", "--for=create", "serviceaccount/default")
                yield space
            finally:
                remove_all(space)


def remove_all(prefix: str) -> None:
    """Remove what measurements made whose namespace begins so, Pods first.

    Pods go only while kwok runs and their node is there.
    """
    for kind in ("namespace", "persistentvolume", "node"):
        listed = call("kubectl", "get", kind, "-o", "name").decode().split()
        found = [match for match in map(MADE.fullmatch, listed) if match is not None]
        left = [match[0] for match in found if match[1].startswith(prefix)]
        if left:
            wait = f"--timeout={GONE_SECONDS}s"
            call("kubectl", "delete", *left, "--ignore-not-found", wait, seconds=GONE_SECONDS + 10)


@contextmanager
def kwok(log: IO[str]) -> Iterator[None]:
    """Run kwok for the nodes that ask for it."""
    words = [*WITH_US, "kwok", "--kubeconfig", os.environ["KUBECONFIG"], "--config", str(STAGES)]
    words += ["--manage-all-nodes=false"]
    words += [f"--manage-nodes-with-annotation-selector={MANAGED}={SIMULATED}"]
    with subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.terminate()
