from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from securebench.errors import SpecError
from securebench.run.api.field_types import (
    ApiModel,
    CancelMode,
    IsolationRequirement,
    PodRetention,
    quantity,
)
from securebench.run.api.models import BenchmarkRunSpec

MINIMAL = {"pack": {"volume": {"path": "smoke"}}, "harness": {"type": "command"}}


def with_value(path: str, value: object) -> dict[str, Any]:
    result: dict[str, Any] = copy.deepcopy(MINIMAL)
    *parents, last = path.split(".")
    node = result
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
    return result


def test_a_minimal_spec_gets_the_defaults_of_the_design() -> None:
    spec = BenchmarkRunSpec.parse(MINIMAL)
    assert spec.run_id is None
    assert spec.harness.type == "command"
    assert spec.harness.config == {}
    assert spec.verification.disallow_dangerous_commands
    assert spec.task_selector.include == ("*",)
    assert (spec.attempts, spec.parallelism) == (1, 4)
    assert (spec.infrastructure_retries, spec.provider_retries) == (2, 2)
    assert spec.isolation.require is IsolationRequirement.VERIFIED
    assert not spec.isolation.is_node_allowed
    assert spec.active_deadline_seconds == 86_400
    assert spec.cancel is CancelMode.NONE
    assert spec.retention.pods is PodRetention.FAILED


def test_a_spec_survives_its_json_form() -> None:
    spec = BenchmarkRunSpec.parse(
        with_value("harness.config", {"command": ["a"], "timeout_seconds": 2.5})
    )
    assert BenchmarkRunSpec.parse(spec.to_json()) == spec
    assert spec.to_json()["harness"] == {
        "type": "command",
        "config": {"command": ["a"], "timeout_seconds": 2.5},
        "env": [],
    }


@pytest.mark.parametrize(
    "toleration",
    [{"operator": "Exists"}, {"key": "gpu", "value": "a100", "effect": "NoSchedule"}],
)
def test_tolerations(toleration: dict[str, str]) -> None:
    spec = BenchmarkRunSpec.parse(with_value("podTemplate.tolerations", [toleration]))
    (parsed,) = spec.pod_template.tolerations
    assert {"operator": "Equal", "effect": "", **toleration} == parsed.to_json()


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        ("pack.volume.path", "../x", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", "/x", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", "a/", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", "a\n", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", ".content", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", "a/.git", "spec.pack.volume.path: must be a relative path"),
        ("pack.volume.path", 3, "spec.pack.volume.path: must be a string"),
        ("pack.digest", "sha256:x", "spec.pack.digest: must be sha256:"),
        ("pack.secret", {"name": "a"}, "spec.pack: exactly one of volume, configMap, secret"),
        ("pack.image", "packs.example.org/a:1", "spec.pack.image: must name an image by its"),
        ("harness.secretRef", {"name": "ns/a"}, "spec.harness.secretRef.name: must be the name"),
        ("harness.env", ["A"], "spec.harness: env needs secretRef"),
        ("harness.env", ["A=b"], "spec.harness.env[0]: must be the name of a variable"),
        (
            "provider",
            {"secretRef": {"name": "a"}},
            "spec: provider.secretRef: harness.config.provider.key names no key",
        ),
        ("harness.type", "codex", "spec: harness type codex needs provider.secretRef"),
        ("harness.type", None, "spec.harness.type: "),
        ("attempts", "3", "spec.attempts: must be an integer"),
        ("attempts", True, "spec.attempts: must be an integer"),
        ("attempts", 101, "spec.attempts: Input should be less than or equal to 100"),
        ("suspend", "yes", "spec.suspend: must be true or false"),
        ("isolation.allow", ["Internet"], "spec.isolation.allow[0]: Input should be 'Node'"),
        ("isolation.allow", "Node", "spec.isolation.allow: must be a list"),
        ("taskSelector.include", "a", "spec.taskSelector.include: must be a list"),
        ("podTemplate", [], "spec.podTemplate: must be an object"),
        ("hostNetwork", True, "spec.hostNetwork: unknown field"),
        ("podTemplate.hostPID", True, "spec.podTemplate.hostPID: unknown field"),
        ("podTemplate.nodeSelector", {"a": "b c"}, "spec.podTemplate.nodeSelector.a: must be"),
        ("podTemplate.nodeSelector", {"a b": "c"}, "must be a label key"),
        ("podTemplate.runtimeClassName", "A", "must be empty or the name of an object"),
        (
            "podTemplate.tolerations",
            [{"operator": "Exists", "value": "x"}],
            "spec.podTemplate.tolerations[0]: operator Exists takes no value",
        ),
        (
            "podTemplate.tolerations",
            [{}],
            "spec.podTemplate.tolerations[0]: operator Equal needs a key",
        ),
        ("resources.workspace", "0", "spec.resources.workspace: must be a quantity above zero"),
        ("resources.workspace", True, "spec.resources.workspace: must be a string"),
        ("resources.requests", {"memory": "2Gi"}, "requests.memory must not exceed limits.memory"),
        (
            "resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": 1}},
            "spec.resources: requests.cpu must not exceed limits.cpu (1)",
        ),
        ("runId", " ", "spec.runId: must not be blank"),
        ("runId", "a\nb", "spec.runId: must not be blank and must not hold control characters"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_wrong(path: str, value: object, want: str) -> None:
    with pytest.raises(SpecError) as caught:
        BenchmarkRunSpec.parse(with_value(path, value))
    assert want in caught.value.reason


@pytest.mark.parametrize("require", ["Verified", "Declared"])
def test_the_node_may_be_allowed(require: str) -> None:
    spec = BenchmarkRunSpec.parse(with_value("isolation", {"require": require, "allow": ["Node"]}))
    assert spec.isolation.require.value == require
    assert spec.isolation.is_node_allowed


def test_another_gap_is_refused_in_one_line() -> None:
    with pytest.raises(SpecError) as caught:
        BenchmarkRunSpec.parse(with_value("isolation.allow", ["Node", "Internet"]))
    assert caught.value.reason == "spec.isolation.allow[1]: Input should be 'Node'"


def test_all_problems_come_in_one_go_one_per_line() -> None:
    with pytest.raises(SpecError) as caught:
        BenchmarkRunSpec.parse({"harness": {"type": "bash"}, "attempts": 0, "x": 1})
    lines = caught.value.reason.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *("spec.pack", "spec.harness.type", "spec.attempts", "spec.x")
    ]


