"""A namespace with a release of the chart, and what its users and its administrator do there."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from securebench.controller.volume.journal import decode
from support import api
from support.waiting import COMMAND_SECONDS, KUBECTL_TIMEOUT

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "securebench"
RELEASE = "securebench"
OPERATOR = f"{RELEASE}-0"
DATA = "/var/lib/securebench"
RUN_SECONDS = 600
"""Longest that a run may take, unless a test says otherwise: less than a test has, so that a run
that hangs tells its story."""

Raw = dict[str, Any]
Record = dict[str, Any]


class CommandError(AssertionError):
    """A command of the user failed; the text is what it printed."""


def call(*words: str, stdin: bytes | None = None, seconds: float = COMMAND_SECONDS) -> bytes:
    """Run a program and return its standard output."""
    done = subprocess.run(words, input=stdin, capture_output=True, check=False, timeout=seconds)
    if done.returncode != 0:
        raise CommandError(done.stderr.decode() or done.stdout.decode())
    return done.stdout


def images() -> Mapping[str, str]:
    """Return the images that `make` built, or skip where no cluster is named."""
    if "KUBECONFIG" not in os.environ:
        pytest.skip("no cluster: KUBECONFIG is not set")
    names = {
        "image.operator": "SECUREBENCH_OPERATOR_IMAGE",
        "image.pod": "SECUREBENCH_POD_IMAGE",
    }
    missing = [name for name in names.values() if name not in os.environ]
    assert not missing, f"not set: {', '.join(missing)}; run this tier with make"
    return {value: os.environ[name] for value, name in names.items()}


@dataclass(frozen=True, slots=True)
class Release:
    """One namespace in which the chart is installed."""

    namespace: str

    def kubectl(
        self, *words: str, stdin: bytes | None = None, seconds: float = COMMAND_SECONDS
    ) -> str:
        """Run kubectl in the namespace."""
        out = call("kubectl", "-n", self.namespace, *words, stdin=stdin, seconds=seconds)
        return out.decode()

    def create(self, *objects: Mapping[str, Any]) -> None:
        """Create objects as a user would."""
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("create", "-f", "-", stdin=json.dumps(body).encode())

    def get(self, kind: str, name: str) -> Raw:
        """Return one object."""
        found: Raw = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def patch(self, name: str, spec: Mapping[str, Any]) -> None:
        """Change fields of a BenchmarkRun's spec."""
        body = json.dumps({"spec": spec})
        self.kubectl("patch", "benchmarkrun", name, "--type=merge", "-p", body)

    def pods(self, run: str) -> list[Raw]:
        """Return the Pods of a run."""
        selector = f"securebench.dev/run={run}"
        found = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))
        items: list[Raw] = found["items"]
        return items

    def uid(self, run: str) -> str:
        """Return the uid of a BenchmarkRun, which names its folder on the volume."""
        return str(api.benchmark_run(self.namespace, run)["metadata"]["uid"])

    def pod_uid(self, name: str) -> str:
        """Return the uid of a Pod, or an empty text while there is none."""
        words = ("get", "pod", name, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*words)

    def wait(
        self,
        run: str,
        what: Callable[[Raw], bool],
        seconds: float = RUN_SECONDS,
        step_seconds: float = 0.25,
    ) -> Raw:
        """Return a BenchmarkRun as soon as something holds for it, asked after each step."""
        deadline = time.monotonic() + seconds
        while True:
            seen = api.benchmark_run(self.namespace, run)
            if what(seen):
                return seen
            if time.monotonic() > deadline:
                raise CommandError(f"{run} after {seconds:.0f} s:\n{self._story(seen)}")
            time.sleep(step_seconds)

    def wait_ended(self, run: str, seconds: float = RUN_SECONDS) -> Raw:
        """Return a BenchmarkRun that has ended."""
        return self.wait(run, lambda seen: condition(seen)["status"] != "Unknown", seconds)

    def records(self, run: str) -> list[Record]:
        """Return the lines of candidates.jsonl."""
        return [json.loads(line) for line in self.file(run, "candidates.jsonl").splitlines()]

    def entries(self, run: str) -> Sequence[object]:
        """Return the journal's entries."""
        printed = self.operator("securebench", "journal", self.uid(run), "-o", "json")
        return [_entry(json.loads(line)) for line in printed.splitlines()]

    def file(self, run: str, path: str) -> bytes:
        """Return a file of a run's folder on the volume."""
        return self.operator("cat", f"{DATA}/runs/{self.uid(run)}/{path}")

    def operator(self, *words: str, stdin: bytes | None = None) -> bytes:
        """Run a program in the operator's container."""
        flags = ["-i"] if stdin is not None else []
        exec_words = ["exec", *flags, OPERATOR, "-c", "operator", "--"]
        return call("kubectl", "-n", self.namespace, *exec_words, *words, stdin=stdin)

    def token(self, account: str) -> str:
        """Return a token of a service account."""
        return self.kubectl("create", "token", account, "--duration=1h").strip()

    def scale(self, replicas: int) -> None:
        """Start or stop the operator and wait until it is so."""
        self.kubectl("scale", "statefulset", RELEASE, f"--replicas={replicas}")
        if replicas:
            self.kubectl("rollout", "status", f"statefulset/{RELEASE}", KUBECTL_TIMEOUT)
        else:
            self.kubectl("wait", "--for=delete", f"pod/{OPERATOR}", KUBECTL_TIMEOUT)

    def _story(self, seen: Raw) -> str:
        status = json.dumps(seen.get("status"), indent=1)
        pods = self.kubectl("get", "pods", "-o", "wide")
        log = self.kubectl("logs", OPERATOR, "--tail=40")
        return f"{status}\n{pods}\n{log}"


