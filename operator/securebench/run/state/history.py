"""The state of a run, folded from the entries of its journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from securebench.errors import InvariantViolationError
from securebench.reasons import PROVIDER_REASONS
from securebench.run.plan.keys import AttemptKey
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import (
    AttemptHistory,
    CrashSuspicion,
    Lost,
    Reading,
    usage_of,
)
from securebench.run.state.entries import (
    AttemptEntry,
    CandidateKept,
    Closed,
    Continued,
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
    attempt_of,
)
from securebench.run.state.resource_noise import ResourceNoise, entry_noise

_SUSPICION_AFTER_CRASH = {
    Reading.TOGETHER: CrashSuspicion.SUSPECTED,
    Reading.ALONE: CrashSuspicion.CONDEMNED,
}


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
        losses: Number of launches that were lost, by reason; each one of a batch counts.
        noise: Number of launches that met a limit, by how; a Pod of a batch counts once.
        noisy_launches: Number of launches that met one or several.
    """

    attempts: AttemptIndex = field(default_factory=AttemptIndex)
    bound: RunBound | None = None
    epoch: int = 0
    process: str = ""
    started_at: float | None = None
    isolation: IsolationResult | None = None
    ended: RunEnded | None = None
    losses: Counter[str] = field(default_factory=Counter)
    noise: Counter[ResourceNoise] = field(default_factory=Counter)
    noisy_launches: int = 0

    def apply(self, entry: Entry) -> None:
        """Apply one entry.

        Raises:
            InvariantViolationError: The entry contradicts the state.
        """
        match entry:
            case Continued():
                pass
            case RunBound():
                self.bound = entry
            case Opened(epoch, at, process):
                self._stop_reading(has_crashed=not process or process != self.process)
                self.epoch, self.process = epoch, process
                self.started_at = at if self.started_at is None else self.started_at
            case Closed():
                self._stop_reading(has_crashed=False)
            case IsolationResult():
                self.isolation = entry
            case RunEnded():
                self.ended = entry
            case _:
                self._apply_to_attempt(entry)

    def _stop_reading(self, *, has_crashed: bool) -> None:
        """Mark all reads as over; a crashed operator may have been crashed by one of them."""
        reading = [
            attempt for attempt in self.attempts.under_way if attempt.reading is not Reading.NONE
        ]
        for history in reading:
            crash_suspicion = (
                _SUSPICION_AFTER_CRASH[history.reading] if has_crashed else history.crash_suspicion
            )
            self.attempts[history.key] = history._replace(
                reading=Reading.NONE, crash_suspicion=crash_suspicion
            )

    def _apply_to_attempt(self, entry: AttemptEntry) -> None:
        key = attempt_of(entry)
        history = self.attempts.get(key)
        if history is None:
            raise InvariantViolationError(f"the journal names attempt {key}, not in the plan")
        if history.finish is not None:
            raise InvariantViolationError(f"attempt {key} is finished and cannot change")
        self.attempts[key] = _advance(history, entry)
        noise = entry_noise(entry)
        self.noise.update(noise)
        self.noisy_launches += bool(noise)
        if isinstance(entry, LaunchLost):
            self.losses[entry.lost.reason] += 1


def run_history(plan: RunPlan, entries: Iterable[Entry]) -> RunHistory:
    """Fold a whole journal.

    Raises:
        InvariantViolationError: The entries contradict each other or the plan.
    """
    history = RunHistory(attempts=AttemptIndex(_initial_attempts(plan)))
    for entry in entries:
        history.apply(entry)
    return history


def _initial_attempts(plan: RunPlan) -> Iterable[AttemptHistory]:
    for index in plan.tasks:
        for attempt in range(1, plan.policy.attempts + 1):
            yield AttemptHistory(AttemptKey(index, attempt))


def _advance(history: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
    if isinstance(entry, ReadBegun):
        return history._replace(reading=Reading.ALONE if entry.is_alone else Reading.TOGETHER)
    return _apply_step(_read_over(history), entry)


def _read_over(history: AttemptHistory) -> AttemptHistory:
    is_over = history.reading is Reading.NONE and history.crash_suspicion is CrashSuspicion.NONE
    if is_over:  # a copy for each entry would be a third of the time to fold a long journal
        return history
    return history._replace(reading=Reading.NONE, crash_suspicion=CrashSuspicion.NONE)


def _apply_step(history: AttemptHistory, entry: StepEntry) -> AttemptHistory:
    match entry:
        case LaunchBegun(launch, at, batch):
            if history.live is not None:
                raise InvariantViolationError(f"attempt {history.key} has a live launch already")
            started_at = at if history.started_at is None else history.started_at
            return history._replace(
                live=launch,
                live_since=at,
                batch=batch,
                launches=launch.launch,
                started_at=started_at,
            )
        case LaunchLost(lost):
            return _apply_loss(history, lost)
        case Produced(_, production, at):
            usage = history.usage + usage_of(production.egress)
            return history._replace(live=None, production=production, produced_at=at, usage=usage)
        case CandidateKept(_, production, at, usage, network):
            return history._replace(
                production=production, produced_at=at, usage=usage, network=network
            )
        case Verified(_, verification):
            return history._replace(live=None, verification=verification)
        case Finished(finish, sha256, at, usage):
            # The record has what production and verification said; nothing asks for them again.
            return history._replace(
                live=None,
                production=None,
                verification=None,
                finish=finish,
                record_sha256=sha256,
                finished_at=at,
                usage=history.usage + usage,
            )
        case _:
            return history._replace(finish=entry.finish, record_sha256=entry.record_sha256)


def _apply_loss(history: AttemptHistory, lost: Lost) -> AttemptHistory:
    """Return an attempt after the loss of a launch; a provider outage also voids the candidate."""
    idle = history._replace(live=None, last_lost=lost, usage=history.usage + lost.usage)
    if lost.reason in PROVIDER_REASONS:
        idle = idle._replace(production=None)
    if lost.is_shared:
        return idle._replace(shared=history.shared + 1)
    if lost.reason in PROVIDER_REASONS:
        return idle._replace(provider_retries=history.provider_retries + 1)
    if lost.is_suspect:
        return idle._replace(suspect=(*history.suspect, lost.launch.role))
    return idle._replace(retries=(*history.retries, lost.launch.role))