def test_a_message_never_repeats_the_value() -> None:
    with pytest.raises(SpecError) as caught:
        BenchmarkRunSpec.parse(with_value("harness.secretRef", {"name": "CANARY/42"}))
    assert "CANARY" not in caught.value.reason


def test_a_spec_cannot_be_changed() -> None:
    spec = BenchmarkRunSpec.parse(MINIMAL)
    with pytest.raises(ValidationError):
        spec.attempts = 2


def test_a_top_level_model_without_place_names_fields_alone() -> None:
    class Thing(ApiModel):
        size: int

    with pytest.raises(SpecError, match=r"^size: is required$"):
        Thing.parse({})


@pytest.mark.parametrize(
    ("resources", "limited", "requested"),
    [
        ({}, {"memory": "1Gi"}, {"cpu": "100m", "memory": "256Mi"}),
        (
            {"limits": {"cpu": "50m", "memory": "128Mi"}},
            {"cpu": "50m", "memory": "128Mi"},
            {"cpu": "50m", "memory": "128Mi"},
        ),
        (
            {"requests": {"cpu": 2}, "limits": {"cpu": 4}},
            {"cpu": "4", "memory": "1Gi"},
            {"cpu": "2", "memory": "256Mi"},
        ),
    ],
)
def test_requests_follow_the_limits(
    resources: object, limited: dict[str, str], requested: dict[str, str]
) -> None:
    spec = BenchmarkRunSpec.parse(with_value("resources", resources))
    assert spec.resources.limited() == limited
    assert spec.resources.requested() == requested


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("100m", "0.1"),
        ("2", "2"),
        ("1.5Gi", "1610612736"),
        ("1k", "1000"),
        ("3Ti", "3298534883328"),
    ],
)
def test_quantity(text: str, want: str) -> None:
    assert quantity(text) == Decimal(want)


@pytest.mark.parametrize("text", ["", "Gi", "1e9", "-1", "1 Gi", "1gi", "1GiB"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity"):
        quantity(text)


@pytest.mark.parametrize("kind", ["oracle", "nop"])
def test_what_examines_a_pack_needs_no_provider(kind: str) -> None:
    raw = {**MINIMAL, "harness": {"type": kind}}
    assert BenchmarkRunSpec.parse(raw).provider is None
    with pytest.raises(SpecError, match="provider does not belong to harness types nop and oracle"):
        BenchmarkRunSpec.parse({**raw, "provider": {"secretRef": {"name": "key"}}})
