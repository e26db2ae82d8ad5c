"""How a run ended, as its condition ``Succeeded`` says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from securebench.run.api.conditions import Reason
from securebench.run.api.outcomes import Outcome
from securebench.run.decide.network.network_step import NetworkState
from securebench.run.state.attempts import AttemptHistory, Finish
from securebench.run.state.tally import tally

EXTERNAL_OUTCOMES = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER})
"""Outcomes whose messages are the cluster's or the provider's, never a verifier's."""


class EndReason(NamedTuple):
    """How a run ended, or why it has to be ended.

    Attributes:
        reason: Reason of ``Succeeded``.
        message: One plain sentence.
    """

    reason: Reason
    message: str


def run_failure(network: NetworkState, refusal: str) -> EndReason | None:
    """Return what ends a run whatever becomes of its attempts, or None; the first cause decides.

    Args:
        network: What is observed and remembered of it.
        refusal: The API server's words after a request was refused for good, or empty.
    """
    causes = (
        EndReason(Reason.ISOLATION_NOT_VERIFIED, network.isolation_failure),
        EndReason(Reason.POD_REFUSED, refusal),
        EndReason(Reason.GATEWAY_FAILED, network.gateway_memory.failure),
    )
    return next((each for each in causes if each.message), None)


def end_reason(
    failure: EndReason | None, stop: EndReason | None, attempts: Collection[AttemptHistory]
) -> EndReason:
    """Return how a run ended.

    Args:
        failure: What ended it whatever became of its attempts, or None.
        stop: Why the user or the deadline ended it early, or None.
        attempts: All of them, finished.
    """
    if failure is not None:
        return failure
    counts = tally(attempts)
    if counts.has_all_verdicts:
        return EndReason(Reason.COMPLETED, f"{counts.passed} of {counts.verified} passed")
    if stop is not None:
        return stop
    missing = counts.total - counts.verified
    words = f"{missing} of {counts.total} attempts have no verdict"
    return EndReason(Reason.INCOMPLETE, f"{words}{_most_frequent(attempts)}")


def _most_frequent(attempts: Collection[AttemptHistory]) -> str:
    """Return the most frequent trouble from outside, with the words of its first attempt."""
    ends = [each.finish for each in attempts if each.finish is not None]
    troubles: list[Finish] = [end for end in ends if end.outcome in EXTERNAL_OUTCOMES]
    if not troubles:
        return ""
    ((reason, count),) = Counter(end.reason for end in troubles).most_common(1)
    first = next(end for end in troubles if end.reason == reason)
    return f"; {reason} ({count}): {first.message}"
