"""Paired comparisons."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import comb, erfc, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.stats import paired as sign_flips
from securebench.stats.intervals import RESAMPLES, TaskVerdicts, binomial, resamples
from securebench.stats.paired import (
    Pair,
    PairedTest,
    RateChanges,
    changes_of,
    detectable_difference,
    holm,
    mcnemar_exact,
    newcombe,
    paired_difference,
    sign_flip,
)

MCNEMAR = {
    # R: binom.test(gained, gained + lost)$p.value
    (0, 0): 1.0,
    (5, 0): 0.0625,
    (6, 0): 0.03125,
    (10, 2): 0.03857,
    (2, 10): 0.03857,
    (30, 20): 0.20263,
}


def single(before, after):
    return Pair(TaskVerdicts(1, before), TaskVerdicts(1, after))


@pytest.mark.parametrize("counts", MCNEMAR)
def test_mcnemar(counts):
    assert mcnemar_exact(*counts) == pytest.approx(MCNEMAR[counts], abs=1e-5)


def test_single_verdicts_are_compared_by_mcnemar():
    pairs = [single(0, 1)] * 10 + [single(1, 0)] * 2 + [single(1, 1)] * 20
    found = paired_difference(pairs)
    assert (found.tasks, found.test) == (32, PairedTest.MCNEMAR)
    assert found.value == pytest.approx(0.25)
    assert found.p_value == mcnemar_exact(10, 2)
    assert found.low < 0.25 < found.high


NEWCOMBE = {
    # Both pass, second only, first only, neither: Newcombe (1998), and statsmodels' Wilson joined.
    (36, 12, 2, 0): (0.2, 0.0569, 0.3404),
    (43, 0, 1, 0): (-0.0227, -0.1181, 0.0597),
    (53, 16, 8, 9): (0.0930, -0.0201, 0.2039),
}


@pytest.mark.parametrize("table", NEWCOMBE)
def test_newcombe(table):
    cells = zip(table, [(1, 1), (0, 1), (1, 0), (0, 0)], strict=True)
    found = newcombe([single(*cell) for count, cell in cells for _ in range(count)])
    assert tuple(round(value, 4) for value in found) == NEWCOMBE[table]


def test_several_verdicts_are_compared_by_flipped_signs():
    better = [Pair(TaskVerdicts(4, 1), TaskVerdicts(4, 3))] * 20
    same = [Pair(TaskVerdicts(4, 1), TaskVerdicts(4, 1))] * 20
    found = paired_difference([*better, *same])
    assert (found.test, found.value) == (PairedTest.SIGN_FLIP, 0.25)
    assert found.p_value < 0.01
    assert paired_difference(same).p_value == 1.0


def test_two_tasks_show_nothing():
    """However often each was tried."""
    found = paired_difference([Pair(TaskVerdicts(50, 0), TaskVerdicts(50, 50))] * 2)
    assert found.p_value > 0.4
    assert found.low < 0.5
    assert found.detectable is None


@pytest.mark.parametrize("counts", MCNEMAR)
def test_flipped_signs_of_single_verdicts_are_mcnemar(counts):
    gained, lost = counts
    found = sign_flip(Counter({1: gained, -1: lost, 0: 5}))
    assert found == pytest.approx(MCNEMAR[counts], abs=1e-5)


@pytest.mark.parametrize("tasks", [3, 5, 8, 20])
def test_runs_that_do_not_differ_are_seldom_said_to(tasks):
    random = Random(tasks)  # noqa: S311 - a simulation

    def verdicts():
        chance = random.choice((0.2, 0.5, 0.8))
        return [TaskVerdicts(2, sum(random.random() < chance for _ in range(2))) for _ in "ab"]

    runs = 300 if tasks <= 8 else 30
    p_values = [
        sign_flip(changes_of(Pair(*verdicts()) for _ in range(tasks)).counts) for _ in range(runs)
    ]
    assert sum(p_value <= 0.05 for p_value in p_values) <= 0.08 * runs


def test_a_second_attempt_on_an_unchanged_task_changes_nothing():
    gained = [single(0, 1)] * 4
    once = paired_difference([*gained, single(1, 1)])
    twice = paired_difference([*gained, Pair(TaskVerdicts(2, 2), TaskVerdicts(2, 2))])
    assert once.p_value == twice.p_value == 0.125


def test_runs_that_do_not_differ_may_still_differ_on_other_tasks():
    found = paired_difference([single(1, 1), single(0, 0)])
    assert (found.value, found.p_value) == (0.0, 1.0)
    assert found.low == pytest.approx(-found.high)
    assert found.high > 0.5
    many = paired_difference([Pair(TaskVerdicts(4, 2), TaskVerdicts(4, 2))] * 40)
    assert 0.05 < many.high < 0.5


def test_changes_that_are_equal_as_fractions_have_the_interval_of_equal_ones():
    """As floats, 1 - 2/3 is not 1/3."""
    low = [Pair(TaskVerdicts(3, 0), TaskVerdicts(3, 1))] * 15
    high = [Pair(TaskVerdicts(3, 2), TaskVerdicts(3, 3))] * 15
    found = paired_difference([*low, *high])
    assert found[1:4] == newcombe([*low, *high])
    assert found[1:4] == pytest.approx((1 / 3, 0.142, 0.485), abs=1e-3)


def test_no_common_task():
    assert paired_difference([]) is None


def test_few_tasks_cannot_show_a_difference():
    """Five tasks that all changed one way are not significant; six are."""

    def unchanged(tasks):
        return detectable_difference(RateChanges(Counter({0: tasks}), 1))

    assert unchanged(5) is None
    assert unchanged(6) == 1.0
    assert unchanged(600) == pytest.approx(0.0131, abs=1e-4)


def test_the_detectable_difference_is_found_four_times_in_five():
    random = Random(5)  # noqa: S311 - a simulation

    def run(gain, tasks=400):
        return [single(random.random() < 0.1, random.random() < 0.1 + gain) for _ in range(tasks)]

    gain = paired_difference(run(0.0)).detectable
    found = sum(paired_difference(run(gain)).p_value < 0.05 for _ in range(60))
    assert 40 <= found <= 58


HOLM = {
    "none": ([], []),
    "one": ([0.04], [0.04]),
    "in any order": ([0.03, 0.01, 0.04], [0.06, 0.03, 0.06]),
    "never above 1": ([0.9, 0.5], [1.0, 1.0]),
    "equal ones": ([0.02, 0.02], [0.04, 0.04]),
}


@pytest.mark.parametrize("case", HOLM)
def test_several_tests_are_corrected(case):
    """As R's p.adjust(method = "holm") has them."""
    p_values, corrected = HOLM[case]
    assert holm(p_values) == pytest.approx(corrected)


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


