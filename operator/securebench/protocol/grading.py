"""What manifests and the programs of task images both know.

Those programs run alone, without this package: they repeat what they need of it, and a test
compares (tests/unit/run/pods/test_task_programs.py).
"""

from __future__ import annotations

from enum import StrEnum

TESTS_INCOMPLETE = "hidden tests did not complete"
"""Said where the candidate of code_completion ended before its tests (contract 14.4)."""

RUNNER_VARIABLE = "SECUREBENCH_PYTEST"
"""Environment variable with the text of the program that counts a repository's tests."""

ROW_VARIABLE = "SECUREBENCH_TESTS"
"""Environment variable that says to this program what a row says of its tests, as JSON."""


class Grading(StrEnum):
    """What a verdict rests on; no text that a scorer compared has one."""

    VALUES = "values"
    """Tests of code_completion compared plain values alone."""
    OBJECTS = "objects"
    """An object of the candidate stood between its tests and a value."""
    IN_PROCESS = "in-process"
    """Tests and candidate ran in one interpreter (``tests.isolation: shared``)."""
    TESTS = "tests"
    """Our runner counted the tests, beside which candidate code may have run."""
    EXIT_CODE = "exit-code"
    """Nothing but the exit code of a command or script."""
