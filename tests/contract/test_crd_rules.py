"""Every rule of the CRD on a real API server: one object that passes, one that is refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from securebench.run.api.crd import MUTABLE, benchmark_run_crd
from securebench.run.api.field_types import KIND, PLURAL
from securebench.run.api.models import BenchmarkRunSpec
from support.crd_server import OurObjects, Spec, objects_of, refusal, with_value

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "a" * 64


def full_spec() -> Spec:
    return {
        "runId": "geo: run 7/ä",
        "pack": {
            "configMap": {"name": "pack"},
            "digest": DIGEST,
        },
        "harness": {
            "type": "command",
            "config": {"command": ["python3", "answer.py"], "timeout_seconds": 2.5},
            "env": ["MY_TOKEN"],
            "secretRef": {"name": "keys"},
        },
        "verification": {"disallowDangerousCommands": False, "denyCommands": ["chroot"]},
        "taskSelector": {"limit": 3, "include": ["geo:*"], "exclude": ["geo:9"]},
        "attempts": 2,
        "infrastructureRetries": 1,
        "providerRetries": 0,
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": 1, "memory": "1Gi"},
            "workspace": "1Gi",
        },
        "podTemplate": {
            "runtimeClassName": "gvisor",
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "gpu", "operator": "Equal", "value": "a", "effect": ""}],
            "priorityClassName": "low",
            "imagePullSecrets": [{"name": "registry"}],
        },
        "isolation": {"require": "Declared", "allow": ["Node"]},
        "budget": {"tokens": 100_000},
        "retention": {"pods": "All", "lanes": "Keep"},
        "resumeFrom": {"run": "earlier"},
    }


def minimal_spec() -> Spec:
    return {"pack": {"volume": {"path": "smoke"}}, "harness": {"type": "command"}}


def provider_spec() -> Spec:
    spec = minimal_spec()
    spec["harness"]["type"] = "codex"
    spec["provider"] = {"secretRef": {"name": "openai"}}
    return spec


def regrade_spec() -> Spec:
    return {**minimal_spec(), "regrade": {"run": "earlier"}}


def secret_spec() -> Spec:
    spec = full_spec()
    spec["pack"] = {"secret": spec["pack"]["configMap"]}
    return spec


def image_spec() -> Spec:
    return {**minimal_spec(), "pack": {"image": f"packs.example.test:5000/team/smoke:1@{DIGEST}"}}


class Case(NamedTuple):
    base: Callable[[], Spec]
    path: str
    accepted: Any
    refused: Any
    message: str


NAME = "must be the name of an object in this namespace"
UID = "must be the metadata.uid of an object (letters, digits, -)"
PACK_PATH = "must be a relative path without empty parts, parts that begin with '.'"
QUANTITY = "must be a quantity above zero such as 500m, 2, 256Mi or 1Gi"
SOURCE = "exactly one of volume, configMap, secret and image is needed"
OPTIONAL_NAME = "must be empty or the name of an object"

CASES: Mapping[str, Case] = {
    "runId": Case(minimal_spec, "runId", "Lab 3/ä", "a\nb", "must not be blank"),
    "pack": Case(minimal_spec, "pack.configMap", None, {"name": "pack"}, SOURCE),
    "pack.volume.path": Case(minimal_spec, "pack.volume.path", "a/b..", "a/../b", PACK_PATH),
    "hidden pack": Case(minimal_spec, "pack.volume.path", "a.content", ".content", PACK_PATH),
    "pack.configMap.name": Case(full_spec, "pack.configMap.name", "a.b", "other/pack", NAME),
    "pack.secret.name": Case(secret_spec, "pack.secret.name", "a-b", "A", NAME),
    "pack.image": Case(
        image_spec,
        "pack.image",
        f"packs.example.test/smoke@{DIGEST}",
        "packs.example.test/smoke:1",
        "must name an image by its digest",
    ),
    "two sources": Case(image_spec, "pack.volume", None, {"path": "smoke"}, SOURCE),
    "pack.digest": Case(
        minimal_spec, "pack.digest", DIGEST, "sha256:ABC", "must be sha256: and 64 lower case"
    ),
    "harness": Case(full_spec, "harness.secretRef", {"name": "k"}, None, "env needs secretRef"),
    "harness.env[]": Case(full_spec, "harness.env[]", "A.b-C", "A=b", "name of a variable"),
    "harness.secretRef.name": Case(full_spec, "harness.secretRef.name", "k", "ns/k", NAME),
    "provider.secretRef.name": Case(provider_spec, "provider.secretRef.name", "k", "../k", NAME),
    "provider with oracle": Case(
        provider_spec,
        "harness.type",
        "codex",
        "oracle",
        "provider does not belong to harness types",
    ),
    "harness type": Case(minimal_spec, "harness.type", "nop", "NOP", "Unsupported value"),
    "resources cpu": Case(
        full_spec, "resources.requests.cpu", 1, "1001m", "requests.cpu must not exceed limits.cpu"
    ),
    "resources memory": Case(
        full_spec, "resources.requests.memory", "1Gi", "2Gi", "requests.memory must not exceed"
    ),
    "resources.requests.cpu": Case(minimal_spec, "resources.requests.cpu", "0.5", "-1", QUANTITY),
    "resources.requests.memory": Case(
        minimal_spec, "resources.requests.memory", "64Mi", "0", QUANTITY
    ),
    "resources.limits.cpu": Case(minimal_spec, "resources.limits.cpu", 2, 0, QUANTITY),
    "resources.limits.memory": Case(minimal_spec, "resources.limits.memory", "2G", "two", QUANTITY),
    "resources.workspace": Case(minimal_spec, "resources.workspace", "10Gi", "1e9", QUANTITY),
    "podTemplate.runtimeClassName": Case(
        minimal_spec, "podTemplate.runtimeClassName", "", "a/b", OPTIONAL_NAME
    ),
    "podTemplate.priorityClassName": Case(
        minimal_spec, "podTemplate.priorityClassName", "low", "LOW", OPTIONAL_NAME
    ),
    "podTemplate.nodeSelector.*": Case(
        minimal_spec, "podTemplate.nodeSelector", {"a": "b"}, {"a": "b c"}, "must be a label value"
    ),
    "podTemplate.imagePullSecrets[].name": Case(
        full_spec, "podTemplate.imagePullSecrets[].name", "r", "r/", NAME
    ),
    "podTemplate.tolerations[].key": Case(
        full_spec, "podTemplate.tolerations[].key", "a.b/c", "a b", "must be a label key"
    ),
    "podTemplate.tolerations[].value": Case(
        full_spec, "podTemplate.tolerations[].value", "v", "v/", "must be a label value"
    ),
    "toleration Exists": Case(
        full_spec,
        "podTemplate.tolerations[]",
        {"operator": "Exists"},
        {"operator": "Exists", "key": "a", "value": "b"},
        "operator Exists takes no value",
    ),
    "toleration Equal": Case(
        full_spec,
        "podTemplate.tolerations[]",
        {"key": "a"},
        {"value": "b"},
        "operator Equal needs a key",
    ),
    "resumeFrom.run": Case(minimal_spec, "resumeFrom.run", "earlier", "Earlier", NAME),
    "resumeFrom": Case(
        minimal_spec, "resumeFrom.run", "earlier", "case", "must name another, earlier BenchmarkRun"
    ),
    "resumeFrom.uid": Case(full_spec, "resumeFrom.uid", "1f-A", "a b", UID),
    "regrade.uid": Case(regrade_spec, "regrade.uid", "1f-A", "a/b", UID),
    "regrade.run": Case(minimal_spec, "regrade.run", "Lab 3/ä", "a\nb", "must not be blank"),
    "regrade": Case(
        minimal_spec, "regrade.run", "earlier", "case", "must name another, earlier BenchmarkRun"
    ),
    "regrade and resumeFrom": Case(
        regrade_spec, "resumeFrom", None, {"run": "x"}, "regrade and resumeFrom exclude each other"
    ),
}

BOUNDS: Mapping[str, tuple[str, Any, Any]] = {
    "attempts low": ("attempts", 1, 0),
    "attempts high": ("attempts", 100, 101),
    "attempts type": ("attempts", 2, "2"),
    "parallelism low": ("parallelism", 1, 0),
    "parallelism high": ("parallelism", 1000, 1001),
    "infrastructureRetries": ("infrastructureRetries", 0, 11),
    "providerRetries": ("providerRetries", 10, -1),
    "activeDeadlineSeconds": ("activeDeadlineSeconds", 1, 0),
    "limit": ("taskSelector.limit", 1, 0),
    "cancel": ("cancel", "Graceful", "Later"),
    "retention": ("retention.pods", "None", "Some"),
    "isolation": ("isolation.require", "Declared", "None"),
    "isolation gap": ("isolation.allow", ["Node"], ["Internet"]),
    "isolation gap twice": ("isolation.allow", [], ["Node", "Node"]),
    "deny": ("verification.denyCommands", ["chroot"], ["mount"]),
    "deny twice": ("verification.denyCommands", [], ["chroot", "chroot"]),
    "harness type": ("harness.type", "command", "bash"),
    "unknown field": ("suspend", True, None),
    "run id length": ("runId", "a" * 512, "a" * 513),
}

CHANGES: Mapping[str, Any] = {
    "runId": "other",
    "pack": {"volume": {"path": "smoke"}},
    "harness": {"type": "command", "config": {"command": "true"}},
    "verification": {"disallowDangerousCommands": True},
    "taskSelector": {"limit": 4},
    "attempts": 3,
    "infrastructureRetries": 2,
    "providerRetries": 1,
    "resources": {"workspace": "2Gi"},
    "podTemplate": {"runtimeClassName": "runc"},
    "isolation": {"require": "Verified"},
    "resumeFrom": {"run": "another"},
    "regrade": {"run": "another"},
    "provider": {"secretRef": {"name": "other"}},
    "budget": {"tokens": 200_000},
}


@pytest.fixture(scope="module")
def api() -> Iterator[client.ApiClient]:
    config.load_kube_config()
    with client.ApiClient() as connection:
        yield connection


@pytest.fixture(scope="module")
def runs(api: client.ApiClient) -> Iterator[OurObjects]:
    with objects_of(api, KIND, PLURAL) as made:
        yield made


@pytest.fixture(scope="module")
def stored(runs: OurObjects) -> dict[str, Any]:
    return runs.create(full_spec(), store=True, name="stored")


@pytest.fixture(scope="module")
def stored_minimal(runs: OurObjects) -> dict[str, Any]:
    return runs.create(minimal_spec(), store=True, name="minimal")


@pytest.mark.parametrize("name", CASES)
def test_a_rule_accepts_one_and_refuses_one_object(name: str, runs: OurObjects) -> None:
    case = CASES[name]
    runs.create(with_value(case.base(), case.path, case.accepted))
    message = refusal(lambda: runs.create(with_value(case.base(), case.path, case.refused)))
    assert case.message in message


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_accepts_one_and_refuses_one_object(name: str, runs: OurObjects) -> None:
    path, accepted, refused = BOUNDS[name]
    runs.create(with_value(minimal_spec(), path, accepted))
    if name == "unknown field":
        with pytest.raises(ApiException, match="unknown field"):
            runs.create({**minimal_spec(), "hostNetwork": True})
        return
    message = refusal(lambda: runs.create(with_value(minimal_spec(), path, refused)))
    assert f"spec.{path}" in message


def test_every_static_rule_has_a_case() -> None:
    want = {path for path, rule in all_rules() if "oldSelf" not in rule["rule"]}
    refused = {rule["message"] for _, rule in all_rules() if "oldSelf" not in rule["rule"]}
    covered = {message for message in refused if any(c.message in message for c in CASES.values())}
    assert refused == covered
    leaves = {path for path in want if path not in {"", "resources", "podTemplate.tolerations[]"}}
    assert leaves <= set(CASES)


def test_every_immutable_field_has_a_change() -> None:
    names = {field.alias for field in BenchmarkRunSpec.model_fields.values()}
    assert set(CHANGES) == names - MUTABLE


@pytest.mark.parametrize("field", sorted(set(CHANGES) - {"provider"}))
def test_a_fixed_field_cannot_be_changed(
    field: str, runs: OurObjects, stored: dict[str, Any]
) -> None:
    message = refusal(lambda: runs.replace(stored, {**stored["spec"], field: CHANGES[field]}))
    assert f"{field} is fixed once the run exists: create a new BenchmarkRun instead" in message


@pytest.mark.parametrize("field", sorted(set(CHANGES) - {"provider", "pack", "harness", "regrade"}))
def test_a_fixed_field_cannot_be_removed(
    field: str, runs: OurObjects, stored: dict[str, Any]
) -> None:
    if field == "infrastructureRetries":
        assert stored["spec"][field] == 1, "removing falls back to another value"
    spec = {key: value for key, value in stored["spec"].items() if key != field}
    message = refusal(lambda: runs.replace(stored, spec))
    assert f"{field} is fixed" in message


@pytest.mark.parametrize("field", sorted(set(CHANGES) - {"provider", "pack", "harness"}))
def test_a_fixed_field_cannot_be_added(
    field: str, runs: OurObjects, stored_minimal: dict[str, Any]
) -> None:
    spec = {**stored_minimal["spec"], field: CHANGES[field]}
    if field == "infrastructureRetries":
        spec[field] = 7
    message = refusal(lambda: runs.replace(stored_minimal, spec))
    assert f"{field} is fixed" in message


def test_a_regrade_cannot_become_a_run(runs: OurObjects) -> None:
    regrade = runs.create(regrade_spec(), store=True, name="regrade")
    assert "regrade is fixed" in refusal(lambda: runs.replace(regrade, minimal_spec()))


def test_the_provider_cannot_be_changed_or_added(
    runs: OurObjects, stored_minimal: dict[str, Any]
) -> None:
    agent = runs.create(provider_spec(), store=True, name="agent")
    changed = with_value(agent["spec"], "provider.secretRef.name", "other")
    assert "provider is fixed" in refusal(lambda: runs.replace(agent, changed))
    added = with_value(stored_minimal["spec"], "provider", CHANGES["provider"])
    assert "provider is fixed" in refusal(lambda: runs.replace(stored_minimal, added))


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["python3", "other.py"], "timeout_seconds": 2.5},
        {"command": ["python3", "answer.py"], "timeout_seconds": 3},
        {"command": ["python3", "answer.py"]},
        {"command": ["python3", "answer.py"], "timeout_seconds": 2.5, "artifact_path": "a"},
    ],
)
def test_the_open_harness_config_is_fixed_too(
    config: Spec, runs: OurObjects, stored: dict[str, Any]
) -> None:
    spec = with_value(stored["spec"], "harness.config", config)
    assert "harness is fixed" in refusal(lambda: runs.replace(stored, spec))


def test_the_mutable_fields_may_change(runs: OurObjects, stored: dict[str, Any]) -> None:
    changes = {
        "suspend": True,
        "cancel": "Graceful",
        "parallelism": 8,
        "activeDeadlineSeconds": 60,
        "retention": {"pods": "None"},
    }
    answer = runs.replace(stored, {**stored["spec"], **changes})
    assert set(changes) == MUTABLE
    assert {name: answer["spec"][name] for name in changes} == {
        **changes,
        "retention": {"pods": "None", "lanes": "Delete"},
    }


def test_an_unchanged_spec_may_be_written_again(runs: OurObjects, stored: dict[str, Any]) -> None:
    assert runs.replace(stored, stored["spec"])["spec"] == stored["spec"]


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        ("", "Graceful", True),
        ("", "Immediate", True),
        ("Graceful", "Graceful", True),
        ("Graceful", "Immediate", True),
        ("Graceful", "", False),
        ("Graceful", None, False),
        ("Immediate", "Immediate", True),
        ("Immediate", "Graceful", False),
        ("Immediate", "", False),
        ("Immediate", None, False),
    ],
)
def test_cancel_only_grows(old: str, new: str | None, allowed: bool, runs: OurObjects) -> None:  # noqa: FBT001
    name = f"cancel-{uuid.uuid4().hex[:6]}"
    run = runs.create({**minimal_spec(), "cancel": old}, store=True, name=name)
    spec = with_value(run["spec"], "cancel", new)
    if allowed:
        assert runs.replace(run, spec)["spec"]["cancel"] == new
    else:
        assert "cancel cannot be taken back" in refusal(lambda: runs.replace(run, spec))


def test_defaults_are_those_of_the_models(stored_minimal: dict[str, Any]) -> None:
    assert BenchmarkRunSpec.parse(stored_minimal["spec"]) == BenchmarkRunSpec.parse(minimal_spec())


def all_rules() -> list[tuple[str, dict[str, str]]]:
    """Return every rule with its place in the spec; the root's are at ``resumeFrom``."""
    (version,) = benchmark_run_crd()["spec"]["versions"]  # type: ignore[index]
    root = version["schema"]["openAPIV3Schema"]
    found = [("resumeFrom", rule) for rule in root["x-kubernetes-validations"]]
    pending = [("", root["properties"]["spec"])]
    while pending:
        path, node = pending.pop()
        found += [(path, rule) for rule in node.get("x-kubernetes-validations", [])]
        pending += [
            (f"{path}.{name}".removeprefix("."), part)
            for name, part in node.get("properties", {}).items()
        ]
        if "items" in node:
            pending.append((f"{path}[]", node["items"]))
        if isinstance(node.get("additionalProperties"), dict):
            pending.append((f"{path}.*", node["additionalProperties"]))
    return found
