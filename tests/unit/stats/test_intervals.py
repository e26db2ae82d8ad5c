from itertools import combinations
from random import Random

import pytest

from securebench.stats.intervals import Interval, pass_at_k, pass_rate, wilson
from securebench.stats.verdicts import TaskVerdicts, task_kinds


def rounded(interval):
    return None if interval is None else tuple(round(value, 4) for value in interval)


WILSON = {
    # R: prop.test(x, n, correct = FALSE)$conf.int
    (0, 10): (0.0, 0.0, 0.2775),
    (5, 10): (0.5, 0.2366, 0.7634),
    (10, 10): (1.0, 0.7225, 1.0),
    (81, 263): (0.308, 0.2553, 0.3662),
}


@pytest.mark.parametrize("counts", WILSON)
def test_wilson(counts):
    assert rounded(wilson(*counts)) == WILSON[counts]


def test_no_rate_without_verdicts():
    assert wilson(0, 0) is None


@pytest.mark.parametrize("verified", [1, 3, 100, 10_000])
def test_the_interval_holds_its_value(verified):
    for passed in {0, 1, verified // 2, verified}:
        interval = wilson(passed, verified)
        assert isinstance(interval, Interval)
        assert 0.0 <= interval.low <= interval.value + 1e-12
        assert interval.value <= interval.high + 1e-12 <= 1.0 + 2e-12


def kinds(*verdicts):
    return task_kinds(TaskVerdicts(*each) for each in verdicts)


def test_one_verdict_per_task_has_the_interval_of_wilson():
    assert pass_rate(kinds((1, 1), (1, 0), (1, 1), (0, 0))) == wilson(2, 3)
    assert pass_at_k(kinds((1, 1), (1, 0), (1, 1)), 1) == wilson(2, 3)


def test_no_verdict_no_estimate():
    assert pass_rate(kinds()) is None
    assert pass_rate(kinds((0, 0))) is None
    assert pass_at_k(kinds((1, 1)), 2) is None


def test_attempts_of_one_task_belong_together():
    """20 tasks of 10 equal attempts say as much as 20 attempts, not as 200."""
    found = pass_rate(kinds(*[(10, 10)] * 10, *[(10, 0)] * 10))
    tasks, attempts = wilson(10, 20), wilson(100, 200)
    assert found.value == 0.5
    assert found.high - found.low > 2 * (attempts.high - attempts.low)
    assert found.high - found.low == pytest.approx(tasks.high - tasks.low, abs=0.05)


def test_tasks_that_all_agree_still_have_an_interval():
    found = pass_rate(kinds(*[(4, 4)] * 10))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == wilson(10, 10).low


def test_the_same_verdicts_have_the_same_interval():
    one, two = [(3, 1), (3, 3), (2, 0)], [(2, 0), (3, 3), (3, 1)]
    assert pass_rate(kinds(*one)) == pass_rate(kinds(*two))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("passed", range(6))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(k, passed):
    """Against counting: all ways to choose k of 5 attempts."""
    attempts = [True] * passed + [False] * (5 - passed)
    choices = list(combinations(attempts, k))
    want = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(kinds((5, passed)), k).value == pytest.approx(want)


def test_pass_at_k_leaves_out_tasks_with_fewer_verdicts():
    assert pass_at_k(kinds((4, 2), (1, 0)), 2) == pass_at_k(kinds((4, 2)), 2)


def test_the_bootstrap_covers_the_truth():
    """Tasks of a known mean difficulty: of 60 intervals, about 57 hold it."""
    random = Random(7)  # noqa: S311 - a simulation

    def run():
        chances = [random.choice((0.1, 0.5, 0.9)) for _ in range(60)]
        return kinds(*((4, sum(random.random() < each for _ in range(4))) for each in chances))

    held = sum(low <= 0.5 <= high for _, low, high in (pass_rate(run()) for _ in range(60)))
    assert 51 <= held <= 60
