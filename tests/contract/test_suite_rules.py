"""Every rule of the suites' CRD on a real API server: one object passes, one is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from securebench.suite.api import KIND, PLURAL, BenchmarkSuiteSpec
from support.crd_server import OurObjects, Spec, objects_of, refusal, with_value

pytestmark = pytest.mark.cluster

DIGEST = "sha256:" + "a" * 64


def full_spec() -> Spec:
    return {
        "matrix": {
            "packs": [
                {
                    "name": "math",
                    "pack": {"configMap": {"name": "math"}, "digest": DIGEST},
                    "baseline": {"file": {"path": "a/b.jsonl", "sha256": DIGEST}},
                }
            ],
            "harnesses": [
                {
                    "name": "codex",
                    "harness": {"type": "codex", "config": {"version": "1.0"}},
                    "provider": {"secretRef": {"name": "openai"}},
                }
            ],
            "models": [{"name": "large", "model": "gpt-5"}],
            "include": [{"pack": "math", "harness": "codex"}],
            "exclude": [{"model": "large"}],
        },
        "attempts": 3,
        "template": {"parallelism": 8, "taskSelector": {"limit": 3}},
        "maxConcurrentRuns": 4,
        "runPolicy": "Always",
        "schedule": "0 2 * * *",
        "timeZone": "Europe/Berlin",
        "startingDeadlineSeconds": 600,
        "concurrencyPolicy": "Replace",
        "successfulRunsHistoryLimit": 5,
        "failedRunsHistoryLimit": 0,
        "suspend": False,
        "baseline": {"suite": "nightly"},
        "gates": {
            "minPassRate": "0.8",
            "notWorse": {"level": "0.01", "looks": 4},
            "maxLostShare": "0",
            "maxCostMicroDollars": 1_000_000,
            "prices": [{"model": "gpt-5", "input": 1, "cachedInput": 0, "output": 2}],
        },
    }


class Case(NamedTuple):
    path: str
    accepted: Any
    refused: Any
    message: str


CASES: Mapping[str, Case] = {
    "always": Case("schedule", "0 2 * * *", None, "runPolicy Always needs a schedule"),
    "zone": Case("schedule", "0 2 * * *", None, "need a schedule"),
    "baseline": Case("baseline", {"run": "a"}, {"run": "a", "suite": "b"}, "exactly one of run"),
    "no source": Case("baseline", {"run": "a"}, {}, "exactly one of run, suite and file"),
    "uid": Case(
        "baseline",
        {"run": "a", "uid": "3c9a5f0e-7d0b-4a55-9a43-5f2c6f9b0f0d"},
        {"file": {"path": "a", "sha256": "sha256:" + "a" * 64}, "uid": "u"},
        "uid needs run or suite",
    ),
    "not worse": Case(
        "matrix.packs[].baseline", {"run": "a"}, None, "gates.notWorse needs a baseline"
    ),
    "cost": Case(
        "gates.prices", [{"model": "m", "input": 1, "output": 1}], None, "needs gates.prices"
    ),
    "pass rate": Case("gates.minPassRate", "1.0", "1.01", "must be a decimal from 0 to 1"),
    "lost share": Case("gates.maxLostShare", "0.05", "5%", "must be a decimal from 0 to 1"),
    "level": Case("gates.notWorse.level", "0.05", "0.0", "must be a decimal above 0"),
    "name": Case("matrix.packs[].name", "math.v2", "Math", "must be lower case letters"),
    "run of a cell": Case(
        "matrix.packs[].pack.volume",
        None,
        {"path": "p"},
        "exactly one of volume, configMap, secret and image",
    ),
    "template": Case(
        "template.resources",
        {"limits": {"cpu": 2}},
        {"requests": {"cpu": 3}, "limits": {"cpu": 2}},
        "requests.cpu must not exceed",
    ),
    "no pack": Case(
        "matrix.packs", full_spec()["matrix"]["packs"], [], "should have at least 1 items"
    ),
    "names twice": Case(
        "matrix.models",
        [{"name": "a", "model": "m"}],
        [{"name": "a", "model": "m"}, {"name": "a", "model": "n"}],
        "Duplicate value",
    ),
    "policy": Case("concurrencyPolicy", "Allow", "allow", "Unsupported value"),
    "limit": Case("maxConcurrentRuns", 64, 65, "should be less than or equal to 64"),
}


@pytest.fixture(scope="module")
def suites() -> Iterator[OurObjects]:
    config.load_kube_config()
    with client.ApiClient() as api, objects_of(api, KIND, PLURAL) as made:
        yield made


def base(name: str) -> Spec:
    spec = full_spec()
    if name == "not worse":
        del spec["baseline"]
    if name == "zone":
        del spec["runPolicy"]
    return spec


@pytest.mark.parametrize("name", CASES)
def test_a_rule_accepts_one_and_refuses_one_object(name: str, suites: OurObjects) -> None:
    case = CASES[name]
    suites.create(with_value(base(name), case.path, case.accepted))
    message = refusal(lambda: suites.create(with_value(base(name), case.path, case.refused)))
    assert case.message in message


def test_the_name_leaves_room_for_those_of_its_runs(suites: OurObjects) -> None:
    suites.create(full_spec(), name="a" * 50)
    assert "at most 50 characters" in refusal(lambda: suites.create(full_spec(), name="a" * 51))
    assert "has no '.'" in refusal(lambda: suites.create(full_spec(), name="a.b"))


def test_an_unknown_field_is_refused(suites: OurObjects) -> None:
    with pytest.raises(ApiException, match="unknown field"):
        suites.create({**full_spec(), "parallelism": 3})


def test_what_the_server_stores_is_what_the_operator_reads(suites: OurObjects) -> None:
    stored = suites.create(full_spec(), store=True, name="stored")
    assert BenchmarkSuiteSpec.parse(stored["spec"]) == BenchmarkSuiteSpec.parse(full_spec())


def test_a_suite_may_change(suites: OurObjects) -> None:
    stored = suites.create(full_spec(), store=True, name="changing")
    changed = with_value(full_spec(), "attempts", 5)
    assert suites.replace(stored, changed)["spec"]["attempts"] == 5
