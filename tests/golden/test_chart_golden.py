"""What the chart renders, compared with committed files.

``SECUREBENCH_UPDATE_GOLDEN=1`` writes the files anew; look at the diff.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from securebench.cluster.port import ObjectKind
from securebench.controller.settings import AccessMode, Settings, UserNamespaces
from support.build import PLACE
from support.monitoring import (
    DASHBOARD,
    alert_expressions,
    alert_groups,
    dashboard_expressions,
    named_series,
    served,
    served_series,
)

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "securebench"
GOLDEN = Path(__file__).parent / "chart"
CASES = sorted(path.name.removesuffix(".values.yaml") for path in GOLDEN.glob("*.values.yaml"))


def helm(*arguments: str) -> str:
    cached = Path.home() / ".cache" / "securebench" / "cluster" / "bin" / "helm"
    program = shutil.which("helm") or str(cached)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout


MUTATING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"


def rendered(case: str) -> str:
    values = str(GOLDEN / f"{case}.values.yaml")
    place = ("-n", "bench", "--api-versions", MUTATING)
    return helm("template", "demo", str(CHART), *place, "-f", values)


def objects(case: str) -> dict[tuple[str, str], Any]:
    documents = yaml.safe_load_all(rendered(case))
    return {(item["kind"], item["metadata"]["name"]): item for item in documents if item}


def settings(case: str) -> Settings:
    (text,) = (
        item["data"]["settings.yaml"]
        for (kind, name), item in objects(case).items()
        if kind == "ConfigMap" and name.endswith("-settings")
    )
    return Settings.from_text(text, PLACE)


def role_rights(case: str) -> set[tuple[str, str]]:
    role = objects(case)["Role", "securebench-operator"]
    return {
        (verb, resource)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


OWN = {"create_or_find": "create", "find_own": "get"}
"""Our own functions that ask for an object of a kind that they are given."""


def requests_of_the_controller() -> Iterator[tuple[str, ObjectKind]]:
    """Yield method and kind of every call that names a kind, and what mirrors of a kind ask."""
    for path in sorted((ROOT / "operator" / "securebench" / "controller").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr=method) | ast.Name(id=method),
                    args=[ast.Attribute(value=ast.Name(id="ObjectKind"), attr=kind), *_]
                    | [_, ast.Attribute(value=ast.Name(id="ObjectKind"), attr=kind), *_],
                ):
                    yield OWN.get(method, method), ObjectKind[kind]
                case ast.Assign(value=ast.Attribute(value=ast.Name(id="ObjectKind"), attr=kind)):
                    yield "list", ObjectKind[kind]
                    yield "watch", ObjectKind[kind]


def stateful_set(case: str) -> Any:
    return next(item for (kind, _), item in objects(case).items() if kind == "StatefulSet")


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_what_is_committed(case: str) -> None:
    path = GOLDEN / f"{case}.yaml"
    text = rendered(case)
    if os.environ.get("SECUREBENCH_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_there_are_three_cases() -> None:
    assert CASES == ["default", "full", "local"]


def test_the_default_values_are_the_default_settings() -> None:
    want = Settings(
        pod_image="securebench-pod:0.1.0",
        gateway_image="securebench-operator:0.1.0",
        volume_claim="demo-securebench-results",
        runs_account="demo-securebench-runs",
        metrics_port=0,
        trusts_requesters=True,
        **PLACE,
    )
    assert settings("default") == want


def test_values_reach_the_settings() -> None:
    local, full = settings("local"), settings("full")
    assert local.pod_image == "example.test/pod:local"
    assert local.access_mode is AccessMode.READ_WRITE_ONCE
    assert local.gateway_image == "example.test/operator:local"
    assert local.gateway.nameservers == ("10.96.0.10",)
    assert local.gateway.ca_config_map == "our-authority"
    assert local.overlays["codex"].version("latest") == "0.169.0"
    assert local.pod_template.runtime_class_names == ("gvisor",)
    assert local.pod_template.sandboxed_runtime_class_names == ("gvisor",)
    assert local.bounds.workspace_bytes == 100 * 1024**3
    assert full.pod_image == "example.test/team/securebench-pod:1.2.3"
    assert full.volume_claim == "results"
    assert full.metrics_port == 9100
    assert (full.health_port, full.health_max_age_seconds) == (8081, 60)
    assert full.image_pull_secrets == ("registry",)
    assert full.user_namespaces is UserNamespaces.REQUIRE
    assert full.pod_template.tolerations[0].key == "gpu"


def test_an_existing_claim_is_not_made_again() -> None:
    assert not [kind for kind, _ in objects("full") if kind == "PersistentVolumeClaim"]
    volumes = stateful_set("full")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "results", "persistentVolumeClaim": {"claimName": "results"}} in volumes


def test_changed_settings_replace_the_pod() -> None:
    sums = {
        stateful_set(case)["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
        for case in CASES
    }
    assert len(sums) == len(CASES)


def test_the_test_pod_starts_after_all_that_it_watches_and_nothing_of_it_stays() -> None:
    hooks = {
        kind: item["metadata"]["annotations"]
        for (kind, name), item in objects("full").items()
        if name.endswith("-test")
    }
    assert set(hooks) == {
        "ServiceAccount", "Role", "RoleBinding", "ConfigMap", "BenchmarkRun", "Pod"
    }  # fmt: skip
    weights = {kind: int(item["helm.sh/hook-weight"]) for kind, item in hooks.items()}
    pod = weights.pop("Pod")
    assert pod > max(weights.values())
    for item in hooks.values():
        assert item["helm.sh/hook"] == "test"
        assert {"hook-succeeded", "hook-failed"} <= set(
            item["helm.sh/hook-delete-policy"].split(",")
        )


def affinity(*values: str) -> Any:
    flags = [word for value in values for word in ("--set", value)]
    text = helm("template", "demo", str(CHART), "--set", "operator.replicas=2", *flags)
    items = {item["kind"]: item for item in yaml.safe_load_all(text) if item}
    assert "PodDisruptionBudget" in items
    (operator,) = (
        item
        for item in yaml.safe_load_all(text)
        if item and item["kind"] == "StatefulSet" and item["spec"]["replicas"] == 2
    )
    return operator["spec"]["template"]["spec"]["affinity"]


def test_two_operators_go_where_the_volume_lets_them() -> None:
    (apart,) = affinity()["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    one = affinity("persistence.accessMode=ReadWriteOnce")
    (together,) = one["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"] == together
    assert together["topologyKey"] == "kubernetes.io/hostname"
    assert together["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert affinity("operator.affinity.own.x=1") == {"own": {"x": 1}}


@pytest.mark.parametrize("source", ["alerts", "dashboard"])
def test_alerts_and_dashboard_name_metrics_that_are_served(source: str) -> None:
    of = {
        "alerts": lambda: alert_expressions(alert_groups("bench")),
        "dashboard": dashboard_expressions,
    }
    named = named_series(of[source]())
    assert named
    assert named <= served_series()


def test_every_metric_is_on_the_dashboard() -> None:
    named = named_series(dashboard_expressions())
    assert [metric.name for metric in served() if not metric.series & named] == []


def test_alerts_say_what_they_must_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": alert_groups("bench")}))
    tests = tmp_path / "alerts_test.yaml"
    shutil.copy(Path(__file__).parent / "alerts_test.yaml", tests)
    words = ["promtool", "test", "rules", str(tests)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    named = {item["alertname"] for test in yaml.safe_load(tests.read_text())["tests"]
             for item in test["alert_rule_test"]}  # fmt: skip
    assert named == {rule["alert"] for group in alert_groups("bench") for rule in group["rules"]}


def test_the_dashboard_is_in_a_config_map_as_it_is() -> None:
    made = objects("full")["ConfigMap", "demo-bench-dashboard"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["data"]["securebench.json"] == DASHBOARD.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_cluster_wide_but_policies_for_the_namespace(case: str) -> None:
    for (kind, name), item in objects(case).items():
        if kind.removesuffix("Binding") in {"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}:
            assert name.startswith("bench."), name
            continue
        assert not kind.startswith("Cluster"), name
        assert item["metadata"]["namespace"] == "bench", name


@pytest.mark.parametrize("version", ["", "v1beta1", "v1"])
def test_policies_say_who_requests_runs_where_the_cluster_has_them(version: str) -> None:
    kind = f"admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy"
    words = ("--api-versions", kind) if version else ()
    text = helm("template", "demo", str(CHART), "-n", "bench", *words)
    made = {item["kind"]: item for item in yaml.safe_load_all(text) if "Admission" in item["kind"]}
    want = {"Validating", "Mutating"} if version else {"Validating"}
    kinds = {f"{each}AdmissionPolicy{part}" for each in want for part in ("", "Binding")}
    assert set(made) == kinds
    if version:
        api = made["MutatingAdmissionPolicy"]["apiVersion"]
        assert api == f"admissionregistration.k8s.io/{version}"
    for each in want:
        constraints = made[f"{each}AdmissionPolicy"]["spec"]["matchConstraints"]
        chosen = constraints["namespaceSelector"]["matchLabels"]
        assert chosen == {"kubernetes.io/metadata.name": "bench"}
    assert "trustsRequesters: true" in text


def test_who_may_make_nothing_cluster_wide_has_no_policies() -> None:
    words = ("--set", "requesters.record=false", "--api-versions", MUTATING)
    text = helm("template", "demo", str(CHART), *words)
    assert "AdmissionPolicy" not in text
    assert "trustsRequesters: false" in text


REGISTRY = "settings.packRegistries.registries[0]"
PROVIDER = "settings.gateway.providers[0].port=80,settings.gateway.providers[0].namespace=models"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("foo=1", "additional properties 'foo' not allowed"),
        ("persistence.accessMode=ReadWriteOncePod", "/persistence/accessMode"),
        ("settings.bounds.textBytes=0", "/settings/bounds/textBytes"),
        ("settings.bounds.text=1", "additional properties 'text' not allowed"),
        ("settings.podImage=x", "additional properties 'podImage' not allowed"),
        ("settings.gateway.connections=0", "/settings/gateway/connections"),
        ("settings.userNamespaces=Maybe", "/settings/userNamespaces"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("operator.replicas=3", "/operator/replicas"),
        ("operator.replicas=0", "/operator/replicas"),
        ("imagePullSecrets[0]=registry", "/imagePullSecrets/0"),
        ("metrics.alerts=true", "metrics.dashboard need metrics.enabled"),
        ("metrics.dashboard=true", "metrics.dashboard need metrics.enabled"),
        ("metrics.enabled=true,metrics.port=8081", "metrics.port and probes.port are the same"),
        ("image.registry=https://r.example/a", "write host and path alone, such as registry.ex"),
        ("image.operator=https://r.example/a", "write an image's name, such as registry.example"),
        ("persistence.size=10GB", "persistence.size is 10GB: write a quantity .*, such as 10Gi"),
        ("settings.gateway.memory=1GB", "settings.gateway.memory is 1GB: write a quantity"),
        ("settings.canary.metadataAddress=foo", "write a numeric address and a port, such as 192"),
        ("settings.canary.outsideAddress=1.1.1.1", "canary.outsideAddress is 1.1.1.1: write a nu"),
        ("settings.canary.extraTargets[0]=db:5432", "extraTargets has db:5432: write a numeric"),
        (
            f"{REGISTRY}.host=r.example,{REGISTRY}.certificateAuthority=/etc/ca.crt",
            "certificateAuthority of r.example is no certificate in PEM: write the content",
        ),
        (f"{PROVIDER},settings.gateway.providers[0].host=10.96.0.9", "host 10.96.0.9: write a DNS"),
        (f"{PROVIDER},settings.gateway.providers[0].host=vllm", "host vllm: write a DNS name"),
        ("settings.gateway.nameservers[0]=kube-dns", "nameservers has kube-dns: write a numeric"),
        ("roles.viewer[0].kind=Usr", "roles.viewer has a subject of kind Usr: write User, Group"),
    ],
)
def test_wrong_values_are_refused_with_their_place(value: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        helm("template", "demo", str(CHART), "--set", value)


@pytest.mark.parametrize(
    "value",
    [
        "image.operator=r.example:5000/a/b@sha256:" + 64 * "0",
        "persistence.size=1.5Ti",
        "settings.canary.outsideAddress=[2001:db8::1]:443",
        "settings.canary.extraTargets[0]=10.0.0.1:80",
        f"{PROVIDER},settings.gateway.providers[0].host=vllm.models.svc.cluster.local",
        "settings.gateway.nameservers[0]=10.96.0.10",
        "settings.gateway.nameservers[0]=fd00::a",
        "roles.viewer[0].kind=Group,roles.viewer[0].name=a",
    ],
)
def test_right_values_are_taken(value: str) -> None:
    assert helm("template", "demo", str(CHART), "--set", value)


PLURALS = {
    ObjectKind.POD: "pods",
    ObjectKind.NETWORK_POLICY: "networkpolicies",
    ObjectKind.SERVICE: "services",
    ObjectKind.CONFIG_MAP: "configmaps",
    ObjectKind.SECRET: "secrets",
    ObjectKind.EVENT: "events",
    ObjectKind.LEASE: "leases",
    ObjectKind.BENCHMARK_RUN: "benchmarkruns",
    ObjectKind.BENCHMARK_SUITE: "benchmarksuites",
}
VERBS = {"replace": "update"}
LOOP_RIGHTS = {
    right
    for kind in ("benchmarkruns", "benchmarksuites")
    for right in (("list", kind), ("watch", kind), ("get", kind), ("patch", f"{kind}/status"))
}
"""What kopf and the one loop ask for the kinds that have a loop."""


def test_the_operator_has_the_rights_that_its_source_uses_and_no_other() -> None:
    used = set(LOOP_RIGHTS)
    for method, kind in requests_of_the_controller():
        used.add((VERBS.get(method, method.replace("_", "")), PLURALS[kind]))
        if method == "create":  # ApiCluster.create looks for the object when a quota is full
            used.add(("get", PLURALS[kind]))
    assert role_rights("local") == used
