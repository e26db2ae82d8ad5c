"""Dangerous verifier commands (contract 14.7)."""

import pytest

from securebench.benchmark.scorers.dangerous_commands import (
    VerificationPolicy,
    decide,
    denial_result,
)
from securebench.benchmark.scorers.result import VerifierConfigurationError

OPEN = VerificationPolicy(disallow_dangerous_commands=False)
DENYING = VerificationPolicy(disallow_dangerous_commands=False, deny_commands=("chroot",))


def test_nothing_needed_is_allowed_without_capability():
    decision = decide([], VerificationPolicy(deny_commands=("chroot",)))
    assert decision.allowed
    assert decision.capabilities == ()


def test_default_policy_refuses():
    decision = decide(["chroot"], VerificationPolicy())
    assert not decision.allowed
    assert decision.reason == "disabled by tester policy"
    assert decision.denied_commands == ("chroot",)


def test_deny_list_comes_first():
    both = VerificationPolicy(deny_commands=("chroot",))
    for policy in (DENYING, both):
        decision = decide(["chroot"], policy)
        assert not decision.allowed
        assert decision.reason == "denied by tester policy: chroot"


def test_open_policy_adds_the_mapped_capability():
    decision = decide(["chroot"], OPEN)
    assert decision.allowed
    assert decision.capabilities == ("SYS_CHROOT",)
    assert decision.denied_commands == ()


def test_unknown_command_is_a_configuration_error():
    with pytest.raises(VerifierConfigurationError, match="must be one of: chroot"):
        decide(["mount"], OPEN)


def test_denial_record():
    decision = decide(["chroot"], DENYING)
    result = denial_result("terminal_task", decision, ["chroot"], DENYING)
    assert not result.passed
    assert result.stderr.count("\n") == 1
    assert "chroot" in result.stderr
    assert result.metadata == {
        "verifier": "terminal_task",
        "failure_reason": "verifier_dangerous_command_denied",
        "denied_command": "chroot",
        "denied_commands": ["chroot"],
        "denial_reason": "denied by tester policy: chroot",
        "needed_commands": ["chroot"],
        "tester_disallow_dangerous_commands": False,
        "tester_denied_commands": ["chroot"],
        "exit_code": None,
        "phase": "checker",
    }
