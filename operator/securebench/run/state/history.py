"""Journal entries, which are facts about a run, and the state of the run folded from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from securebench.core.errors import InvariantViolationError
from securebench.core.reasons import PROVIDER_REASONS
from securebench.run.plan.keys import AttemptKey, LaunchKey
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import (
    AttemptHistory,
    CrashSuspicion,
    Finish,
    HarnessResult,
    Lost,
    ProducerNetwork,
    Reading,
    Usage,
    VerifierResult,
    usage_of,
)
from securebench.run.state.evidence import LaunchEvidence


@dataclass(frozen=True, slots=True)
class Continued:
    """The journal goes on in a file of the next leader, of which this is the first line.

    Attributes:
        epoch: Epoch of the leader.
        holder: Who that is: ``<Pod name>_<Pod uid>``.
        previous: Epoch in the name of the file that this one continues; 0: ``journal.jsonl``.
        size_bytes: How many bytes of that file count.
    """

    epoch: int
    holder: str
    previous: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunBound:
    """First entry: the run and the plan that this journal belongs to."""

    run_uid: str
    plan_digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """An operator process took over the journal.

    Attributes:
        epoch: How often the journal was opened, from 1; an operator may do it more than once.
        at: Seconds since the Unix epoch.
        process: Identifies the operator process. If the same process opens the journal again, it
            did not crash in between.
    """

    epoch: int
    at: float
    process: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """The operator closed the journal in an orderly way while it was reading an attempt's output.

    Attributes:
        at: Seconds since the epoch.
    """

    at: float


@dataclass(frozen=True, slots=True)
class IsolationResult:
    """Result of the isolation canary.

    Attributes:
        verified: Whether the network policy is enforced.
        user_namespaces: Whether launch Pods get a user namespace.
        message: One plain sentence.
        declared: Whether the run skipped the canary (``isolation.require: Declared``).
        sandboxed: Whether the runtime is a sandbox, if the administrator requires one.
        node_reachable: Whether the canary reached the node.
    """

    verified: bool
    user_namespaces: bool
    message: str
    declared: bool = False
    sandboxed: bool = True
    node_reachable: bool = False


@dataclass(frozen=True, slots=True)
class LaunchBegun:
    """A launch begins; written before its Pod is created.

    Attributes:
        at: Seconds since the epoch.
        batch: First launch of the batch that shares one Pod; None for a launch with its own Pod.
    """

    launch: LaunchKey
    at: float
    batch: LaunchKey | None = None


@dataclass(frozen=True, slots=True)
class ReadBegun:
    """The operator is about to read an attempt's output, which might crash it (decision 0031).

    Attributes:
        launch: The launch that is captured; None if the attempt's record is written.
        at: Seconds since the epoch.
        is_alone: Whether the operator reads nothing else meanwhile.
    """

    key: AttemptKey
    launch: LaunchKey | None
    at: float
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class LaunchLost:
    """A launch ended without a conclusive result.

    Attributes:
        evidence: Its Pod, or None where that was not seen any more or another entry has it.
    """

    lost: Lost
    evidence: LaunchEvidence | None = None


@dataclass(frozen=True, slots=True)
class Produced:
    """The harness launch ended and was captured.

    Attributes:
        at: Seconds since the epoch; 0 in journals that do not record it.
        evidence: Its Pod; None in journals that do not record it.
    """

    key: AttemptKey
    production: HarnessResult
    at: float = 0.0
    evidence: LaunchEvidence | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """The verifier launch ended and was captured.

    Attributes:
        at: Seconds since the epoch; 0 in journals that do not record it.
        evidence: Its Pod; None in journals that do not record it, and where another launch of the
            batch has it.
    """

    key: AttemptKey
    verification: VerifierResult
    at: float = 0.0
    evidence: LaunchEvidence | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt has its record.

    Attributes:
        record_sha256: Hex digest of the record's line without its newline.
        at: Seconds since the epoch.
        usage: Model provider usage of the launch that this entry ends, as far as it is known; zero
            if no launch was running.
    """

    finish: Finish
    record_sha256: str
    at: float
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Kept:
    """A resumed run took over the record of an earlier run.

    Attributes:
        record_sha256: Hex digest of the record's line.
        run_uid: The earlier run.
    """

    finish: Finish
    record_sha256: str
    run_uid: str


