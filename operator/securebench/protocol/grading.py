"""What manifests and the programs of task images both know.

Those programs run alone, without this package: they repeat what they need of it, and a test
compares (tests/unit/run/pods/test_task_programs.py).
"""

from __future__ import annotations

TESTS_INCOMPLETE = "hidden tests did not complete"
"""Said where the candidate of code_completion ended before its tests (contract 14.4)."""

RUNNER_VARIABLE = "SECUREBENCH_PYTEST"
"""Environment variable with the text of the program that counts a repository's tests."""

ROW_VARIABLE = "SECUREBENCH_TESTS"
"""Environment variable that says to this program what a row says of its tests, as JSON."""
