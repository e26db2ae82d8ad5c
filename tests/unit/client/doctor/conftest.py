"""A cluster before the doctor."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from securebench.client import doctor
from securebench.client.volume import ClusterTarget, Exec, ExecResult
from securebench.cluster.port import Forbidden, Listing, ObjectKind, Raw
from securebench.errors import PermanentClusterError
from securebench.run.api.crd import benchmark_run_crd
from securebench.suite.api import benchmark_suite_crd
from securebench.version import VERSION
from support.fake_cluster import FakeCluster
from support.fake_operator import Namespace

POD: Raw = {
    "metadata": {
        "name": "securebench-0",
        "uid": "pod-uid",
        "labels": {
            "app.kubernetes.io/component": "operator",
            "app.kubernetes.io/name": "securebench",
        },
    },
    "spec": {"containers": [{"name": "operator", "image": "registry.example/operator:1"}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
Schema = dict[str, Any]


def schema(made: dict[str, object]) -> Schema:
    crd: Any = json.loads(json.dumps(made))
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def schemas() -> dict[str, Schema]:
    return {
        "BenchmarkRun": schema(benchmark_run_crd()),
        "BenchmarkSuite": schema(benchmark_suite_crd()),
    }


class Ward(FakeCluster):
    """A cluster that answers the doctor's questions, healthy until a test changes something."""

    server = "https://cluster.example"

    def __init__(self, folder: Path) -> None:
        super().__init__(namespace="bench")
        self.volume = Namespace(folder)
        self.version: Raw = {"major": "1", "minor": "33+", "gitVersion": "v1.33.1"}
        self.schemas = schemas()
        self.allowed: Callable[[Raw], bool] = lambda _asked: True
        self.said = f"securebench {VERSION}\n"
        self.forbidden = False
        self.pod: Any = json.loads(json.dumps(POD))

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        if self.forbidden and kind is ObjectKind.POD:
            raise Forbidden("pods is forbidden", status=403)
        return await super().list(kind, selector)

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        if self.forbidden and kind is ObjectKind.POD:
            raise Forbidden("pods is forbidden", status=403)
        return await super().get(kind, name)

    def put(self, kind: ObjectKind, item: Any) -> None:
        self._objects[kind][item["metadata"]["name"]] = item

    def add_run(self, name: str, created: str, status: str, reason: str) -> None:
        condition = {"type": "IsolationVerified", "status": status, "reason": reason}
        self.put(
            ObjectKind.BENCHMARK_RUN,
            {
                "metadata": {"name": name, "creationTimestamp": f"2026-01-{created}T00:00:00Z"},
                "status": {"conditions": [{**condition, "message": f"said of {name}"}]},
            },
        )

    async def ask(self, _method: str, path: str, body: Raw | None = None) -> Raw:
        if path == "/version":
            return self.version
        if path.startswith("/openapi/v3/apis/securebench.dev/"):
            if not self.schemas:
                raise PermanentClusterError("API server answered 404", status=404)
            served = {
                f"dev.securebench.v1alpha1.{name}": each
                for kind, found in self.schemas.items()
                for name, each in ((f"{kind}List", {}), (kind, found))
            }
            return {"components": {"schemas": served}}
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        asked: Any = body
        return {"status": {"allowed": self.allowed(asked["spec"]["resourceAttributes"])}}

    def execute_in(self, pod: str) -> Exec:
        assert pod == "securebench-0"

        async def execute(words: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
            if list(words) == ["securebench", "--version"]:
                return ExecResult(0, self.said.encode(), b"")
            return await self.volume.execute(words, stdin)

        return execute


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ward:
    made = Ward(tmp_path / "volume")

    @asynccontextmanager
    async def opened(_target: ClusterTarget) -> Any:
        if made.pod is not None:
            made.put(ObjectKind.POD, made.pod)
        yield made

    monkeypatch.setattr(doctor, "open_cluster", opened)
    monkeypatch.setattr(doctor, "PodExec", lambda cluster, pod: cluster.execute_in(pod))
    return made
