"""Commands of a checker that need a capability (contract 14.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.benchmark.scorers.result import VerificationResult, VerifierConfigurationError
from securebench.reasons import FailurePhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CAPABILITIES: Mapping[str, str] = {"chroot": "SYS_CHROOT"}
"""Capability that the verifier container, and never the harness, gets for a command."""

KNOWN_COMMANDS: tuple[str, ...] = tuple(sorted(CAPABILITIES))

FAILURE_REASON = "verifier_dangerous_command_denied"


@dataclass(frozen=True, slots=True)
class VerificationPolicy:
    """What the tester lets checkers do.

    Args:
        disallow_dangerous_commands: Refuse every task that needs a known command.
        deny_commands: Known commands that are refused in any case, without duplicates.
    """

    disallow_dangerous_commands: bool = True
    deny_commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandDecision:
    """Whether a checker may run, and with what.

    Args:
        allowed: Whether the verifier Pod may be launched.
        capabilities: Capabilities to add, sorted; empty when refused.
        denied_commands: Refused commands in the order of the row.
        reason: Why they were refused; empty when allowed.
    """

    allowed: bool
    capabilities: tuple[str, ...] = ()
    denied_commands: tuple[str, ...] = ()
    reason: str = ""


def decide(needed: Sequence[str], policy: VerificationPolicy) -> CommandDecision:
    """Decide whether a checker that needs these commands may run.

    Args:
        needed: ``eval.needed_commands`` of the row; may be empty.
        policy: What the tester allows.

    Raises:
        VerifierConfigurationError: A needed command is not one of the known set.
    """
    for command in needed:
        if command not in CAPABILITIES:
            raise VerifierConfigurationError(
                f"needed_commands must be one of: {', '.join(KNOWN_COMMANDS)}"
            )
    if not needed:
        return CommandDecision(allowed=True)
    denied = tuple(command for command in needed if command in policy.deny_commands)
    if denied:
        reason = f"denied by tester policy: {', '.join(denied)}"
        return CommandDecision(allowed=False, denied_commands=denied, reason=reason)
    if policy.disallow_dangerous_commands:
        return CommandDecision(
            allowed=False, denied_commands=tuple(needed), reason="disabled by tester policy"
        )
    capabilities = tuple(sorted({CAPABILITIES[command] for command in needed}))
    return CommandDecision(allowed=True, capabilities=capabilities)


def denial_result(
    family: str, decision: CommandDecision, needed: Sequence[str], policy: VerificationPolicy
) -> VerificationResult:
    """Return the failed result of a refused check; no sandbox was made for it."""
    commands = ", ".join(decision.denied_commands)
    return VerificationResult(
        passed=False,
        stderr=f"securebench: verifier commands refused ({commands}): {decision.reason}\n",
        metadata={
            "verifier": family,
            "failure_reason": FAILURE_REASON,
            "denied_command": decision.denied_commands[0],
            "denied_commands": list(decision.denied_commands),
            "denial_reason": decision.reason,
            "needed_commands": list(needed),
            "tester_disallow_dangerous_commands": policy.disallow_dangerous_commands,
            "tester_denied_commands": list(policy.deny_commands),
            "exit_code": None,
            "phase": FailurePhase.CHECKER,
        },
    )
