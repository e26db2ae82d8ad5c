"""The text scorers against a second implementation that was written from the contract alone.

The short form compares 2,000 random cases, the long one (``-m slow``) 100,000. ``FUZZ_SEED`` gives
other cases. A difference is shrunk before it is shown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from random import Random

import pytest

from property.reference_scorers import SCORERS, BadTaskError, Score
from property.scorer_cases import CASES, Case
from securebench.benchmark.families.registry import text_verifier
from securebench.benchmark.scorers.result import VerifierConfigurationError

SHORT = {"multiple_choice": 700, "short_answer": 700, "free_response": 600}
LONG = {family: 50 * count for family, count in SHORT.items()}


def product(family: str, case: Case) -> Score | None:
    row, text = case
    verifier = text_verifier(family)
    problem = verifier.configuration_problem(row["input"], row["eval"])
    try:
        result = verifier.verify(text, row["input"], row["eval"])
    except VerifierConfigurationError:
        assert problem is not None
        return None
    assert problem is None
    return Score(result.passed, dict(result.metadata))


def reference(family: str, case: Case) -> Score | None:
    try:
        return SCORERS[family](*case)
    except BadTaskError:
        return None


def smaller(value: object) -> Iterator[object]:
    """Yield values of the same shape with one thing less."""
    if isinstance(value, str | list | tuple):
        for place in range(len(value)):
            if not isinstance(value, tuple):
                yield value[:place] + value[place + 1 :]
            if not isinstance(value, str):
                for less in smaller(value[place]):
                    yield type(value)([*value[:place], less, *value[place + 1 :]])
    elif isinstance(value, dict):
        for key in value:
            yield from ({**value, key: less} for less in smaller(value[key]))


def shrunk(case: Case, is_different: Callable[[Case], bool]) -> Case:
    for less in smaller(case):
        if is_usable(less) and is_different(less):
            return shrunk(less, is_different)
    return case


def is_usable(case: Case) -> bool:
    """Tell whether the row would pass its schema: no blank texts, no empty lists."""
    row, _ = case
    lists = [row["input"].get("choices", "x"), row["eval"].get("accepted_answers", "x")]
    lists += [row["eval"].get("answer", "x")]
    return all(item and not blanks_in(item) for item in lists if isinstance(item, str | list))


def blanks_in(value: str | list[object]) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and not item.strip() for item in items)


def disagree(family: str) -> Callable[[Case], bool]:
    return lambda case: product(family, case) != reference(family, case)


def compare(family: str, count: int) -> None:
    seed = os.environ.get("FUZZ_SEED", "1")
    passed = 0
    for number in range(count):
        row, text = CASES[family](Random(f"{seed} {family} {number}"))  # noqa: S311
        case = (json.loads(json.dumps(row)), text)
        want = reference(family, case)
        if product(family, case) != want:
            least = shrunk(case, disagree(family))
            assert product(family, least) == reference(family, least), f"case {number}: {least!r}"
        passed += want is not None and want.passed
    assert count / 10 < passed < count * 9 / 10, "the cases are no longer near the border"


@pytest.mark.parametrize("family", SHORT)
def test_two_implementations_agree(family: str) -> None:
    compare(family, SHORT[family])


@pytest.mark.slow
@pytest.mark.parametrize("family", LONG)
def test_two_implementations_agree_on_many_cases(family: str) -> None:
    compare(family, LONG[family])


@pytest.mark.parametrize("family", SHORT)
def test_a_wrong_scorer_would_be_noticed(family: str) -> None:
    def flipped(case: Case) -> bool:
        right = reference(family, case)
        wrong = right and right._replace(passed=right.passed or "answer" in case[1])
        return wrong != right

    found = (CASES[family](Random(number)) for number in range(1_000))  # noqa: S311
    first = next(case for case in found if flipped(case))
    assert shrunk(first, flipped)[1] == "answer"
