"""Each field of a BenchmarkRun counts, or not: in the digest of its plan and in a suite's name.

A field that a score depends on and that a digest leaves out would reuse an old result.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from securebench.benchmark.pack.oracle import Answers
from securebench.benchmark.pack.task import BenchmarkPack, LoadedPack, compile_benchmark_row
from securebench.benchmark.reading.rows import parse_manifest
from securebench.digests import json_digest
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import agent_image, build_plan
from securebench.run.plan.model import RunIdentity, TaskLimits
from securebench.run.plan.score_fields import RunBinding, ScoreFields, ScoreSettings, spec_harness
from securebench.suite.planning import cell_fields, named_fields
from support.manifest_samples import pods, policy_of

COMMAND = {"type": "command", "config": {"command": "echo A"}}
BASE: dict[str, Any] = {"pack": {"volume": {"path": "p"}}, "harness": COMMAND, "runId": "r"}
SECRET = {"name": "keys"}
KEYED = {"type": "codex", "config": {"model": "m"}}
TAINT = {"operator": "Exists"}


def run_with(**changes: Any) -> dict[str, Any]:
    return {**BASE, **changes}


def within(field: str, value: object) -> dict[str, Any]:
    return run_with(**{field: value})


COUNTED: dict[str, dict[str, Any]] = {
    "attempts": run_with(attempts=2),
    "harness.config": within("harness", {"type": "command", "config": {"command": "echo B"}}),
    "harness.env": within("harness", COMMAND | {"env": ["A"], "secretRef": SECRET}),
    "harness.type": within("harness", {"type": "nop"}),
    "isolation.allow": within("isolation", {"allow": ["Node"]}),
    "isolation.require": within("isolation", {"require": "Declared"}),
    "resources.limits.cpu": within("resources", {"limits": {"cpu": "2"}}),
    "resources.limits.memory": within("resources", {"limits": {"memory": "2Gi"}}),
    "resources.requests.cpu": within("resources", {"requests": {"cpu": "300m"}}),
    "resources.requests.memory": within("resources", {"requests": {"memory": "300Mi"}}),
    "resources.workspace": within("resources", {"workspace": "2Gi"}),
    "runId": run_with(runId="r2"),
    "taskSelector.exclude": within("taskSelector", {"exclude": ["t1"]}),
    "taskSelector.include": within("taskSelector", {"include": ["t1"]}),
    "taskSelector.limit": within("taskSelector", {"limit": 1}),
    "verification.denyCommands": within("verification", {"denyCommands": ["chroot"]}),
    "verification.disallowDangerousCommands": within(
        "verification", {"disallowDangerousCommands": False}
    ),
}

NAMED_ONLY: dict[str, dict[str, Any]] = {
    "pack.digest": within("pack", {"volume": {"path": "p"}, "digest": "sha256:" + "a" * 64}),
    "regrade.run": run_with(regrade={"run": "old"}),
    "regrade.uid": run_with(regrade={"run": "old", "uid": "u"}),
    "resumeFrom.run": run_with(resumeFrom={"run": "old"}),
    "resumeFrom.uid": run_with(resumeFrom={"run": "old", "uid": "u"}),
}
"""A plan has the digest of the pack that was read, the uid of the run that it grades again, and the
journal of the run that it continues."""

UNCOUNTED: dict[str, dict[str, Any]] = {
    "activeDeadlineSeconds": run_with(activeDeadlineSeconds=60),
    "budget.tokens": run_with(harness=KEYED, provider={"secretRef": SECRET}, budget={"tokens": 9}),
    "cancel": run_with(cancel="Graceful"),
    "harness.secretRef.name": within("harness", COMMAND | {"secretRef": SECRET}),
    "infrastructureRetries": run_with(infrastructureRetries=1),
    "pack.configMap.name": within("pack", {"configMap": {"name": "p"}}),
    "pack.image": within("pack", {"image": "packs.example.org/p@sha256:" + "a" * 64}),
    "pack.secret.name": within("pack", {"secret": {"name": "p"}}),
    "pack.volume.path": within("pack", {"volume": {"path": "q"}}),
    "parallelism": run_with(parallelism=9),
    "podTemplate.imagePullSecrets.name": within("podTemplate", {"imagePullSecrets": [SECRET]}),
    "podTemplate.nodeSelector": within("podTemplate", {"nodeSelector": {"a": "b"}}),
    "podTemplate.priorityClassName": within("podTemplate", {"priorityClassName": "high"}),
    "podTemplate.runtimeClassName": within("podTemplate", {"runtimeClassName": "gvisor"}),
    "podTemplate.tolerations.effect": within(
        "podTemplate", {"tolerations": [TAINT | {"effect": "NoExecute"}]}
    ),
    "podTemplate.tolerations.key": within("podTemplate", {"tolerations": [TAINT | {"key": "a"}]}),
    "podTemplate.tolerations.operator": within("podTemplate", {"tolerations": [TAINT]}),
    "podTemplate.tolerations.tolerationSeconds": within(
        "podTemplate", {"tolerations": [TAINT | {"effect": "NoExecute", "tolerationSeconds": 9}]}
    ),
    "podTemplate.tolerations.value": within(
        "podTemplate", {"tolerations": [{"operator": "Equal", "key": "a", "value": "b"}]}
    ),
    "provider.secretRef.name": run_with(harness=KEYED, provider={"secretRef": {"name": "other"}}),
    "providerRetries": run_with(providerRetries=1),
    "retention.lanes": within("retention", {"lanes": "Keep"}),
    "retention.pods": within("retention", {"pods": "All"}),
    "retention.ttlSecondsAfterFinished": within("retention", {"ttlSecondsAfterFinished": 9}),
    "suspend": run_with(suspend=True),
}

WITH_PROVIDER = run_with(harness=KEYED, provider={"secretRef": SECRET})
BASES = {
    "budget.tokens": WITH_PROVIDER,
    "provider.secretRef.name": WITH_PROVIDER,
    "regrade.uid": NAMED_ONLY["regrade.run"],
    "resumeFrom.uid": NAMED_ONLY["resumeFrom.run"],
}
"""What a change is compared with, where that is not ``BASE``."""

INSTALLATION = ScoreSettings(TaskLimits(1, 2, 3, 4, 5, 6), {"codex": {"1.0": "i", "latest": "1.0"}})
MANIFEST = parse_manifest("id: p\nversion: 2\n", path="manifest.yaml")
TASKS = tuple(
    compile_benchmark_row(
        {
            "id": f"t{number}",
            "family": "multiple_choice",
            "input": {"question": "Which?", "choices": ["a", "b"]},
            "environment": {"image": "python:3.11-slim"},
            "eval": {"answer": 0},
        },
        manifest=MANIFEST,
    )
    for number in range(3)
)


def leaves(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield every field that holds no further model, by its path in the API."""
    for name, info in model.model_fields.items():
        here = f"{path}{info.alias or name}"
        nested = [each for each in types_in(info.annotation) if issubclass(each, BaseModel)]
        for each in nested:
            yield from leaves(each, f"{here}.")
        if not nested:
            yield here