@dataclass(frozen=True, slots=True)
class CandidateKept:
    """A regrade took over a sealed candidate of an earlier run, to verify it again.

    Attributes:
        production: Production of the launch that sealed it; its files lie in this run's folder.
        at: When that launch was captured, seconds since the epoch, or 0.
        usage: Model provider usage of the attempt until then.
        network: Network of the run that produced it.
        run_uid: The run that is graded again.
    """

    key: AttemptKey
    production: HarnessResult
    at: float
    usage: Usage
    network: ProducerNetwork
    run_uid: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Last entry: the run has ended.

    Attributes:
        reason: Reason of the condition Succeeded.
        message: One plain sentence.
        at: Seconds since the epoch.
    """

    reason: str
    message: str
    at: float


StepEntry = LaunchBegun | LaunchLost | Produced | Verified | Finished | Kept | CandidateKept
"""Entries that advance one attempt."""

AttemptEntry = StepEntry | ReadBegun
"""Entries that belong to one attempt."""

Entry = Continued | RunBound | Opened | Closed | IsolationResult | AttemptEntry | RunEnded


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
    """

    attempts: AttemptIndex = field(default_factory=AttemptIndex)
    bound: RunBound | None = None
    epoch: int = 0
    process: str = ""
    started_at: float | None = None
    isolation: IsolationResult | None = None
    ended: RunEnded | None = None
    losses: Counter[str] = field(default_factory=Counter)

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
            self.attempts[history.key] = replace(
                history, reading=Reading.NONE, crash_suspicion=crash_suspicion
            )

    def _apply_to_attempt(self, entry: AttemptEntry) -> None:
        key = attempt_of(entry)
        history = self.attempts.get(key)
        if history is None:
            raise InvariantViolationError(f"the journal names attempt {key}, not in the plan")
        if history.finish is not None:
            raise InvariantViolationError(f"attempt {key} is finished and cannot change")
        self.attempts[key] = _advance(history, entry)
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


def attempt_of(entry: AttemptEntry) -> AttemptKey:
    """Return the attempt that an entry is about."""
    match entry:
        case LaunchBegun(launch):
            return launch.attempt_key
        case LaunchLost(lost):
            return lost.launch.attempt_key
        case Produced(key) | Verified(key) | ReadBegun(key) | CandidateKept(key):
            return key
        case _:
            return entry.finish.key


def _advance(history: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
    if isinstance(entry, ReadBegun):
        return replace(history, reading=Reading.ALONE if entry.is_alone else Reading.TOGETHER)
    return _apply_step(
        replace(history, reading=Reading.NONE, crash_suspicion=CrashSuspicion.NONE), entry
    )


def _apply_step(history: AttemptHistory, entry: StepEntry) -> AttemptHistory:
    match entry:
        case LaunchBegun(launch, at, batch):
            if history.live is not None:
                raise InvariantViolationError(f"attempt {history.key} has a live launch already")
            started_at = at if history.started_at is None else history.started_at
            begun = replace(history, live=launch, live_since=at, batch=batch)
            return replace(begun, launches=launch.launch, started_at=started_at)
        case LaunchLost(lost):
            return _apply_loss(history, lost)
        case Produced(_, production, at):
            usage = history.usage + usage_of(production.egress)
            ended = replace(history, live=None, production=production, produced_at=at)
            return replace(ended, usage=usage)
        case CandidateKept(_, production, at, usage, network):
            taken = replace(history, production=production, produced_at=at, usage=usage)
            return replace(taken, network=network)
        case Verified(_, verification):
            return replace(history, live=None, verification=verification)
        case Finished(finish, sha256, at, usage):
            # The record has what production and verification said; nothing asks for them again.
            return replace(
                history,
                live=None,
                production=None,
                verification=None,
                finish=finish,
                record_sha256=sha256,
                finished_at=at,
                usage=history.usage + usage,
            )
        case _:
            return replace(history, finish=entry.finish, record_sha256=entry.record_sha256)


def _apply_loss(history: AttemptHistory, lost: Lost) -> AttemptHistory:
    """Return an attempt after the loss of a launch; a provider outage also voids the candidate."""
    idle = replace(history, live=None, last_lost=lost, usage=history.usage + lost.usage)
    if lost.reason in PROVIDER_REASONS:
        return replace(idle, provider_retries=history.provider_retries + 1, production=None)
    if lost.is_shared:
        return replace(idle, shared=history.shared + 1)
    if lost.is_suspect:
        return replace(idle, suspect=(*history.suspect, lost.launch.role))
    return replace(idle, retries=(*history.retries, lost.launch.role))
