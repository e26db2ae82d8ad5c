"""The sign-flip test, against all assignments of signs and the exact McNemar test."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import comb, erfc, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.stats import paired as sign_flips
from securebench.stats.paired import mcnemar_exact, sign_flip

LARGE = 10**12
"""Changes of this size have no sum twice."""


@settings(deadline=None)
@given(st.lists(st.integers(-6, 6) | st.integers(-LARGE, LARGE), max_size=9))
def test_it_counts_all_assignments_of_signs(changes: list[int]) -> None:
    sizes = [abs(change) for change in changes]
    signed = product(*((size, -size) for size in sizes))
    as_large = sum(abs(sum(each)) >= abs(sum(changes)) for each in signed)
    assert sign_flip(Counter(changes)) == pytest.approx(as_large / 2 ** len(changes), rel=1e-12)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (9, 40), (300, 250), (0, 1_000)])
def test_equal_sizes_are_the_exact_mcnemar_test(gained: int, lost: int) -> None:
    found = sign_flip({7: gained, -7: lost, 0: 5})
    assert found == pytest.approx(mcnemar_exact(gained, lost), rel=1e-9)


@pytest.mark.parametrize(
    "sizes", [{-1: 60}, {-1: 20, -2: 20, -3: 20}, {-LARGE - n: 1 for n in range(60)}]
)
def test_changes_of_one_sign_are_as_rare_as_can_be_whatever_their_sizes(
    sizes: dict[int, int],
) -> None:
    """Only two of all assignments are as large."""
    assert sign_flip(sizes) == pytest.approx(mcnemar_exact(60, 0), rel=1e-9)


def test_two_sizes_are_counted_together() -> None:
    """100 losses of 1 and 50 of 2, of which 90 and 45 remain: a sum over two binomials."""
    want = sum(
        comb(100, one) * comb(50, two)
        for one in range(101)
        for two in range(51)
        if one + 2 * two <= 20
    )
    found = sign_flip({-1: 90, 1: 10, -2: 45, 2: 5})
    assert found == pytest.approx(2 * want / 2**150, rel=1e-9)
    assert found < 1e-20


def test_ten_thousand_tasks_of_three_attempts_are_counted() -> None:
    """All sizes equally often and no trend, which takes longest: as the normal distribution."""
    random = Random(1)  # noqa: S311 - a simulation
    changes = Counter(random.choice((-3, -2, -1, 1, 2, 3)) for _ in range(10_000))
    seen = abs(sum(change * count for change, count in changes.items()))
    variance = sum(change**2 * count for change, count in changes.items())
    # Sums are apart by 2, so half of that is taken off.
    assert sign_flip(changes) == pytest.approx(erfc((seen - 1) / sqrt(2 * variance)), abs=1e-4)


def irregular(random: Random, count: int, lost: float) -> Counter[int]:
    """Return changes of so many sizes that their sums cannot be counted."""
    sizes = [random.randrange(LARGE, 2 * LARGE) for _ in range(count)]
    return Counter(-size if random.random() < lost else size for size in sizes)


def test_what_cannot_be_counted_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)  # noqa: S311 - a simulation
    changes = Counter(random.choice((-3, -2, -1, 1, 1, 2, 3)) for _ in range(60))
    counted = sign_flip(changes)
    monkeypatch.setattr(sign_flips, "MAX_SUMS", 0)
    drawn = sign_flip(changes)
    assert drawn != counted
    assert drawn == pytest.approx(counted, abs=0.02)


def test_what_cannot_be_counted_still_has_a_small_p_value() -> None:
    """No draw is as large; the bound is larger than the p-value that all of them would give."""
    found = sign_flip(irregular(Random(4), 200, lost=0.9))  # noqa: S311 - a simulation
    assert mcnemar_exact(20, 180) < found < 1e-20
