"""The text scorers against cases whose verdict is known from how they were made.

The short form compares 2,000 random cases, the long one (``-m slow``) 100,000. ``FUZZ_SEED`` gives
other cases.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from property.reference_scorers import CASES
from securebench.benchmark.families.registry import text_verifier

SHORT = {"multiple_choice": 700, "short_answer": 700, "free_response": 600}
LONG = {family: 50 * count for family, count in SHORT.items()}


def compare(family: str, count: int) -> None:
    seed = os.environ.get("FUZZ_SEED", "1")
    verifier = text_verifier(family)
    assert verifier is not None
    passed = 0
    for number in range(count):
        row, text, want = CASES[family](Random(f"{seed} {family} {number}"))  # noqa: S311
        assert verifier.configuration_problem(row["input"], row["eval"]) is None
        result = verifier.verify(text, row["input"], row["eval"])
        assert result.passed is want, f"case {number}: {text!r} for {row}"
        passed += want
    assert count / 10 < passed < count * 9 / 10, "the cases are no longer near the border"


@pytest.mark.parametrize("family", SHORT)
def test_content_decides_in_every_form(family: str) -> None:
    compare(family, SHORT[family])


@pytest.mark.slow
@pytest.mark.parametrize("family", LONG)
def test_content_decides_in_many_forms(family: str) -> None:
    compare(family, LONG[family])


@pytest.mark.parametrize("family", SHORT)
def test_a_scorer_that_goes_by_the_form_would_be_noticed(family: str) -> None:
    cases = [CASES[family](Random(number)) for number in range(300)]  # noqa: S311
    by_form = [("answer" in text.lower()) is want for _, text, want in cases]
    assert 0 < sum(by_form) < len(cases)
