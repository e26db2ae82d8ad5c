from __future__ import annotations

from typing import Any

import pytest

from securebench.errors import ConfigErrors, SpecError
from securebench.suite.api import BenchmarkSuiteSpec
from securebench.suite.planning import cells
from support.suite_world import HARNESSES, PACKS, suite_spec

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
