"""F2, F3: what a candidate hands in, what crosses to the tests, and what it writes itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from threats.kit.judged import Run, runs

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("run", runs(CASES, "attack"))
def test_attack(run: Run) -> None:
    run()


@pytest.mark.parametrize("run", runs(CASES, "twin"))
def test_twin(run: Run) -> None:
    run()


@pytest.mark.parametrize("run", runs(CASES, "honest"))
def test_honest(run: Run) -> None:
    run()
