import importlib.util

import pytest

spec = importlib.util.spec_from_file_location("stats", "/home/dev/stats/stats.py")
stats = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stats)


@pytest.mark.parametrize(
    ("values", "want"),
    [([3], 3), ([3, 1, 2], 2), ([4, 1, 3, 2], 2.5), ([1, 1, 9, 9], 5), ([-5, 10, 0], 0)],
)
def test_median(values, want):
    assert stats.median(values) == want


def test_the_argument_stays_as_it_is():
    values = [3, 1, 2]
    stats.median(values)
    assert values == [3, 1, 2]


def test_an_empty_list():
    with pytest.raises(ValueError):
        stats.median([])
