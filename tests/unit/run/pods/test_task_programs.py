"""Programs of task images stand alone; what they repeat of the operator's is the same."""

import sys

from securebench.grading.checks import pytest_runner
from securebench.grading.code import judging, plain
from securebench.protocol import grading


def test_words_of_tests_that_did_not_end():
    assert judging.INCOMPLETE == grading.TESTS_INCOMPLETE


def test_variable_with_the_runner():
    assert pytest_runner.SOURCE_VARIABLE == grading.RUNNER_VARIABLE


def test_every_module_that_the_tests_keep_can_be_declared():
    assert set(sys.stdlib_module_names) >= plain.SAFE_MODULES
