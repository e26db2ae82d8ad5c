"""The latest spec of a run that this process has seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from securebench.run.decide.controls import DesiredState, desired_state


class LatestSpec:
    """Takes newer specs of a run in and tells those who wait for one.

    Args:
        spec: As the API server has it.
        generation: Generation of that spec.
    """

    def __init__(self, spec: Mapping[str, object], generation: int) -> None:
        self._raw = spec
        self._generation = generation
        self._desired: DesiredState | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def generation(self) -> int:
        """The generation of the spec."""
        return self._generation

    @property
    def desired(self) -> DesiredState:
        """What the spec asks for; parsed on first use, as most runs that are listed have ended."""
        if self._desired is None:
            self._desired = desired_state(self._raw, self._generation)
        return self._desired

    def update(self, spec: Mapping[str, object], generation: int) -> None:
        """Take a newer spec in; the fields that may not change the API server has checked."""
        if generation > self._generation:
            self._raw, self._generation, self._desired = spec, generation, None
            for listener in self._listeners:
                listener()

    @contextlib.contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call a function for every newer spec inside the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)
