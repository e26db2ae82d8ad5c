"""Fold the journal, entry by entry, into the state of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from securebench.core.errors import InvariantViolationError
from securebench.core.reasons import PROVIDER_REASONS
from securebench.run.plan.model import AttemptKey, RunPlan
from securebench.run.state.attempts import AttemptHistory, Doubt, Lost, Reading, usage_of
from securebench.run.state.entries import (
    AttemptEntry,
    Closed,
    Entry,
    Finished,
    Isolated,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    ReadBegun,
    RunBound,
    RunEnded,
    StepEntry,
    Verified,
)

_DOUBT_AFTER_CRASH = {Reading.TOGETHER: Doubt.SUSPECTED, Reading.ALONE: Doubt.CONDEMNED}


@dataclass(slots=True)
class RunHistory:
    """State of a run, as folded from its journal so far.

    Attributes:
        attempts: Every attempt of the plan, in pack order.
        bound: The first entry, or None.
        epoch: Epoch of the latest ``Opened``, 0 before the first.
        process: Process of the latest ``Opened``; empty in journals that do not record it.
        started_at: Time of the first ``Opened``, or None.
        isolation: Result of the canary, or None.
        ended: The last entry, or None.
    """

    attempts: dict[AttemptKey, AttemptHistory] = field(default_factory=dict)
    bound: RunBound | None = None
    epoch: int = 0
    process: str = ""
    started_at: float | None = None
    isolation: Isolated | None = None
    ended: RunEnded | None = None

    def apply(self, entry: Entry) -> None:
        """Apply one entry.

        Raises:
            InvariantViolationError: The entry contradicts the state.
        """
        match entry:
            case RunBound():
                self.bound = entry
            case Opened(epoch, at, process):
                self._stop_reading(has_crashed=not process or process != self.process)
                self.epoch, self.process = epoch, process
                self.started_at = at if self.started_at is None else self.started_at
            case Closed():
                self._stop_reading(has_crashed=False)
            case Isolated():
                self.isolation = entry
            case RunEnded():
                self.ended = entry
            case _:
                self._apply_to_attempt(entry)

    def _stop_reading(self, *, has_crashed: bool) -> None:
        """Mark all reads as over; a crashed operator may have been crashed by one of them."""
        for key, history in self.attempts.items():
            if history.reading is not Reading.NONE:
                doubt = _DOUBT_AFTER_CRASH[history.reading] if has_crashed else history.doubt
                self.attempts[key] = replace(history, reading=Reading.NONE, doubt=doubt)

    def _apply_to_attempt(self, entry: AttemptEntry) -> None:
        key = _key(entry)
        history = self.attempts.get(key)
        if history is None:
            raise InvariantViolationError(f"the journal names attempt {key}, not in the plan")
        if history.finish is not None:
            raise InvariantViolationError(f"attempt {key} is finished and cannot change")
        self.attempts[key] = _advance(history, entry)


def run_history(plan: RunPlan, entries: Iterable[Entry]) -> RunHistory:
    """Fold a whole journal.

    Raises:
        InvariantViolationError: The entries contradict each other or the plan.
    """
    history = RunHistory(attempts=dict(_initial_attempts(plan)))
    for entry in entries:
        history.apply(entry)
    return history


def _initial_attempts(plan: RunPlan) -> Iterable[tuple[AttemptKey, AttemptHistory]]:
    for index in plan.tasks:
        for attempt in range(1, plan.policy.attempts + 1):
            key = AttemptKey(index, attempt)
            yield key, AttemptHistory(key)


def _key(entry: AttemptEntry) -> AttemptKey:
    match entry:
        case LaunchBegun(launch):
            return launch.attempt_key
        case LaunchLost(lost):
            return lost.launch.attempt_key
        case Produced(key) | Verified(key) | ReadBegun(key):
            return key
        case _:
            return entry.finish.key


def _advance(history: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
    if isinstance(entry, ReadBegun):
        return replace(history, reading=Reading.ALONE if entry.is_alone else Reading.TOGETHER)
    return _apply_step(replace(history, reading=Reading.NONE, doubt=Doubt.NONE), entry)


def _apply_step(history: AttemptHistory, entry: StepEntry) -> AttemptHistory:
    match entry:
        case LaunchBegun(launch, at):
            if history.live is not None:
                raise InvariantViolationError(f"attempt {history.key} has a live launch already")
            started_at = at if history.started_at is None else history.started_at
            return replace(
                history, live=launch, live_since=at, launches=launch.launch, started_at=started_at
            )
        case LaunchLost(lost):
            return _apply_loss(history, lost)
        case Produced(_, production):
            usage = history.usage + usage_of(production.egress)
            return replace(history, live=None, production=production, usage=usage)
        case Verified(_, verification):
            return replace(history, live=None, verification=verification)
        case Finished(finish, sha256, at, usage):
            total = history.usage + usage
            ended = replace(history, live=None, finish=finish, finished_at=at, usage=total)
            return replace(ended, record_sha256=sha256)
        case _:
            return replace(history, finish=entry.finish, record_sha256=entry.record_sha256)


def _apply_loss(history: AttemptHistory, lost: Lost) -> AttemptHistory:
    """Return an attempt after the loss of a launch; a provider outage also voids the candidate."""
    idle = replace(history, live=None, last_lost=lost, usage=history.usage + lost.usage)
    if lost.reason in PROVIDER_REASONS:
        return replace(idle, provider_retries=history.provider_retries + 1, production=None)
    if lost.is_suspect:
        return replace(idle, suspect=(*history.suspect, lost.launch.role))
    return replace(idle, retries=history.retries + 1)


def open_attempts(attempts: Mapping[AttemptKey, AttemptHistory]) -> int:
    """Return how many attempts have no record yet."""
    return sum(1 for history in attempts.values() if history.finish is None)
