from collections import Counter
from math import comb
from random import Random

import pytest

from securebench.stats.intervals import RESAMPLES, binomial, resamples


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
