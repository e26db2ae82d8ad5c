"""What gates say: one each, and all together."""

from __future__ import annotations

from typing import NamedTuple

from securebench.run.api.status import ConditionStatus
from securebench.suite.api.reasons import SuiteReason


class GateVerdict(NamedTuple):
    """What one gate says.

    Args:
        passed: None if it cannot be decided.
        message: Which gate, why, and on what.
    """

    passed: bool | None
    message: str


def gate_passed(message: str) -> GateVerdict:
    """Return the verdict of a gate to which the results keep."""
    return GateVerdict(passed=True, message=message)


def gate_failed(message: str) -> GateVerdict:
    """Return the verdict of a gate to which they do not."""
    return GateVerdict(passed=False, message=message)


def gate_undecided(message: str) -> GateVerdict:
    """Return the verdict of a gate that cannot be decided."""
    return GateVerdict(passed=None, message=message)


class GateReport(NamedTuple):
    """What all gates say, as the condition ``GatesPassed``.

    Args:
        status: False if one has failed, Unknown if one cannot be decided.
        reason: Reason of the condition.
        message: Message of the condition.
    """

    status: ConditionStatus
    reason: SuiteReason
    message: str
