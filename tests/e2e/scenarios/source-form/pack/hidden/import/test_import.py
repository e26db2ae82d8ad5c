import os
import sys

sys.path.insert(0, os.environ["SECUREBENCH_WORKSPACE"])


def test_it():
    import solution

    assert solution.answer() == 42
