"""Where the attempts in flight of a run are, for those who watch it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from securebench.client.volume.link import OperatorLink
from securebench.client.volume.watch_answers import ActiveAttempts
from securebench.client.watch.background import in_background
from securebench.errors import InvalidInputError, PermanentClusterError, SecureBenchError
from securebench.json_values import text_at

_PAUSE_SECONDS = 3.0
_TROUBLE_SECONDS = 15.0
"""Pause before the next request after the operator's Pod failed to respond."""

_SHARE = 10
"""A pause lasts at least so many times as long as the answer took, because of long journals."""

STARTING_SECONDS = 5.0
"""A launch that is younger may wait: the operator does not tell short waits."""

_HARNESS: Final = "harness"
_VERIFIER: Final = "verifier"
_FOR_CHECK: Final = "waits for its check"

_WORDS = {
    _HARNESS: "agent",
    "reading": "reads the output",
    "produced": _FOR_CHECK,
    _VERIFIER: "check",
    "verified": "writes the record",
    "lost": "waits for a new launch",
}
"""Steps of the exec protocol as people read them."""


class AttemptInFlight(NamedTuple):
    """One attempt in flight.

    Args:
        task: Id of the task, or ``#`` and its index while its id is not known.
        attempt: Number of the attempt, from 1.
        step: What happens to it or what it waits for, in words.
        seconds: For how long that has lasted; of a launch, since it was begun.
        waits_for: What its launch waits for, or empty.
    """

    task: str
    attempt: int
    step: str
    seconds: float
    waits_for: str = ""


def in_flight(active: ActiveAttempts, task_ids: Sequence[str]) -> tuple[AttemptInFlight, ...]:
    """Return the attempts in flight, those that are in their step for longest first."""
    found = [_in_flight(fields, active.now, task_ids) for fields in active.attempts]
    return tuple(sorted(found, key=lambda each: -each.seconds))


class InFlightWatch:
    """Asks again and again where the attempts in flight are.

    Args:
        link: Exec protocol with the operator's Pod.
        uid: Uid of the BenchmarkRun.
        report: Called with the attempts; with None where they are not known at the moment.
        clock: Returns seconds.
        task_ids: Ids of the rows in pack order; None asks the operator's Pod for them.
    """

    def __init__(
        self,
        link: OperatorLink,
        uid: str,
        report: Callable[[tuple[AttemptInFlight, ...] | None], None],
        clock: Callable[[], float],
        task_ids: Sequence[str] | None = None,
    ) -> None:
        self._link = link
        self._uid = uid
        self._report = report
        self._clock = clock
        self._task_ids = task_ids

    def watched(
        self, sleep: Callable[[float], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Poll in the background while the body of the context runs."""
        return in_background(self._watch(sleep))

    async def _poll(self) -> tuple[AttemptInFlight, ...]:
        if self._task_ids is None:
            self._task_ids = await self._link.list_tasks(self._uid)
        return in_flight(await self._link.get_active(self._uid), self._task_ids)

    async def _watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            asked_at = self._clock()
            try:
                self._report(await self._poll())
            except InvalidInputError:
                # The run has not begun, or an older operator does not know the call.
                self._report(None)
            except SecureBenchError as error:
                self._report(None)
                if isinstance(error, PermanentClusterError):
                    return
                await sleep(_TROUBLE_SECONDS)
            await sleep(max(_PAUSE_SECONDS, _SHARE * (self._clock() - asked_at)))


def _in_flight(
    fields: Mapping[str, object], now: float, task_ids: Sequence[str]
) -> AttemptInFlight:
    task, since = fields.get("task"), fields.get("since")
    index = task if isinstance(task, int) else -1
    seconds = max(now - since, 0.0) if isinstance(since, int | float) else 0.0
    attempt = fields.get("attempt")
    return AttemptInFlight(
        task=task_ids[index] if 0 <= index < len(task_ids) else f"#{index}",
        attempt=attempt if isinstance(attempt, int) else 1,
        step=_step(fields, seconds),
        seconds=seconds,
        waits_for=text_at(fields, "wait"),
    )


def _step(fields: Mapping[str, object], seconds: float) -> str:
    """Return what happens to an attempt, or what its launch waits for, in words."""
    step, reason, wait = (text_at(fields, name) for name in ("step", "reason", "wait"))
    words = _WORDS.get(step, step)
    if wait and fields.get("has_begun") is not True:
        return wait if step == _HARNESS else f"{_FOR_CHECK}: {wait}"
    if wait:
        return f"{words}, {wait}"
    if step in {_HARNESS, _VERIFIER} and seconds < STARTING_SECONDS:
        return f"{words} starting"
    return f"{words} after {reason}" if reason else words
