"""Every scenario folder, side by side in one namespace on the real node."""

from __future__ import annotations

import pytest

from e2e.scenario import Scenario, Starter, scenarios

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_scenario(scenario: Scenario, starter: Starter) -> None:
    starter.require(scenario)
    scenario.check(starter.release)
