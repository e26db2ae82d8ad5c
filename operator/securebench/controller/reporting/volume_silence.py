"""What the status of a run says while the results volume does not answer it."""

from __future__ import annotations

from securebench.controller.reporting.run_status import succeeded
from securebench.controller.runtime.volume_calls import VolumeCalls
from securebench.core.clock import Clock
from securebench.run.api.conditions import ConditionUpdate
from securebench.run.observe.waiting import volume_silent


class VolumeSilence:
    """Since when a call of one run to the volume is late, in words that stay the same meanwhile.

    Args:
        calls: Those of the run.
        clock: The wall clock.
    """

    def __init__(self, calls: VolumeCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._since: float | None = None
        self._began_at = 0.0

    def finding(self) -> ConditionUpdate | None:
        """Return what ``Succeeded`` says of it; None while no call is late."""
        now = self._clock.monotonic()
        since = self._calls.silent_since(now)
        if since is not None and since != self._since:
            self._began_at = self._clock.now() - (now - since)
        self._since = since
        if since is None:
            return None
        reason, message, _ = volume_silent(self._began_at)
        return succeeded(reason, message)
