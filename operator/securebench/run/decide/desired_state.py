"""What the user wants of a run, and what follows from it for a pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from securebench.core.errors import InvalidInputError
from securebench.core.rates import MAX_UNSCHEDULABLE
from securebench.run.api.conditions import Reason
from securebench.run.api.field_types import CancelMode, IsolationRequirement
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.decide.capacity.launch_limits import Headroom
from securebench.run.decide.reporting.verdict import EndReason


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
        generation: Generation of the spec.
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
