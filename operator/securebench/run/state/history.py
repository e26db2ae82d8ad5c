"""The fold of the journal: what is known of a run, entry by entry."""

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
    IsolationResult,
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

_DOUBT = {Reading.TOGETHER: Doubt.SUSPECTED, Reading.ALONE: Doubt.CONDEMNED}


@dataclass(slots=True)
class RunHistory:
    """What the journal of a run says so far.

    Attributes:
        attempts: Every attempt of the plan, in pack order.
        bound: The first entry, or None.
        epoch: Of the latest opening, 0 before the first.
        process: Of the latest opening, empty where the journal does not say.
        started_at: Of the first opening, or None.
        isolation: What the canary found, or None.
        ended: The last entry, or None.
    """

    attempts: dict[AttemptKey, AttemptHistory] = field(default_factory=dict)
    bound: RunBound | None = None
    epoch: int = 0
    process: str = ""
    started_at: float | None = None
    isolation: IsolationResult | None = None
    ended: RunEnded | None = None

    def apply(self, entry: Entry) -> None:
        """Take one entry in.

        Raises:
            InvariantViolationError: The entry contradicts what is known.
        """
        match entry:
            case RunBound():
                self.bound = entry
            case Opened(epoch, at, process):
                self._read_no_more(has_ended=not process or process != self.process)
                self.epoch, self.process = epoch, process
                self.started_at = at if self.started_at is None else self.started_at
            case Closed():
                self._read_no_more(has_ended=False)
            case IsolationResult():
                self.isolation = entry
            case RunEnded():
                self.ended = entry
            case _:
                self._apply_to_attempt(entry)

    def _read_no_more(self, *, has_ended: bool) -> None:
        """Nothing is being read now; where the operator has ended, reading may have done it."""
        for key, known in self.attempts.items():
            if known.reading is not Reading.NONE:
                doubt = _DOUBT[known.reading] if has_ended else known.doubt
                self.attempts[key] = replace(known, reading=Reading.NONE, doubt=doubt)

    def _apply_to_attempt(self, entry: AttemptEntry) -> None:
        key = _key(entry)
        known = self.attempts.get(key)
        if known is None:
            raise InvariantViolationError(f"the journal names attempt {key} that the plan has not")
        if known.finish is not None:
            raise InvariantViolationError(f"attempt {key} is finished and cannot change")
        self.attempts[key] = _advance(known, entry)


def run_history(plan: RunPlan, entries: Iterable[Entry]) -> RunHistory:
    """Fold a whole journal.

    Raises:
        InvariantViolationError: The entries contradict each other or the plan.
    """
    history = RunHistory(attempts=dict(_fresh(plan)))
    for entry in entries:
        history.apply(entry)
    return history


def _fresh(plan: RunPlan) -> Iterable[tuple[AttemptKey, AttemptHistory]]:
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


def _advance(known: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
    if isinstance(entry, ReadBegun):
        return replace(known, reading=Reading.ALONE if entry.is_alone else Reading.TOGETHER)
    return _after(replace(known, reading=Reading.NONE, doubt=Doubt.NONE), entry)


def _after(known: AttemptHistory, entry: StepEntry) -> AttemptHistory:
    match entry:
        case LaunchBegun(launch, at):
            if known.live is not None:
                raise InvariantViolationError(f"attempt {known.key} has a live launch already")
            started_at = at if known.started_at is None else known.started_at
            return replace(
                known, live=launch, live_since=at, launches=launch.launch, started_at=started_at
            )
        case LaunchLost(lost):
            return _without(known, lost)
        case Produced(_, production):
            usage = known.usage + usage_of(production.egress)
            return replace(known, live=None, production=production, usage=usage)
        case Verified(_, verification):
            return replace(known, live=None, verification=verification)
        case Finished(finish, sha256, at, usage):
            total = known.usage + usage
            ended = replace(known, live=None, finish=finish, finished_at=at, usage=total)
            return replace(ended, record_sha256=sha256)
        case _:
            return replace(known, finish=entry.finish, record_sha256=entry.record_sha256)


def _without(known: AttemptHistory, lost: Lost) -> AttemptHistory:
    """Return an attempt after the loss of a launch; an outage takes what it produced along."""
    kept = replace(known, live=None, last_lost=lost, usage=known.usage + lost.usage)
    if lost.reason in PROVIDER_REASONS:
        return replace(kept, provider_retries=known.provider_retries + 1, production=None)
    if lost.is_suspect:
        return replace(kept, suspect=(*known.suspect, lost.launch.role))
    return replace(kept, retries=known.retries + 1)


def open_attempts(attempts: Mapping[AttemptKey, AttemptHistory]) -> int:
    """Return how many attempts have no record yet."""
    return sum(1 for history in attempts.values() if history.finish is None)
