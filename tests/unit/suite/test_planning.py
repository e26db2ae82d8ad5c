"""Which runs a suite plans, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from securebench.errors import ConfigErrors, SpecError
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
from securebench.suite.rounds import schedule_times
from support.suite_world import HARNESSES, PACKS, suite_spec

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


MODELS = [{"name": "large", "model": "gpt-5"}, {"name": "small", "model": "gpt-5-mini"}]


def ids(**matrix: Any) -> list[str]:
    whole = {"packs": PACKS[:1], "harnesses": HARNESSES, **matrix}
    return [str(cell.id) for cell in cells(BenchmarkSuiteSpec.parse(suite_spec(matrix=whole)))]


def test_the_matrix_is_a_product_in_order() -> None:
    assert ids() == ["smoke/a", "smoke/b"]
    assert ids(models=MODELS, harnesses=HARNESSES[:1]) == ["smoke/a/large", "smoke/a/small"]


def test_cells_are_excluded_by_any_names_and_included_by_all() -> None:
    assert ids(exclude=[{"harness": "a"}]) == ["smoke/b"]
    assert ids(models=MODELS, exclude=[{"harness": "a", "model": "small"}]) == [
        "smoke/a/large", "smoke/b/large", "smoke/b/small",
    ]  # fmt: skip
    assert ids(
        models=MODELS, exclude=[{"harness": "b"}], include=[{"pack": "smoke", "harness": "b"}]
    ) == ["smoke/a/large", "smoke/a/small", "smoke/b"]


@pytest.mark.parametrize(
    ("matrix", "want"),
    [
        ({"exclude": [{}]}, ["spec.matrix: exclude leaves no cell"]),
        (
            {"include": [{"pack": "smoke", "harness": "a"}]},
            ["spec.matrix: cell smoke/a is there twice: leave it out of include"],
        ),
        (
            {"exclude": [{"harness": "c"}], "include": [{"pack": "x", "harness": "a"}]},
            [
                "spec.matrix.include[0].pack: the matrix has no pack 'x'",
                "spec.matrix.exclude[0].harness: the matrix has no harness 'c'",
            ],
        ),
        (
            {
                "packs": [{**PACKS[0], "name": f"p{index}"} for index in range(16)],
                "harnesses": [{**HARNESSES[0], "name": f"h{index}"} for index in range(5)],
            },
            ["spec.matrix has 80 cells, a suite at most 64: exclude some, or make two suites"],
        ),
    ],
)
def test_what_makes_no_sense_is_named(matrix: dict[str, Any], want: list[str]) -> None:
    with pytest.raises(ConfigErrors) as caught:
        ids(**matrix)
    assert str(caught.value).splitlines() == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"matrix": {"packs": [], "harnesses": HARNESSES}}, "spec.matrix.packs: "),
        (
            {"matrix": {"packs": [PACKS[0], PACKS[0]], "harnesses": HARNESSES}},
            "spec.matrix: packs: two have the name 'smoke'",
        ),
        ({"runPolicy": "Always"}, "spec: runPolicy Always needs a schedule"),
        ({"timeZone": "UTC"}, "spec: timeZone and startingDeadlineSeconds need a schedule"),
        ({"gates": {"notWorse": {}}}, "spec: gates.notWorse needs a baseline"),
        ({"gates": {"maxCostMicroDollars": 1}}, "spec.gates: gates.maxCostMicroDollars needs"),
        ({"baseline": {"run": "a", "suite": "b"}}, "spec.baseline: exactly one of run, suite"),
        ({"gates": {"minPassRate": "1.5"}}, "must be a decimal from 0 to 1"),
    ],
)
def test_a_spec_that_does_not_hold_is_refused(spec: dict[str, Any], want: str) -> None:
    with pytest.raises(SpecError) as caught:
        BenchmarkSuiteSpec.parse(suite_spec(**spec))
    assert want in str(caught.value)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def text(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spec(schedule: str, zone: str | None = None, deadline: int | None = None) -> BenchmarkSuiteSpec:
    given = {"schedule": schedule, "timeZone": zone, "startingDeadlineSeconds": deadline}
    return BenchmarkSuiteSpec.parse(
        suite_spec(**{key: value for key, value in given.items() if value is not None})
    )


BERLIN = "Europe/Berlin"
NIGHTLY = "0 2 * * *"
HALF_PAST_TWO = "30 2 * * *"
CASES = {
    # schedule, zone, deadline, handled, now, due, following
    "due": (NIGHTLY, None, None, "2026-11-24T12:00Z", "2026-11-25T12:00Z",
            "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "not yet": (NIGHTLY, None, None, "2026-11-25T02:00Z", "2026-11-25T12:00Z",
                "", "2026-11-26T02:00:00Z"),
    "at the second": (NIGHTLY, None, None, "2026-11-24T12:00Z", "2026-11-25T02:00Z",
                      "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "many missed": (NIGHTLY, None, None, "2026-10-01T02:00Z", "2026-11-25T12:00Z",
                    "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "within the deadline": (NIGHTLY, None, 60, "2026-11-24T12:00Z", "2026-11-25T02:01Z",
                            "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "beyond the deadline": (NIGHTLY, None, 60, "2026-11-24T12:00Z", "2026-11-25T02:01:01Z",
                            "", "2026-11-26T02:00:00Z"),
    "zone": (NIGHTLY, BERLIN, None, "2026-11-24T12:00Z", "2026-11-25T12:00Z",
             "2026-11-25T01:00:00Z", "2026-11-26T01:00:00Z"),
    "an hour that is left out": (HALF_PAST_TWO, BERLIN, None, "2026-03-28T12:00Z",
                                 "2026-03-29T12:00Z", "2026-03-29T01:00:00Z",
                                 "2026-03-30T00:30:00Z"),
    "an hour that is there twice fires once": (
        HALF_PAST_TWO, BERLIN, None, "2026-10-25T00:30Z", "2026-10-25T01:45Z", "",
        "2026-10-26T01:30:00Z"),
    "clock set back": (NIGHTLY, None, None, "2026-11-27T02:00Z", "2026-11-25T12:00Z",
                       "", "2026-11-28T02:00:00Z"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_times(name: str) -> None:
    schedule, zone, deadline, handled, now, due, following = CASES[name]
    found = schedule_times(spec(schedule, zone, deadline), seconds(handled), seconds(now))
    assert (text(found.due), text(found.following)) == (due, following)
    assert found.is_clock_back == (name == "clock set back")


@pytest.mark.parametrize(
    ("schedule", "zone", "want"),
    [
        ("0 2 30 2 *", None, "is not valid or never fires (Bad day-of-month)"),
        ("0 2 31 4,6 *", None, "never fires"),
        ("0 0 2 * * *", None, "has not 5 fields"),
        ("0 25 * * *", None, "Bad hour"),
        ("@nightly x", None, "has not 5 fields"),
        (NIGHTLY, "Europe/Bielefeld", "there is no time zone 'Europe/Bielefeld'"),
        (NIGHTLY, "../../etc/passwd", "there is no time zone"),
    ],
)
def test_what_never_fires_is_refused(schedule: str, zone: str | None, want: str) -> None:
    with pytest.raises(SpecError) as caught:
        schedule_times(spec(schedule, zone), 0.0, seconds("2026-11-25T12:00Z"))
    assert want in str(caught.value)
