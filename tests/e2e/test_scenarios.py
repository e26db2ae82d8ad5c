"""Every scenario folder, side by side in one namespace on the real node."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from e2e.scenario import Scenario, Starter, scenarios

pytestmark = pytest.mark.e2e


LONG = ("code-attacks",)
"""`make threats` runs them: the short threat cases have one of each of their kinds."""


def marked(scenario: Scenario) -> ParameterSet:
    marks = [pytest.mark.slow] if scenario.name in LONG else []
    return pytest.param(scenario, id=scenario.name, marks=marks)


@pytest.mark.parametrize("scenario", [marked(each) for each in scenarios()])
def test_scenario(scenario: Scenario, starter: Starter) -> None:
    starter.require(scenario)
    scenario.check(starter.release)