def types_in(annotation: object) -> Iterator[type]:
    if get_origin(annotation) in {tuple, Union, types.UnionType} or hasattr(
        annotation, "__metadata__"
    ):
        for each in get_args(annotation):
            yield from types_in(each)
    elif isinstance(annotation, type):
        yield annotation


def name_digest(raw: dict[str, Any]) -> str:
    return json_digest(named_fields(cell_fields(BenchmarkRunSpec.parse(raw), INSTALLATION)))


def plan_digest(raw: dict[str, Any], **changes: Any) -> str:
    spec = BenchmarkRunSpec.parse(raw)
    version, image = agent_image(spec_harness(spec), INSTALLATION.overlays)
    binding = RunBinding(
        identity=RunIdentity("u", "run", "default", spec.run_id or ""),
        pack_digest="sha256:" + "1" * 64,
        limits=INSTALLATION.limits,
        audit=spec.harness.type == "nop",
        agent_version=version,
        overlay=image,
    )
    pack = LoadedPack(BenchmarkPack(MANIFEST, ()), TASKS)
    return build_plan(spec, pack, replace(binding, **changes), pods(), policy_of()).digest


def test_every_field_of_a_run_counts_or_not() -> None:
    found = sorted(set(leaves(BenchmarkRunSpec)))
    assert found == sorted({**COUNTED, **NAMED_ONLY, **UNCOUNTED})


@pytest.mark.parametrize("field", COUNTED)
def test_what_counts_changes_the_plan_and_the_name(field: str) -> None:
    assert plan_digest(COUNTED[field]) != plan_digest(BASE)
    assert name_digest(COUNTED[field]) != name_digest(BASE)


@pytest.mark.parametrize("field", NAMED_ONLY)
def test_a_plan_has_what_a_spec_only_names(field: str) -> None:
    base = BASES.get(field, BASE)
    assert plan_digest(NAMED_ONLY[field]) == plan_digest(base)
    assert name_digest(NAMED_ONLY[field]) != name_digest(base)


@pytest.mark.parametrize("field", UNCOUNTED)
def test_what_does_not_count_changes_neither(field: str) -> None:
    base = BASES.get(field, BASE)
    assert plan_digest(UNCOUNTED[field]) == plan_digest(base)
    assert name_digest(UNCOUNTED[field]) == name_digest(base)


OTHER: dict[str, Any] = {
    "run_id": "r2",
    "pack": "sha256:" + "2" * 64,
    "harness": "sha256:" + "2" * 64,
    "agent": "2.0",
    "verifier": "other",
    "attempts": 2,
    "tasks": BenchmarkRunSpec.parse(COUNTED["taskSelector.limit"]).task_selector,
    "verification": BenchmarkRunSpec.parse(COUNTED["verification.denyCommands"]).verification,
    "resources": {},
    "isolation": {},
    "limits": TaskLimits(9, 2, 3, 4, 5, 6),
    "earlier_run": "old",
}


@pytest.mark.parametrize("name", [each.name for each in fields(ScoreFields)])
def test_a_name_has_every_score_field(name: str) -> None:
    known = cell_fields(BenchmarkRunSpec.parse(BASE), INSTALLATION)
    changed = replace(known, **{name: OTHER[name]})
    assert json_digest(named_fields(changed)) != json_digest(named_fields(known))


SETTINGS: dict[str, dict[str, Any]] = {
    "bounds of the chart": {"limits": TaskLimits(9, 2, 3, 4, 5, 6)},
    "pack that was read": {"pack_digest": "sha256:" + "2" * 64},
    "reference answers": {"audit": True, "answers": Answers(digest="sha256:" + "2" * 64)},
    "CLI that a run already uses": {"agent_version": "0.9"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_plan_has_what_is_no_field(name: str) -> None:
    base = BASES["provider.secretRef.name"]
    assert plan_digest(base, **SETTINGS[name]) != plan_digest(base)
