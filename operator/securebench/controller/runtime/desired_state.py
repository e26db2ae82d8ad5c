"""Desired state of a run: the mutable fields of its spec, and whether it must yield its slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from securebench.core.errors import InvalidInputError
from securebench.run.api.conditions import Reason
from securebench.run.api.field_types import CancelMode, IsolationRequirement
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.decide.run_decision import Controls, Halt
from securebench.run.decide.verdict import EndReason


class DesiredState:
    """The latest spec of a run.

    Args:
        spec: As the API server has it.
        generation: Of that spec.

    Attributes:
        on_change: Called when a newer spec was taken in.
        is_turn_over: Whether the run has to let another one have its slot.
    """

    def __init__(self, spec: Mapping[str, object], generation: int) -> None:
        self._raw = spec
        self._parsed: BenchmarkRunSpec | None = None
        self.generation = generation
        self.on_change: Callable[[], None] = lambda: None
        self.is_turn_over: Callable[[], bool] = lambda: False

    def update(self, spec: Mapping[str, object], generation: int) -> None:
        """Take a newer spec in; the fields that may not change the API server has checked."""
        if generation > self.generation:
            self._raw = spec
            self._parsed = None
            self.generation = generation
            self.on_change()

    @property
    def _spec(self) -> BenchmarkRunSpec:
        if self._parsed is None:
            self._parsed = BenchmarkRunSpec.parse(self._raw)
        return self._parsed

    @property
    def is_suspended(self) -> bool:
        """Whether nothing new may begin; also known of a spec that does not hold."""
        return self._raw.get("suspend") is True

    @property
    def is_isolation_declared(self) -> bool:
        """Whether the user does without the canary."""
        return self._spec.isolation.require is IsolationRequirement.DECLARED

    @property
    def is_node_allowed(self) -> bool:
        """Whether Pods of the run may reach the node."""
        return self._spec.isolation.is_node_allowed

    def deadline(self, started_at: float | None) -> float | None:
        """Return when the run is ended, seconds since the epoch."""
        return None if started_at is None else started_at + self._spec.active_deadline_seconds

    def stop_reason(self, started_at: float | None, now: float) -> EndReason | None:
        """Return why the run is ended early, or None."""
        if self._spec.cancel is not CancelMode.NONE:
            return EndReason(Reason.CANCELLED, f"spec.cancel is {self._spec.cancel.value}")
        deadline = self.deadline(started_at)
        if deadline is not None and now >= deadline:
            words = f"the run took longer than {self._spec.active_deadline_seconds} seconds"
            return EndReason(Reason.DEADLINE_EXCEEDED, words)
        return None

    def is_ending(self, started_at: float | None, now: float) -> bool:
        """Whether the run only has to be ended; a spec that does not hold has to be refused."""
        try:
            return self.stop_reason(started_at, now) is not None
        except InvalidInputError:
            return True

    def controls(self, started_at: float | None, now: float) -> Controls:
        """Return what the loop may do."""
        stop, deadline = self.stop_reason(started_at, now), self.deadline(started_at)
        halt = Halt.NONE
        if stop is not None:
            is_graceful = self._spec.cancel is CancelMode.GRACEFUL
            is_late = deadline is not None and now >= deadline
            halt = Halt.DRAINING if is_graceful and not is_late else Halt.STOPPED
        elif self._spec.suspend or self.is_turn_over():
            halt = Halt.SUSPENDED
        return Controls(self._spec.parallelism, halt, stop, deadline)
