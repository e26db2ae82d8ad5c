"""What a run may do, and what ends it. Pure.

``DesiredState`` is the spec of one generation; with the run's start and the time it gives the
``Controls`` of a pass. ``EndReason`` is how a run ended, or why it has to be ended, as the
condition ``Succeeded`` reports it: its user, its deadline, its token budget, its network, or the
end of its last attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from securebench.clock import MAX_UNSCHEDULABLE
from securebench.errors import InvalidInputError
from securebench.run.api.field_types import CancelMode, IsolationRequirement, Outcome
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.api.status import Reason
from securebench.run.decide.capacity import Headroom
from securebench.run.decide.network import NetworkState
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempts import AttemptHistory, Finish
from securebench.run.state.history import AttemptIndex, budget_tokens_used, tally, total_usage


class Halt(StrEnum):
    """Why a run starts no new launches."""

    NONE = ""
    SUSPENDED = "suspended"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Controls:
    """What the user and the operator's limits allow at the moment.

    Attributes:
        parallelism: Maximum number of attempts in flight.
        halt: ``DRAINING`` ends queued attempts, ``STOPPED`` ends all.
        stop: Why the user or the deadline ends the run early, or None.
        deadline: When the run is ended, seconds since the epoch, or None before its start.
        max_unschedulable: Number of unschedulable Pods of this run at which no launch starts.
        headroom: What the operator's limits leave to the run.
        is_yielding: Whether it is ``SUSPENDED`` only because its turn is over.
    """

    parallelism: int
    halt: Halt = Halt.NONE
    stop: EndReason | None = None
    deadline: float | None = None
    max_unschedulable: int = MAX_UNSCHEDULABLE
    headroom: Headroom = field(default_factory=Headroom)
    is_yielding: bool = False


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The spec of a run, as one generation has it.

    Attributes:
        is_suspended: Whether nothing new may begin; also known of an invalid spec.
        parsed: The spec, or why it is invalid.
    """

    generation: int
    is_suspended: bool
    parsed: BenchmarkRunSpec | InvalidInputError

    @property
    def spec(self) -> BenchmarkRunSpec:
        """The spec.

        Raises:
            InvalidInputError: It is invalid.
        """
        if isinstance(self.parsed, InvalidInputError):
            raise self.parsed.with_traceback(None)
        return self.parsed

    @property
    def is_isolation_declared(self) -> bool:
        """Whether the user does without the canary."""
        return self.spec.isolation.require is IsolationRequirement.DECLARED

    def deadline(self, started_at: float | None) -> float | None:
        """Return when the run is ended, seconds since the epoch."""
        return None if started_at is None else started_at + self.spec.active_deadline_seconds

    def stop_reason(self, started_at: float | None, now: float) -> EndReason | None:
        """Return why the run is ended early, or None."""
        if self.spec.cancel is not CancelMode.NONE:
            return EndReason(Reason.CANCELLED, f"spec.cancel is {self.spec.cancel.value}")
        deadline = self.deadline(started_at)
        if deadline is not None and now >= deadline:
            message = f"the run took longer than {self.spec.active_deadline_seconds} seconds"
            return EndReason(Reason.DEADLINE_EXCEEDED, message)
        return None

    def is_ending(self, started_at: float | None, now: float) -> bool:
        """Whether the run only has to be ended; one with an invalid spec has to be refused."""
        is_invalid = isinstance(self.parsed, InvalidInputError)
        return is_invalid or self.stop_reason(started_at, now) is not None

    def controls(
        self, started_at: float | None, now: float, *, is_turn_over: bool = False
    ) -> Controls:
        """Return what the loop may do.

        Args:
            started_at: When the run began, None before that; its deadline counts from then.
            now: Seconds since the epoch.
            is_turn_over: Whether the run has to let another one have its slot.
        """
        stop, deadline = self.stop_reason(started_at, now), self.deadline(started_at)
        halt = Halt.NONE
        if stop is not None:
            is_graceful = self.spec.cancel is CancelMode.GRACEFUL
            is_late = deadline is not None and now >= deadline
            halt = Halt.DRAINING if is_graceful and not is_late else Halt.STOPPED
        elif self.spec.suspend or is_turn_over:
            halt = Halt.SUSPENDED
        is_yielding = halt is Halt.SUSPENDED and not self.spec.suspend
        return Controls(self.spec.parallelism, halt, stop, deadline, is_yielding=is_yielding)


def desired_state(spec: Mapping[str, object], generation: int) -> DesiredState:
    """Return what a spec, as the API server has it, asks for.

    Args:
        spec: The object's ``spec``.
        generation: Generation of that spec.
    """
    parsed: BenchmarkRunSpec | InvalidInputError
    try:
        parsed = BenchmarkRunSpec.parse(spec)
    except InvalidInputError as error:
        parsed = error
    return DesiredState(generation, spec.get("suspend") is True, parsed)


EXTERNAL_OUTCOMES = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER})
"""Outcomes whose messages are the cluster's or the provider's, never a verifier's."""


class EndReason(NamedTuple):
    """How a run ended, or why it has to be ended.

    Attributes:
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


def budget_stop(plan: RunPlan, network: NetworkState, attempts: AttemptIndex) -> EndReason | None:
    """Return why the run's budget ends it, or None.

    The gateway says that the budget is used up, or has refused a launch for it; the journal
    remembers the latter.
    """
    limit = plan.token_budget
    if limit is None:
        return None
    is_spent = network.provider.tokens_used >= limit or attempts.is_budget_spent
    message = f"the budget of the run, {limit} tokens, is used up"
    return EndReason(Reason.BUDGET_EXHAUSTED, message) if is_spent else None


def with_tokens_used(
    end: EndReason, network: NetworkState, attempts: Iterable[AttemptHistory]
) -> EndReason:
    """Return the end of a run, with the tokens that were used if its budget ended it.

    Args:
        end: How the run ended.
        network: What its gateway said last, which may be a second old.
        attempts: All of them, finished.
    """
    if end.reason is not Reason.BUDGET_EXHAUSTED:
        return end
    used = budget_tokens_used(network.provider.tokens_used, total_usage(attempts))
    return end._replace(message=f"{end.message}: {used} tokens were used")
