"""What makes a new run of a cell, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.run.plan.model import TaskLimits
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import BenchmarkSuiteSpec
from securebench.suite.planning import (
    PackContent,
    PlannedRun,
    SuiteIdentity,
    Trigger,
    cells,
    is_same_work,
    plan_runs,
)

INSTALLATION = ScoreSettings(TaskLimits(1, 2, 3, 4, 5, 6), {"codex": {"1.0": "i", "latest": "1.0"}})
PACK = PackContent("sha256:" + "a" * 64, "sha256:" + "b" * 64)
CODEX = {"type": "codex", "config": {"model": "gpt-5"}}
NOP = {"type": "oracle"}


def planned(
    *,
    harness: dict[str, Any] = CODEX,
    pack: dict[str, Any] | None = None,
    content: PackContent = PACK,
    installation: ScoreSettings = INSTALLATION,
    trigger: Trigger = Trigger(),  # noqa: B008 - immutable
    **spec: Any,
) -> PlannedRun:
    provider = {"provider": {"secretRef": {"name": "key"}}} if harness["type"] == "codex" else {}
    matrix = {
        "packs": [{"name": "p", "pack": pack or {"volume": {"path": "p"}}}],
        "harnesses": [{"name": "h", "harness": harness, **provider}],
    }
    parsed = BenchmarkSuiteSpec.parse({"matrix": matrix, **spec})
    suite = SuiteIdentity("s", "uid")
    plan = plan_runs(suite, parsed, cells(parsed), {"p": content}, installation, trigger)
    assert not plan.invalid
    (run,) = plan.runs
    return run


CHANGES: dict[str, dict[str, Any]] = {
    "pack digest": {"content": PACK._replace(digest="sha256:" + "c" * 64)},
    "harness config": {"harness": {"type": "codex", "config": {"model": "gpt-6"}}},
    "version that latest means": {
        "installation": replace(INSTALLATION, overlays={"codex": {"2.0": "i", "latest": "2.0"}})
    },
    "bounds of the chart": {
        "installation": replace(INSTALLATION, limits=TaskLimits(9, 2, 3, 4, 5, 6))
    },
    "attempts": {"attempts": 2},
    "tasks": {"template": {"taskSelector": {"limit": 3}}},
    "resources": {"template": {"resources": {"limits": {"memory": "2Gi"}}}},
    "isolation": {"template": {"isolation": {"require": "Declared"}}},
    "verification": {"template": {"verification": {"disallowDangerousCommands": False}}},
    "annotation": {"trigger": Trigger(rerun="again")},
    "time of the schedule": {"trigger": Trigger(scheduled="2026-11-25T02:00:00Z")},
}
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "another place of the pack": {"pack": {"configMap": {"name": "p-8d2h"}}},
    "parallelism": {"template": {"parallelism": 9, "infrastructureRetries": 1}},
    "nodes": {"template": {"podTemplate": {"nodeSelector": {"a": "b"}}}},
    "a default spelled out": {
        "harness": {"type": "codex", "config": {"model": "gpt-5", "version": "latest"}}
    },
    "reference answers of no oracle": {"content": PACK._replace(answers="")},
    "gates and limits of the suite": {"gates": {"minPassRate": "0.5"}, "maxConcurrentRuns": 5},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_score_depends_on_changes_the_name(name: str) -> None:
    assert planned(**CHANGES[name]).name != planned().name


@pytest.mark.parametrize("name", SAME)
def test_what_no_score_depends_on_does_not(name: str) -> None:
    assert planned(**SAME[name]).name == planned().name


def test_an_oracle_depends_on_the_reference_answers() -> None:
    other = PACK._replace(answers="sha256:" + "d" * 64)
    assert planned(harness=NOP).name != planned(harness=NOP, content=other).name
    assert planned(harness=NOP).audit


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({}, True),
        ({"parallelism": 50, "suspend": True}, True),
        ({"attempts": 5}, False),
        ({"harness": {"type": "command"}}, False),
        ({"runId": "other"}, False),
        ({"regrade": {"run": "earlier"}}, False),
        ({"resumeFrom": {"run": "earlier"}}, False),
        ({"pack": 7}, False),
    ],
)
def test_a_run_of_that_name_counts_only_with_the_same_work(
    change: dict[str, Any],
    want: bool,  # noqa: FBT001
) -> None:
    run = planned()
    assert is_same_work({**run.spec, **change}, run, INSTALLATION) is want


def test_a_model_of_the_matrix_replaces_that_of_the_harness() -> None:
    matrix = {
        "packs": [{"name": "p", "pack": {"volume": {"path": "p"}}}],
        "harnesses": [{"name": "h", "harness": CODEX, "provider": {"secretRef": {"name": "key"}}}],
        "models": [{"name": "m", "model": "gpt-6"}],
    }
    spec = BenchmarkSuiteSpec.parse({"matrix": matrix})
    (run,) = plan_runs(
        SuiteIdentity("s", "u"), spec, cells(spec), {"p": PACK}, INSTALLATION, Trigger()
    ).runs
    harness: Any = run.spec["harness"]
    assert harness["config"] == {"model": "gpt-6"}
    assert run.cell == "p/h/m"
