"""`securebench doctor` before a fake cluster: what it says of each trouble, and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from typer.testing import CliRunner

from securebench.cli.main import app
from securebench.client.doctor import command
from securebench.client.doctor.rights import roles
from securebench.client.volume.connection import ClusterTarget
from securebench.client.volume.link import Exec, ExecResult
from securebench.cluster.port import Forbidden, Listing, ObjectKind, Raw
from securebench.core.errors import ConfigError, PermanentClusterError, TransientClusterError
from securebench.core.version import VERSION
from securebench.run.api.crd import benchmark_run_crd
from support.fake_cluster import FakeCluster
from support.fake_operator import Namespace

ROOT = Path(__file__).parents[4]
CHECKS = ["cluster", "crds", "rights", "operator", "storage", "network", "images"]
POD: Raw = {
    "metadata": {
        "name": "securebench-0",
        "labels": {
            "app.kubernetes.io/component": "operator",
            "app.kubernetes.io/name": "securebench",
        },
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
Schema = dict[str, Any]


def schema() -> Schema:
    crd: Any = json.loads(json.dumps(benchmark_run_crd()))
    found: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


class Ward(FakeCluster):
    """A cluster that answers the doctor's questions, healthy until a test changes something."""

    server = "https://cluster.example"

    def __init__(self, folder: Path) -> None:
        super().__init__(namespace="bench")
        self.volume = Namespace(folder)
        self.version: Raw = {"major": "1", "minor": "33+", "gitVersion": "v1.33.1"}
        self.schema: Schema | None = schema()
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
            if self.schema is None:
                raise PermanentClusterError("API server answered 404", status=404)
            schemas = {"dev.securebench.v1alpha1.BenchmarkRun": self.schema}
            return {"components": {"schemas": schemas}}
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

    monkeypatch.setattr(command, "open_cluster", opened)
    monkeypatch.setattr(command, "PodExec", lambda cluster, pod: cluster.execute_in(pod))
    return made


def doctor() -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "-o", "json"], catch_exceptions=False)
    findings = json.loads(done.stdout)["findings"]
    return done.exit_code, {each["check"]: each for each in findings}


def test_a_healthy_namespace(ward: Ward) -> None:
    ward.add_run("old", "01", "False", "IsolationNotVerified")
    ward.add_run("new", "02", "True", "Verified")
    ward.add_run("active", "03", "Unknown", "Probing")
    done = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["STATE", "CHECK", "FOUND"]
    assert [line.split()[:2] for line in lines] == [["OK", name] for name in CHECKS]
    assert "https://cluster.example answers, Kubernetes v1.33.1, namespace bench" in lines[0]
    assert lines[5].endswith("run new: said of new")
    assert done.exit_code == 0


def test_nothing_of_the_doctor_stays_on_the_volume(ward: Ward) -> None:
    assert doctor()[0] == 0
    assert ward.volume.operations() == ["put-pack", "remove-pack"]
    left = [path for path in (ward.volume.root / "packs").rglob("*") if path.is_file()]
    assert left == []


def old_cluster(ward: Ward) -> None:
    ward.version = {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}


def no_crd(ward: Ward) -> None:
    ward.schema = None


def old_crd(ward: Ward) -> None:
    del ward.schema["properties"]["spec"]["properties"]["parallelism"]  # type: ignore[index]


def no_operator(ward: Ward) -> None:
    ward.pod = None


def operator_not_ready(ward: Ward) -> None:
    condition = {"type": "Ready", "status": "False", "message": "containers with unready status"}
    ward.pod["status"]["conditions"] = [condition]


def old_operator(ward: Ward) -> None:
    ward.said = "securebench 0.0.9\n"


def volume_is_full(ward: Ward) -> None:
    ward.volume.failures = [TransientClusterError("No space left on device")]


def open_network(ward: Ward) -> None:
    ward.add_run("r", "02", "False", "IsolationNotVerified")


def declared_network(ward: Ward) -> None:
    ward.add_run("r", "02", "Unknown", "Declared")


def no_pull(ward: Ward) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    container = {"image": "registry.example/x:1", "state": {"waiting": waiting}}
    status = {"phase": "Pending", "containerStatuses": [container]}
    ward.put(ObjectKind.POD, {"metadata": {"name": "sb-1"}, "status": status})


def run_without_image(ward: Ward) -> None:
    ward.add_run("r", "02", "True", "Verified")
    run = ward._objects[ObjectKind.BENCHMARK_RUN]["r"]
    message = "cannot pull registry.example/x:1: ErrImagePull: not found"
    condition = {"type": "Succeeded", "status": "Unknown", "reason": "Running"}
    run["status"]["conditions"].append({**condition, "message": message})  # type: ignore[index]


def operator_is_not_shown(ward: Ward) -> None:
    ward.forbidden = True


