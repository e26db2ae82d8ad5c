from __future__ import annotations

from collections import Counter

import pytest

from securebench.run.records.reading import counts_line, failure, reason_counts


def record(**fields: object) -> dict[str, object]:
    return {
        "task_type": "terminal_task",
        "passed": False,
        "outcome": "scored",
        "producer_metadata": {"exit_code": 0},
        "producer_stdout": "",
        "producer_stderr": "",
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "want"),
    {
        "a wrong answer": (
            {"task_type": "short_answer", "candidate_text": " Ly\non "},
            ("wrong_answer", 'the answer was "Ly on"'),
        ),
        "a check that failed": (
            {
                "verifier_metadata": {"exit_code": 2},
                "verifier_stdout": "1 failed\n\n",
                "verifier_stderr": "",
                "producer_stderr": "of the agent",
            },
            ("checks_failed", "exit code 2; stdout: 1 failed"),
        ),
        "a reward that is too small": (
            {
                "score": 0.5,
                "verifier_metadata": {"exit_code": 0, "threshold": 1.0},
                "verifier_stdout": "1 of 2\n",
            },
            (
                "checks_failed",
                "the score is 0.5, needed are 1; exit code 0; stdout: 1 of 2",
            ),
        ),
        "what pytest found, not that pytest failed": (
            {
                "verifier_metadata": {"exit_code": 2},
                "verifier_stdout": "== ERRORS\nE   No module named 'fib'\nE   x\n= 1 error in 1s =",
                "verifier_stderr": "securebench: pytest ended with exit code 2\n",
            },
            ("checks_failed", "exit code 2; stdout: No module named 'fib'"),
        ),
        "our own words where there are no others": (
            {"verifier_metadata": {"exit_code": 1}, "verifier_stderr": "securebench: it is late\n"},
            ("checks_failed", "exit code 1; stderr: securebench: it is late"),
        ),
        "a check of what an agent left that failed itself": (
            {
                "verifier_metadata": {"exit_code": 1},
                "verifier_stderr": "cat: None",
                "producer_metadata": {"exit_code": 3},
                "producer_stderr": "no luck\n",
            },
            (
                "checks_failed",
                "exit code 1; stderr: cat: None; the agent ended with exit code 3, stderr: no luck",
            ),
        ),
        "exit 3 and nothing printed": (
            {
                "outcome": "agent",
                "failure_reason": "empty_candidate",
                "failure_message": "the candidate is empty",
                "producer_metadata": {"exit_code": 3},
                "producer_stderr": "Traceback\nKeyError: 'x'\n",
            },
            ("empty_candidate", "the candidate is empty; exit code 3; stderr: KeyError: 'x'"),
        ),
        "a message that says it already": (
            {
                "outcome": "agent",
                "failure_reason": "empty_candidate",
                "failure_message": "exit code 3; stderr: boom",
                "producer_metadata": {"exit_code": 3},
                "producer_stderr": "boom",
            },
            ("empty_candidate", "exit code 3; stderr: boom"),
        ),
        "a patch that is refused before any check": (
            {
                "outcome": "agent",
                "failure_reason": "candidate_patch_policy_violation",
                "failure_message": "tests/x may not be changed",
                "verifier_metadata": {"exit_code": None},
            },
            ("candidate_patch_policy_violation", "tests/x may not be changed; exit code 0"),
        ),
        "a broken verifier": (
            {
                "outcome": "verifier",
                "passed": None,
                "failure_reason": "verifier_configuration",
                "verifier_metadata": {"exit_code": 127},
                "verifier_stderr": "check: not found",
            },
            ("verifier_configuration", "exit code 127; stderr: check: not found"),
        ),
        "a lost Pod says nothing of the agent": (
            {
                "outcome": "infrastructure",
                "passed": None,
                "failure_reason": "pod_lost",
                "failure_message": "the Pod vanished",
                "producer_stdout": "A",
            },
            ("pod_lost", "the Pod vanished"),
        ),
        "no harness ended": (
            {"outcome": "cancelled", "passed": None, "producer_metadata": {"exit_code": None}},
            ("cancelled", ""),
        ),
        "no verifier": ({"outcome": None, "passed": None}, ("no_verifier", "")),
        "a long line": (
            {"outcome": "agent", "failure_reason": "r", "producer_stderr": "y" * 5000},
            ("r", f"exit code 0; stderr: {'y' * 300}"),
        ),
    }.values(),
)
def test_why_there_is_no_pass(fields: dict[str, object], want: tuple[str, str]) -> None:
    assert failure(record(**fields)) == want


def test_a_pass_has_no_reason() -> None:
    assert failure(record(passed=True)) is None


def test_attempts_without_a_pass_are_counted_by_reason() -> None:
    found = reason_counts(
        [
            record(passed=True),
            record(),
            record(),
            record(failure_reason="oom_killed"),
            record(failure_reason="a"),
        ]
    )
    assert found == Counter({"checks_failed": 2, "oom_killed": 1, "a": 1})
    assert counts_line(5, found) == (
        "4 of 5 attempts without a pass: checks_failed 2, a 1, oom_killed 1"
    )
