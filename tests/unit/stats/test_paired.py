from collections import Counter
from random import Random

import pytest

from securebench.stats.paired import (
    Pair,
    PairedTest,
    detectable_difference,
    mcnemar_exact,
    paired_difference,
)
from securebench.stats.verdicts import TaskVerdicts

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


def test_several_verdicts_are_compared_by_the_bootstrap():
    better = [Pair(TaskVerdicts(4, 1), TaskVerdicts(4, 3))] * 20
    same = [Pair(TaskVerdicts(4, 1), TaskVerdicts(4, 1))] * 20
    found = paired_difference([*better, *same])
    assert (found.test, found.value) == (PairedTest.BOOTSTRAP, 0.25)
    assert found.p_value < 0.01
    assert paired_difference(same).p_value == 1.0


def test_runs_that_do_not_differ():
    found = paired_difference([single(1, 1), single(0, 0)])
    assert (found.value, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_no_common_task():
    assert paired_difference([]) is None


def test_few_tasks_cannot_show_a_difference():
    """Five tasks that all changed one way are not significant, so nothing smaller than 1 is."""
    assert detectable_difference(Counter({0.0: 5})) == 1.0
    assert detectable_difference(Counter({0.0: 600})) == pytest.approx(0.01)


def test_the_detectable_difference_is_found_four_times_in_five():
    random = Random(5)  # noqa: S311 - a simulation

    def run(gain, tasks=400):
        return [single(random.random() < 0.1, random.random() < 0.1 + gain) for _ in range(tasks)]

    gain = paired_difference(run(0.0)).detectable
    found = sum(paired_difference(run(gain)).p_value < 0.05 for _ in range(40))
    assert 24 <= found <= 40