def _entry(line: Raw) -> object:
    """Return an entry as ``securebench journal`` prints it."""
    body = f'{{"type":"{line["type"]}","entry":{json.dumps(line["entry"])}}}'
    return decode(body.encode())


def condition(run: Raw, kind: str = "Succeeded") -> Raw:
    """Return a condition of a BenchmarkRun, with status Unknown while it is not there."""
    conditions: list[Raw] = run.get("status", {}).get("conditions", [])
    absent = {"status": "Unknown", "reason": "", "message": ""}
    return next((item for item in conditions if item["type"] == kind), absent)


def benchmark_run(name: str, spec: Mapping[str, Any]) -> Raw:
    """Return a BenchmarkRun."""
    return {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def keyed_pack(kind: str, name: str, files: Mapping[str, bytes]) -> tuple[Raw, Raw]:
    """Return a pack as a ConfigMap or Secret, and the pack source of a spec that names it."""
    keys = {path: path.replace("/", "--") for path in files}
    encoded = {keys[path]: base64.b64encode(data).decode() for path, data in files.items()}
    body: Raw = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
    body["data" if kind == "Secret" else "binaryData"] = encoded
    source = "secret" if kind == "Secret" else "configMap"
    return body, {source: {"name": name}}


@contextmanager
def namespace(prefix: str, labels: Mapping[str, str] | None = None) -> Iterator[str]:
    """Make a namespace for one test; it is deleted afterwards, nobody waits for that."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {"name": name, "labels": level if labels is None else dict(labels)}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    call("kubectl", "create", "-f", "-", stdin=json.dumps(body).encode())
    try:
        yield name
    finally:
        call("kubectl", "delete", "namespace", name, "--wait=false", "--ignore-not-found")
        remove_policies(name)


def remove_policies(namespace: str) -> None:
    """Remove the release's admission policies, which do not go with its namespace."""
    kinds = [f"{kind}admissionpolicy" for kind in ("validating", "mutating")]
    listed = ",".join([*kinds, *(f"{kind}binding" for kind in kinds)])
    name = f"{namespace}.{RELEASE}.requesters"
    call("kubectl", "delete", listed, name, "--ignore-not-found", "--wait=false")


@contextmanager
def release(
    prefix: str, values: Mapping[str, object], labels: Mapping[str, str] | None = None
) -> Iterator[Release]:
    """Install the chart in a namespace of its own; both are gone afterwards."""
    chosen = {"viewers.enabled": False, **images(), "settings.inputWaitSeconds": 5, **values}
    with namespace(prefix, labels) as name:
        flags = [f"--set-json={key}={json.dumps(value)}" for key, value in chosen.items()]
        install(name, flags)
        yield Release(name)


def install(name: str, flags: Sequence[str]) -> None:
    """Install the chart, with its CRDs as they are now, and wait until the operator is ready."""
    call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    helm = shutil.which("helm")
    assert helm is not None, "helm is not in PATH"
    words = ["upgrade", "--install", RELEASE, str(CHART), "-n", name, "--wait", KUBECTL_TIMEOUT]
    call(helm, *words, *flags)
