"""Flux's controllers and Argo CD's health checks, as tests/gitops/build.sh builds them.

Flux's controllers are processes of this machine with a kubeconfig. They need the API server and one
another, which the loopback gives them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import yaml

from gitops.repository import SUITES
from support.release import ROOT, Raw, Release, call
from support.servers import answers, free_port, serving

BUILT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "securebench" / "gitops"
MANIFESTS = ROOT / SUITES / "flux" / "suites.yaml"
QUICK = {"interval": "1m", "retryInterval": "5s", "timeout": "10m"}
"""The times of the shipped Kustomization, for a test that waits for each commit."""


KINDS = ("kustomizations.kustomize.toolkit.fluxcd.io,gitrepositories.source.toolkit.fluxcd.io",)
"""What a team creates for Flux."""


class Health(NamedTuple):
    """What Argo CD shows of an object.

    Attributes:
        status: Healthy, Progressing, Degraded.
        message: Why.
    """

    status: str
    message: str


def argocd_health(settings: Path, objects: Sequence[Raw]) -> list[Health]:
    """Return the health of each object by Argo CD's engine.

    Args:
        settings: The argocd-cm as JSON.
        objects: As the API server showed them.
    """
    lines = "".join(json.dumps(each) + "\n" for each in objects)
    words = (str(BUILT / "bin" / "argocd"), str(settings))
    found = [json.loads(line) for line in call(*words, stdin=lines.encode()).splitlines()]
    return [Health(each["status"], each.get("message", "")) for each in found]


@contextmanager
def flux(installed: Release, folder: Path) -> Iterator[None]:
    """Run Flux for the objects of a namespace, and at the end let it take away what it applied.

    Its CRDs are deleted too if they were not there before.
    """
    with ExitStack() as stack:
        stack.enter_context(_crds())
        data = folder / "artifacts"
        data.mkdir()
        storage = f"127.0.0.1:{free_port()}"
        flags = {
            "source-controller": (
                f"--storage-path={data}",
                f"--storage-addr={storage}",
                f"--storage-adv-addr={storage}",
            ),
            "kustomize-controller": (),
        }
        for name, own in flags.items():
            stack.enter_context(_controller(name, own, installed.namespace))
        try:
            yield
        finally:
            installed.kubectl("delete", *KINDS, "--all")


def flux_objects(folder: Path, url: str, namespace: str) -> Path:
    """Write the shipped manifests for Flux with a repository's URL, a namespace and short times."""
    objects = list(yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")))
    for each in objects:
        if each["kind"] == "GitRepository":
            each["spec"]["url"] = url
        elif each["kind"] == "Kustomization":
            each["spec"] |= {**QUICK, "targetNamespace": namespace}
    file = folder / MANIFESTS.name
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return file


@contextmanager
def _controller(name: str, flags: Sequence[str], namespace: str) -> Iterator[None]:
    """Run a controller of Flux; its log is beside the programs."""
    health = f"127.0.0.1:{free_port()}"
    common = ("--watch-all-namespaces=false", "--metrics-addr=0", f"--health-addr={health}")
    words = (str(BUILT / "bin" / name), *common, *flags)
    variables = {**os.environ, "RUNTIME_NAMESPACE": namespace}
    with (
        (BUILT / f"{name}.log").open("w", encoding="utf-8") as log,
        serving(words, partial(answers, health, "/readyz"), variables, log),
    ):
        yield


@contextmanager
def _crds() -> Iterator[None]:
    folder = str(BUILT / "crds")
    there = subprocess.run(
        ["kubectl", "get", "-f", folder], capture_output=True, check=False
    ).returncode
    call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", folder)
    call("kubectl", "wait", "--for=condition=Established", "-f", folder)
    try:
        yield
    finally:
        if there != 0:
            call("kubectl", "delete", "-f", folder, "--ignore-not-found")
