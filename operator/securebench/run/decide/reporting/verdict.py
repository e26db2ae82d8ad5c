"""How a run ended, as its condition ``Succeeded`` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from securebench.run.api.conditions import Reason
from securebench.run.state.attempts import AttemptHistory, Finish, Outcome
from securebench.run.state.tally import tally

EXTERNAL_OUTCOMES = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER})
"""Outcomes whose messages are the cluster's or the provider's, never a verifier's."""


class EndReason(NamedTuple):
    """How a run ended, or why it has to be ended.

    Attributes:
        reason: Of ``Succeeded``.
        message: One plain sentence.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What decides how a run ended; the first that applies.

    Attributes:
        not_isolated: What the canary found where tasks may not start, or empty.
        refusal: The API server's words after a Pod was refused for good, or empty.
        gateway_failure: Why there was no gateway, or empty.
        stop: Why the run was ended early, or None.
        attempts: All of them, finished.
    """

    not_isolated: str
    refusal: str
    gateway_failure: str
    stop: EndReason | None
    attempts: Collection[AttemptHistory]

    def verdict(self) -> EndReason:
        """Return reason and message of ``Succeeded``."""
        if self.not_isolated:
            return EndReason(Reason.ISOLATION_NOT_VERIFIED, self.not_isolated)
        counts = tally(self.attempts)
        if self.refusal:
            return EndReason(Reason.POD_REFUSED, self.refusal)
        if self.gateway_failure:
            return EndReason(Reason.GATEWAY_FAILED, self.gateway_failure)
        if counts.has_all_verdicts:
            return EndReason(Reason.COMPLETED, f"{counts.passed} of {counts.verified} passed")
        if self.stop is not None:
            return self.stop
        missing = counts.total - counts.verified
        words = f"{missing} of {counts.total} attempts have no verdict"
        return EndReason(Reason.INCOMPLETE, f"{words}{_most_frequent(self.attempts)}")


def _most_frequent(attempts: Collection[AttemptHistory]) -> str:
    """Return the most frequent trouble from outside, with the words of its first attempt."""
    ends = [each.finish for each in attempts if each.finish is not None]
    troubles: list[Finish] = [end for end in ends if end.outcome in EXTERNAL_OUTCOMES]
    if not troubles:
        return ""
    ((reason, count),) = Counter(end.reason for end in troubles).most_common(1)
    first = next(end for end in troubles if end.reason == reason)
    return f"; {reason} ({count}): {first.message}"