APPLY = "kubectl apply --server-side --force-conflicts -f charts/securebench/crds"
TROUBLES: dict[Callable[[Ward], None], tuple[str, str, str]] = {
    old_cluster: ("cluster", "FAIL", "v1.32.0; SecureBench needs 1.33 or later"),
    no_crd: ("crds", "FAIL", f"the cluster has no BenchmarkRun; {APPLY}"),
    old_crd: ("crds", "FAIL", f"of an older version, without spec.parallelism; {APPLY}"),
    no_operator: ("operator", "FAIL", "no SecureBench operator runs in namespace bench; install"),
    operator_not_ready: (
        "operator",
        "FAIL",
        "securebench-0 is not ready: containers with unready status; kubectl -n bench describe",
    ),
    old_operator: ("operator", "WARN", "of version 0.0.9; this command line is of"),
    volume_is_full: ("storage", "FAIL", "No space left on device"),
    open_network: ("network", "FAIL", "run r: said of r; use a network plugin that enforces"),
    declared_network: ("network", "WARN", "run r: said of r; a run with isolation.require: Ver"),
    no_pull: ("images", "FAIL", "sb-1 cannot pull registry.example/x:1: not found; push it,"),
    run_without_image: ("images", "FAIL", "run r: cannot pull registry.example/x:1: ErrImagePull"),
    operator_is_not_shown: ("operator", "WARN", "your account may not look: pods is forbidden"),
}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_a_trouble_is_one_line_that_says_what_to_do(
    ward: Ward, trouble: Callable[[Ward], None]
) -> None:
    trouble(ward)
    check, state, want = TROUBLES[trouble]
    code, found = doctor()
    finding = found[check]
    assert finding["state"] == state
    assert want in "; ".join(filter(None, (finding["found"], finding["hint"])))
    assert code == (1 if state == "FAIL" else 0)
    others = {name: each["state"] for name, each in found.items() if name != check}
    assert "FAIL" not in others.values() or trouble is no_operator


@pytest.mark.usefixtures("ward")
def test_without_any_run_the_network_is_a_warning() -> None:
    code, found = doctor()
    assert (found["network"]["state"], code) == ("WARN", 0)
    assert "run any pack" in found["network"]["hint"]


# Rights


def chart_rules(role: str) -> set[tuple[str, str, str, str]]:
    text = (ROOT / "tests/golden/chart/default.yaml").read_text()
    objects = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Role"]
    (found,) = (each for each in objects if each["metadata"]["name"].endswith(f"-{role}"))
    return {
        (verb, group, resource, name)
        for rule in found["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.parametrize("role", ["tester", "submitter", "viewer"])
def test_the_roles_are_those_of_the_chart(role: str) -> None:
    ours = roles("demo-securebench-0", "demo-securebench-viewers-0")[role]
    assert set(map(tuple, ours)) == chart_rules(role)


def asked(attributes: Raw) -> tuple[str, str, str, str]:
    parts = (str(attributes["resource"]), str(attributes.get("subresource", "")))
    resource = "/".join(filter(None, parts))
    name = str(attributes.get("name", ""))
    return str(attributes["verb"]), str(attributes.get("group", "")), resource, name


@pytest.mark.parametrize(
    ("role", "state", "want"),
    [
        ("tester", "OK", "your account may do what the role tester may"),
        ("submitter", "WARN", "your account has the role submitter"),
        ("viewer", "WARN", "your account has the role viewer"),
        ("", "FAIL", "your account may not: create benchmarkruns, get benchmarkruns,"),
    ],
)
def test_an_account_has_the_rights_of_its_role(
    ward: Ward, role: str, state: str, want: str
) -> None:
    granted = set(map(tuple, roles("securebench-0", "securebench-viewers-0").get(role, ())))

    def allowed(attributes: Raw) -> bool:
        assert attributes["namespace"] == "bench"
        return asked(attributes) in granted

    ward.allowed = allowed
    code, found = doctor()
    assert found["rights"]["state"] == state
    assert found["rights"]["found"].startswith(want)
    assert code == (1 if state == "FAIL" else 0)


def test_one_missing_right_is_named(ward: Ward) -> None:
    ward.allowed = lambda attributes: asked(attributes) != ("create", "", "secrets", "")
    hint = doctor()[1]["rights"]["hint"]
    assert hint.endswith("would also need: create secrets")


@pytest.mark.parametrize(
    "error", [ConfigError("there is no kubeconfig"), TransientClusterError("it cannot be reached")]
)
def test_a_cluster_that_cannot_be_reached_is_the_only_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    @asynccontextmanager
    async def opened(_target: ClusterTarget) -> Any:
        raise error
        yield

    monkeypatch.setattr(command, "open_cluster", opened)
    code, found = doctor()
    assert code == 1
    assert {name: each["found"] for name, each in found.items()} == {"cluster": str(error)}
