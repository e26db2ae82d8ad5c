"""All groups: cases whose honest run is the plain work of a family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from threats.honest import CODE, REPO, TERMINAL, TEXT, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Trial

SHORT: Mapping[Trial, str] = {
    CODE: "A-040 A-045 A-060 A-099 A-168 A-197 A-201",
    REPO: "A-040 A-123 A-303",
    TERMINAL: (
        "A-002 A-010 A-027 A-046 A-063 A-081 A-126 A-127 A-148 A-149 A-150 A-153 "
        "A-155 A-159 A-168 A-182 A-184 A-185 A-186 A-194 A-197 A-201"
    ),
    TEXT: "A-099 A-126 A-149 A-320",
}
LONG: Mapping[Trial, str] = {
    CODE: "A-033",
    REPO: "A-003 A-018 A-042 A-110 A-304 A-435",
    TERMINAL: (
        "A-007 A-009 A-015 A-037 A-071 A-110 A-147 A-156 A-160 A-165 A-166 A-171 A-198 A-412"
    ),
    TEXT: "A-015 A-017 A-171 A-198",
}
"""By the trial that has to pass: the cases of the short form, and the other ones."""


def honest_runs(table: Mapping[Trial, str], *marks: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(trial, id=f"{case} {trial.name}", marks=[*marks, pytest.mark.trials(trial)])
        for trial, cases in table.items()
        for case in cases.split()
    ]


@pytest.mark.parametrize("trial", [*honest_runs(SHORT, pytest.mark.short), *honest_runs(LONG)])
def test_honest(arena: Arena, trial: Trial) -> None:
    assert_passed(arena, trial)
