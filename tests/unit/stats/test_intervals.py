import sys
from itertools import combinations
from random import Random

import pytest

from securebench.stats.intervals import (
    MAX_CONSECUTIVE_K,
    MIN_BOOTSTRAP_TASKS,
    AttemptReward,
    Interval,
    TaskVerdicts,
    mean_reward,
    pass_at_each_k,
    pass_at_k,
    pass_rate,
    reward_text,
    total_reward,
    verdict_counts,
    wilson,
)


def rounded(interval):
    return None if interval is None else tuple(round(value, 4) for value in interval)


WILSON = {
    # R: prop.test(x, n, correct = FALSE)$conf.int
    (0, 10): (0.0, 0.0, 0.2775),
    (5, 10): (0.5, 0.2366, 0.7634),
    (10, 10): (1.0, 0.7225, 1.0),
    (81, 263): (0.308, 0.2553, 0.3662),
}


@pytest.mark.parametrize("shares", WILSON)
def test_wilson(shares):
    assert rounded(wilson(*shares)) == WILSON[shares]


def test_no_rate_without_verdicts():
    assert wilson(0, 0) is None


@pytest.mark.parametrize("verified", [1, 3, 100, 10_000])
def test_the_interval_holds_its_value(verified):
    for passed in {0, 1, verified // 2, verified}:
        interval = wilson(passed, verified)
        assert isinstance(interval, Interval)
        assert 0.0 <= interval.low <= interval.value + 1e-12
        assert interval.value <= interval.high + 1e-12 <= 1.0 + 2e-12


def counts(*verdicts):
    return verdict_counts(TaskVerdicts(*each) for each in verdicts)


def test_one_verdict_per_task_has_the_interval_of_wilson():
    assert pass_rate(counts((1, 1), (1, 0), (1, 1), (0, 0))) == wilson(2, 3)


def test_no_verdict_no_estimate():
    assert pass_rate(counts()) is None
    assert pass_rate(counts((0, 0))) is None
    assert pass_at_each_k(counts((0, 0))) == ()


def test_attempts_of_one_task_belong_together():
    """20 tasks of 10 equal attempts say as much as 20 attempts, not as 200."""
    found = pass_rate(counts(*[(10, 10)] * 10, *[(10, 0)] * 10))
    tasks, attempts = wilson(10, 20), wilson(100, 200)
    assert found.value == 0.5
    assert found.high - found.low > 2 * (attempts.high - attempts.low)
    assert found.high - found.low == pytest.approx(tasks.high - tasks.low, abs=0.05)


def test_tasks_that_all_agree_still_have_an_interval():
    assert pass_rate(counts(*[(4, 4)] * 12)) == wilson(12, 12)
    assert pass_rate(counts(*[(4, 1)] * 12)) == wilson(3, 12)
    assert pass_rate(counts((4, 2))) == wilson(0.5, 1)


EQUAL = {
    "all pass, one with fewer attempts": ([(3, 3)] * 29 + [(2, 2)], wilson(30, 30)),
    "none passes": ([(3, 0)] * 29 + [(2, 0)], wilson(0, 30)),
    "half of them": ([(2, 1)] * 10 + [(4, 2)] * 10, wilson(10, 20)),
}


@pytest.mark.parametrize("case", EQUAL)
def test_tasks_agree_also_with_unequal_numbers_of_attempts(case):
    tasks, want = EQUAL[case]
    assert pass_rate(counts(*tasks)) == want


def test_tasks_that_agree_on_pass_at_k_alone_still_have_an_interval():
    """Two attempts hold a pass in all of them, one attempt in three of four."""
    found = counts(*[(2, 2)] * 10, *[(2, 1)] * 10)
    assert pass_at_k(found, 2).estimate == wilson(20, 20)
    assert pass_at_k(found, 1).estimate != wilson(15, 20)


def test_few_tasks_are_not_resampled():
    """One pass less in two tasks does not make their interval much narrower."""
    few = [(4, 4)] * (MIN_BOOTSTRAP_TASKS - 2) + [(4, 3)]
    share = (4 * len(few) - 1) / (4 * len(few))
    assert pass_rate(counts(*few)) == wilson(share * len(few), len(few))
    assert pass_rate(counts(*few, (4, 4))) != wilson(share * len(few), len(few))


def test_unequal_attempts_count_once_each():
    """The score is the share of verdicts, pass@1 the mean of tasks."""
    found = counts((4, 4), (1, 0))
    assert pass_rate(found).value == 0.8
    assert pass_at_k(found, 1).estimate.value == 0.5


def test_the_same_verdicts_have_the_same_interval():
    one, two = [(3, 1), (3, 3), (2, 0)], [(2, 0), (3, 3), (3, 1)]
    assert pass_rate(counts(*one)) == pass_rate(counts(*two))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("passed", range(6))
def test_pass_at_k_is_the_share_of_choices_with_a_pass(k, passed):
    """Against counting: all ways to choose k of 5 attempts."""
    attempts = [True] * passed + [False] * (5 - passed)
    choices = list(combinations(attempts, k))
    want = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(counts((5, passed)), k).estimate.value == pytest.approx(want)


def test_every_k_is_averaged_over_the_same_tasks():
    """Task by task pass@k rises with k; over changing tasks it might fall."""
    complete = [(3, 1)] * 6 + [(3, 0)] * 6
    found = pass_at_each_k(counts(*complete, (1, 1), (2, 2)))
    assert found == pass_at_each_k(counts(*complete))
    assert [(each.k, each.tasks) for each in found] == [(1, 12), (2, 12), (3, 12)]
    values = [each.estimate.value for each in found]
    assert values == sorted(values)


def test_the_last_k_is_reached_by_at_least_half_of_the_tasks():
    assert [each.k for each in pass_at_each_k(counts((4, 1), (4, 1), (2, 1), (1, 1)))] == [
        1,
        2,
        3,
        4,
    ]
    found = pass_at_each_k(counts((4, 1), (2, 1), (2, 0), (1, 1)))
    assert [(each.k, each.tasks) for each in found] == [(1, 3), (2, 3)]
    assert pass_at_each_k(counts((4, 1), (1, 1), (1, 1))) == ()


def test_pass_at_each_k():
    assert pass_at_each_k(counts((1, 1), (1, 0))) == pass_at_each_k(counts()) == ()
    many = [each.k for each in pass_at_each_k(counts((60, 1)))]
    assert many == [*range(1, MAX_CONSECUTIVE_K + 1), 20, 50, 60]


def test_the_bootstrap_covers_the_truth():
    """Tasks of a known mean difficulty: of 60 intervals, about 57 hold it."""
    random = Random(8)  # noqa: S311 - a simulation

    def run():
        chances = [random.choice((0.1, 0.5, 0.9)) for _ in range(60)]
        return counts(*((4, sum(random.random() < each for _ in range(4))) for each in chances))

    held = sum(low <= 0.5 <= high for _, low, high in (pass_rate(run()) for _ in range(60)))
    assert 54 <= held <= 60


def rewards(*given, attempts=1):
    return [AttemptReward(task, each) for task, each in enumerate(given) for _ in range(attempts)]


MOST = sys.float_info.max
MEANS = {
    "none": ([], None),
    "one": ([0.5], wilson(0.5, 1)),
    "few tasks": ([1, 0, 0.25], wilson(1.25, 3)),
    "pass or fail": ([1] * 8 + [0] * 4, wilson(8, 12)),
    "all agree": ([0.1] * 12, wilson(1.2, 12)),
    "one value beside rounding": ([0.3] * 12 + [0.1 + 0.2], wilson(3.9, 13)),
}


@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_rewards(name):
    given, want = MEANS[name]
    assert rounded(mean_reward(rewards(*given))) == rounded(want)


def test_rewards_of_little_spread_say_more_than_passes_and_failures():
    near = mean_reward(rewards(*[0.4, 0.6] * 10))
    far = mean_reward(rewards(*[0, 1] * 10))
    assert near.value == far.value == 0.5
    assert near.high - near.low < 0.3 * (far.high - far.low)


def test_attempts_of_one_task_are_no_tasks():
    once, often = (mean_reward(rewards(*[0, 1] * 10, attempts=count)) for count in (1, 10))
    assert often == pytest.approx(once)


def test_rewards_beyond_0_and_1_stay_in_their_range():
    found = mean_reward(rewards(*[-3, 42] * 10))
    assert -3 <= found.low < 19.5 < found.high <= 42
    assert found.value == pytest.approx(19.5)


def test_the_order_of_rewards_does_not_matter():
    given = [number * number % 41 / 7 - 2 for number in range(40)]
    assert mean_reward(rewards(*given)) == mean_reward(reversed(rewards(*given)))


HUGE = {
    "largest": [MOST] * 12,
    "both ends": [MOST, -MOST] * 12,
    "smallest": [5e-324] * 12,
    "one among small ones": [0.0] * 20 + [1e308],
}


@pytest.mark.parametrize("name", HUGE)
def test_no_finite_reward_is_too_large(name):
    given = HUGE[name]
    for end in (*mean_reward(rewards(*given)), total_reward(given)):
        assert -MOST <= end <= MOST
    assert len(reward_text(mean_reward(rewards(*given)))) <= 60


def test_the_sum_of_rewards():
    assert total_reward([]) == 0
    assert total_reward([0.1] * 10) == 1
    assert total_reward([1.0, 0.0, 1.0]) == 2
    assert total_reward([-MOST, -MOST]) == -MOST
