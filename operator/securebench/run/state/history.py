"""What the journal of a run says: its entries are facts, the history is their fold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from securebench.core.errors import InvariantViolationError
from securebench.core.reasons import PROVIDER_REASONS
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan
from securebench.run.state.attempts import (
    AttemptHistory,
    Doubt,
    Finish,
    HarnessResult,
    Lost,
    Reading,
    Usage,
    VerifierResult,
    usage_of,
)


@dataclass(frozen=True, slots=True)
class RunBound:
    """First entry: which run and which plan this journal belongs to."""

    run_uid: str
    plan_digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """An operator took the journal over.

    Attributes:
        epoch: Counts from 1; a writer of an older epoch must stop.
        at: Seconds since the epoch of time.
        process: Names the operator's process; one that opens the journal again did not end.
    """

    epoch: int
    at: float
    process: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """The operator let go of the journal in order while something was being read.

    Attributes:
        at: Seconds since the epoch.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Isolated:
    """What the canary found.

    Attributes:
        verified: Whether the policy holds.
        user_namespaces: Whether launch Pods get a user namespace.
        message: One plain sentence.
        declared: Whether no canary ran because the user does without it.
        sandboxed: Whether the runtime is the sandbox that the administrator requires, if any.
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
    """Written before the Pod is created."""

    launch: LaunchKey
    at: float


@dataclass(frozen=True, slots=True)
class ReadBegun:
    """Written before what an attempt left is read.

    Attributes:
        key: The attempt.
        launch: The launch that is captured; None where the attempt's record is written.
        at: Seconds since the epoch.
        is_alone: Whether the operator reads nothing else meanwhile.
    """

    key: AttemptKey
    launch: LaunchKey | None
    at: float
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class LaunchLost:
    """The launch ended without a result."""

    lost: Lost


@dataclass(frozen=True, slots=True)
class Produced:
    """The harness launch ended and was captured."""

    key: AttemptKey
    production: HarnessResult


@dataclass(frozen=True, slots=True)
class Verified:
    """The verifier launch ended and was captured."""

    key: AttemptKey
    verification: VerifierResult


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt has its record.

    Attributes:
        finish: How it ended.
        record_sha256: Hex digest of the record's line without its newline.
        at: Seconds since the epoch.
        usage: What the launch that it ended asked the model provider, as far as that is known;
            nothing where no launch was running.
    """

    finish: Finish
    record_sha256: str
    at: float
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Kept:
    """A resumed run took the record of an earlier one over.

    Attributes:
        finish: How the attempt ended there.
        record_sha256: Hex digest of the record's line.
        run_uid: The earlier run.
    """

    finish: Finish
    record_sha256: str
    run_uid: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Last entry: nothing follows.

    Attributes:
        reason: Reason of the condition Succeeded.
        message: One plain sentence.
        at: Seconds since the epoch.
    """

    reason: str
    message: str
    at: float


StepEntry = LaunchBegun | LaunchLost | Produced | Verified | Finished | Kept
"""What brings one attempt on."""

AttemptEntry = StepEntry | ReadBegun
"""What belongs to one attempt."""

Entry = RunBound | Opened | Closed | Isolated | AttemptEntry | RunEnded


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
    isolation: Isolated | None = None
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
            case Isolated():
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
