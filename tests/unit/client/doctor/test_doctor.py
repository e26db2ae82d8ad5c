"""What doctor finds in a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from securebench.benchmark.files.load import check_pack
from securebench.cli.main import app
from securebench.client import doctor
from securebench.client import doctor as module
from securebench.client.doctor import Installation, probe, roles
from securebench.client.volume import ClusterTarget
from securebench.cluster.port import ObjectKind, Raw
from securebench.errors import ConfigError, PermanentClusterError, TransientClusterError
from securebench.run.api.models import BenchmarkRunSpec

ROOT = Path(__file__).parents[4]
CHECKS = ["cluster", "crds", "rights", "operator", "storage", "network", "images"]


def diagnosed() -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "-o", "json"], catch_exceptions=False)
    findings = json.loads(done.stdout)["findings"]
    return done.exit_code, {each["check"]: each for each in findings}


def test_a_healthy_namespace(ward: Any) -> None:
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


def test_nothing_of_the_doctor_stays_on_the_volume(ward: Any) -> None:
    assert diagnosed()[0] == 0
    assert ward.volume.operations() == ["put-pack", "remove-pack"]
    left = [path for path in (ward.volume.root / "packs").rglob("*") if path.is_file()]
    assert left == []


def old_cluster(ward: Any) -> None:
    ward.version = {"major": "1", "minor": "32", "gitVersion": "v1.32.0"}


def no_crds(ward: Any) -> None:
    ward.schemas.clear()


def no_crd_of_suites(ward: Any) -> None:
    del ward.schemas["BenchmarkSuite"]


def old_crd(ward: Any) -> None:
    forget(ward, "BenchmarkRun", "parallelism")


def old_crd_of_suites(ward: Any) -> None:
    forget(ward, "BenchmarkSuite", "budget")


def old_crds(ward: Any) -> None:
    forget(ward, "BenchmarkRun", "suspend")
    forget(ward, "BenchmarkSuite", "suspend")


def forget(ward: Any, kind: str, field: str) -> None:
    """Take a field away from what the cluster knows of a spec."""
    del ward.schemas[kind]["properties"]["spec"]["properties"][field]


def no_operator(ward: Any) -> None:
    ward.pod = None


def operator_not_ready(ward: Any) -> None:
    condition = {"type": "Ready", "status": "False", "message": "containers with unready status"}
    ward.pod["status"]["conditions"] = [condition]


def operator_that_refuses_its_settings(ward: Any) -> None:
    operator_not_ready(ward)
    message = "Traceback\nsecurebench: error: settings.gateway.providers.0.host: no address\n"
    last = {"terminated": {"exitCode": 1, "message": message}}
    ward.pod["status"]["containerStatuses"] = [{"name": "operator", "lastState": last}]


def old_operator(ward: Any) -> None:
    ward.said = "securebench 0.0.9\n"


def volume_is_full(ward: Any) -> None:
    ward.volume.failures = [TransientClusterError("No space left on device")]


def open_network(ward: Any) -> None:
    ward.add_run("r", "02", "False", "IsolationNotVerified")


def declared_network(ward: Any) -> None:
    ward.add_run("r", "02", "Unknown", "Declared")


def no_pull(ward: Any) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    container = {"image": "registry.example/x:1", "state": {"waiting": waiting}}
    status = {"phase": "Pending", "containerStatuses": [container]}
    ward.put(ObjectKind.POD, {"metadata": {"name": "sb-1"}, "status": status})


def run_without_image(ward: Any) -> None:
    run_waits(ward, "cannot pull registry.example/x:1: ErrImagePull: not found")


def run_without_image_again(ward: Any) -> None:
    run_waits(ward, "pulling x:1; the launch before ended with image_pull_failed: not found")


def run_waits(ward: Any, message: str) -> None:
    ward.add_run("r", "02", "True", "Verified")
    condition = {"type": "Succeeded", "status": "Unknown", "reason": "Running"}
    status = ward.objects(ObjectKind.BENCHMARK_RUN)["r"]["status"]
    conditions = [*status["conditions"], {**condition, "message": message}]
    ward.edit(ObjectKind.BENCHMARK_RUN, "r", {"status": {"conditions": conditions}})


def operator_is_not_shown(ward: Any) -> None:
    ward.forbidden = True


APPLY = "kubectl apply --server-side --force-conflicts -f charts/securebench/crds"
TROUBLES: dict[Callable[[Any], None], tuple[str, str, str]] = {
    old_cluster: ("cluster", "FAIL", "v1.32.0; SecureBench needs 1.33 or later"),
    no_crds: ("crds", "FAIL", f"the cluster has no BenchmarkRun and no BenchmarkSuite; {APPLY}"),
    no_crd_of_suites: ("crds", "FAIL", f"the cluster has no BenchmarkSuite; {APPLY}"),
    old_crd: ("crds", "FAIL", f"of an older version, without spec.parallelism; {APPLY}"),
    old_crd_of_suites: (
        "crds",
        "FAIL",
        "BenchmarkSuite is of an older version, without spec.budget, spec.budget.tokens; kubectl",
    ),
    old_crds: (
        "crds",
        "FAIL",
        "BenchmarkRun is of an older version, without spec.suspend; BenchmarkSuite is of an older",
    ),
    no_operator: ("operator", "FAIL", "no SecureBench operator runs in namespace bench; install"),
    operator_not_ready: (
        "operator",
        "FAIL",
        "securebench-0 is not ready: containers with unready status; kubectl -n bench describe",
    ),
    operator_that_refuses_its_settings: (
        "operator",
        "FAIL",
        "unready status; it ended with: settings.gateway.providers.0.host: no address; kubectl -n",
    ),
    old_operator: ("operator", "WARN", "of version 0.0.9; this command line is of"),
    volume_is_full: ("storage", "FAIL", "No space left on device"),
    open_network: ("network", "FAIL", "run r: said of r; use a network plugin that enforces"),
    declared_network: ("network", "WARN", "run r: said of r; a run with isolation.require: Ver"),
    no_pull: ("images", "FAIL", "sb-1 cannot pull registry.example/x:1: not found; push it,"),
    run_without_image: ("images", "FAIL", "run r: cannot pull registry.example/x:1: ErrImagePull"),
    run_without_image_again: ("images", "FAIL", "run r: pulling x:1; the launch before ended"),
    operator_is_not_shown: ("operator", "WARN", "your account may not look: pods is forbidden"),
}


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_a_trouble_is_one_line_that_says_what_to_do(
    ward: Any, trouble: Callable[[Any], None]
) -> None:
    trouble(ward)
    check, state, want = TROUBLES[trouble]
    code, found = diagnosed()
    finding = found[check]
    assert finding["state"] == state
    assert want in "; ".join(filter(None, (finding["found"], finding["hint"])))
    assert code == (1 if state == "FAIL" else 0)
    others = {name: each["state"] for name, each in found.items() if name != check}
    assert "FAIL" not in others.values() or trouble is no_operator


def test_an_image_that_is_being_pulled_is_named(ward: Any) -> None:
    run_waits(ward, "task #0: pulling x:1 for 40 s")
    code, found = diagnosed()
    assert (code, found["images"]["state"]) == (0, "OK")
    assert found["images"]["found"] == "run r: task #0: pulling x:1 for 40 s"


@pytest.mark.usefixtures("ward")
def test_without_any_run_the_network_is_a_warning() -> None:
    code, found = diagnosed()
    assert (found["network"]["state"], code) == ("WARN", 0)
    assert "securebench doctor --probe proves it" in found["network"]["hint"]


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
def test_an_account_has_the_rights_of_its_role(ward: Any, role: str, state: str, want: str) -> None:
    granted = set(map(tuple, roles("securebench-0", "securebench-viewers-0").get(role, ())))

    def allowed(attributes: Raw) -> bool:
        assert attributes["namespace"] == "bench"
        return asked(attributes) in granted

    ward.allowed = allowed
    code, found = diagnosed()
    assert found["rights"]["state"] == state
    assert found["rights"]["found"].startswith(want)
    assert code == (1 if state == "FAIL" else 0)


def test_one_missing_right_is_named(ward: Any) -> None:
    ward.allowed = lambda attributes: asked(attributes) != ("create", "", "secrets", "")
    hint = diagnosed()[1]["rights"]["hint"]
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

    monkeypatch.setattr(doctor, "open_cluster", opened)
    code, found = diagnosed()
    assert code == 1
    assert {name: each["found"] for name, each in found.items()} == {"cluster": str(error)}


PROVEN = {"type": "IsolationVerified", "status": "True", "reason": "Verified", "message": "closed"}
OPEN = {**PROVEN, "status": "False", "reason": "IsolationNotVerified", "message": "kubelet is open"}
PASSED = {"type": "Succeeded", "status": "True", "reason": "Completed", "message": ""}
REFUSED = {**PASSED, "status": "False", "reason": "IsolationNotVerified", "message": "see above"}
WAITING = {**PASSED, "status": "Unknown", "reason": "Unschedulable", "message": "no node has room"}


def answering(ward: Any, status: Raw) -> list[Any]:
    """Let an operator give a run this status once its pack is there; return what was made."""
    made = []
    create = ward.create

    async def created(kind: ObjectKind, manifest: Raw) -> Raw:
        item = await create(kind, manifest)
        made.append(item)
        if kind is ObjectKind.CONFIG_MAP:
            ward.edit(ObjectKind.BENCHMARK_RUN, item["metadata"]["name"], {"status": status})
        return item  # type: ignore[no-any-return]

    ward.create = created
    return made


def probed() -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--probe", "-o", "json"], catch_exceptions=False)
    findings = json.loads(done.stdout)["findings"]
    return done.exit_code, {each["check"]: each for each in findings if "probe" in each["check"]}


def left(ward: Any) -> list[str]:
    ward.collect_garbage()
    kinds = (ObjectKind.BENCHMARK_RUN, ObjectKind.CONFIG_MAP)
    return [name for kind in kinds for name in ward.objects(kind)]


def test_a_run_that_passes_proves_network_and_storage(ward: Any) -> None:
    answering(ward, {"conditions": [PROVEN, PASSED], "score": {"passed": 1}})
    code, found = probed()
    assert code == 0
    assert {name: each["state"] for name, each in found.items()} == {
        "probe-network": "OK",
        "probe-storage": "OK",
    }
    assert found["probe-network"]["found"].endswith(": closed")
    assert left(ward) == []


def test_the_run_is_one_that_the_operator_accepts(ward: Any, tmp_path: Path) -> None:
    made = answering(ward, {"conditions": [PROVEN, PASSED], "score": {"passed": 1}})
    probed()
    run, pack = made
    spec = BenchmarkRunSpec.parse(run["spec"])
    assert spec.retention.ttl_seconds_after_finished == 600
    assert pack["metadata"]["name"] == run["spec"]["pack"]["configMap"]["name"]
    for name, text in pack["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    checked = check_pack(tmp_path / "manifest.yaml", tmp_path / "tasks.jsonl")
    assert checked.errors == ()
    (item,) = checked.tasks
    assert item.task.environment["image"] == "registry.example/operator:1"


def test_an_open_network_is_found(ward: Any) -> None:
    answering(ward, {"conditions": [OPEN, REFUSED]})
    code, found = probed()
    assert code == 1
    assert found["probe-network"]["state"] == "FAIL"
    assert "kubelet is open" in found["probe-network"]["found"]
    assert "NetworkPolicy" in found["probe-network"]["hint"]
    assert found["probe-storage"]["state"] == "FAIL"
    assert "ended with IsolationNotVerified: see above" in found["probe-storage"]["found"]
    assert left(ward) == []


def test_a_run_that_waits_says_for_what(ward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.05)
    answering(ward, {"conditions": [WAITING]})
    code, found = probed()
    assert code == 1
    for each in found.values():
        assert "Unschedulable: no node has room" in each["found"]
        assert each["hint"].startswith("Unschedulable in docs/troubleshooting.md")
    assert left(ward) == []


def test_an_account_without_rights_is_told(ward: Any) -> None:
    ward.fail_next(
        "create", PermanentClusterError("forbidden", status=403), kind=ObjectKind.CONFIG_MAP
    )
    code, found = probed()
    assert (code, found["probe"]["state"]) == (0, "WARN")
    assert left(ward) == []


async def test_an_interrupt_leaves_nothing(ward: Any) -> None:
    answering(ward, {"conditions": [WAITING]})
    create, is_made = ward.create, asyncio.Event()

    async def created(kind: ObjectKind, manifest: Raw) -> Raw:
        item: Raw = await create(kind, manifest)
        if kind is ObjectKind.CONFIG_MAP:
            is_made.set()
        return item

    ward.create = created
    ward.put(ObjectKind.POD, ward.pod)
    installation = Installation(
        ward, "securebench-0", "securebench-0", "viewers-0", ward.execute_in
    )
    task = asyncio.create_task(probe(installation))
    await is_made.wait()
    assert len(left(ward)) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(ward) == []