@pytest.mark.parametrize(("draws", "part", "whole"), [(4, 1, 3), (5, 3, 4), (3, 1, 2)])
def test_binomial(draws, part, whole):
    """Against the probabilities: the chi-square statistic stays below its 99.9 % quantile."""
    random, trials, share = Random(3), 4_000, part / whole  # noqa: S311 - a simulation
    found = Counter(binomial(random, draws, part, whole) for _ in range(trials))
    wanted = [
        trials * comb(draws, count) * share**count * (1 - share) ** (draws - count)
        for count in range(draws + 1)
    ]
    statistic = sum((found[count] - want) ** 2 / want for count, want in enumerate(wanted))
    assert statistic < 20.6


def test_certain_chances():
    random = Random(1)  # noqa: S311 - a simulation
    assert binomial(random, 9, 5, 5) == 9
    assert binomial(random, 9, 0, 5) == 0
    assert binomial(random, 0, 1, 5) == 0


def test_resamples_draw_as_many_items_as_there_are():
    counts = Counter({(1, 0): 700, (1, 1): 200, (3, 2): 100, (9, 9): 0})
    drawn = list(resamples(counts))
    assert len(drawn) == RESAMPLES
    assert {sample.total() for sample in drawn} == {1_000}
    assert {kind for sample in drawn for kind in sample} == {(1, 0), (1, 1), (3, 2)}
    for kind in [(1, 0), (1, 1), (3, 2)]:
        mean = sum(sample[kind] for sample in drawn) / RESAMPLES
        assert mean == pytest.approx(counts[kind], rel=0.01)
