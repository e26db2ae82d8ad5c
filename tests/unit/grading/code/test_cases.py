"""Candidates as agents and attackers write them, judged by tests as authors write them."""

from pathlib import Path

import pytest

from support.judged_cases import assert_judged, read_cases

CASES = read_cases(Path(__file__).parent / "cases")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    assert_judged(CASES[name])
