"""The history of a run: the one fold of its journal, and counts over its attempts.

``run_history`` is what the run's own loop knows, entry by entry as it writes them. It knows the
plan and forgets what a record holds, since a run has many attempts. ``whole_history`` is what all
other readers ask: ``why``, the attempts in flight, the statement and its check, a run that resumes
or grades this one again, and the end of a run without a plan. It needs no plan and keeps the
launches. Each reader has a pure projection of it, beside what the reader does with it.

Attempts and launches are immutable. ``AttemptIndex`` replaces them in place, as a copy of all for
each entry would cost as much as the run has attempts; it finds those under way without a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, assert_never

from securebench.errors import InvariantViolationError
from securebench.protocol.grading import REWARDS
from securebench.reasons import PROVIDER_REASONS
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan
from securebench.run.state.attempts import (
    QUEUED,
    AttemptHistory,
    AttemptState,
    Finish,
    FinishedState,
    HarnessResult,
    JudgedState,
    LaunchedState,
    Lost,
    ProducedState,
    ProducerNetwork,
    QueuedState,
    Usage,
    VerifierResult,
    usage_of,
    was_refused_by_run_budget,
)
from securebench.run.state.entries import (
    AttemptEntry,
    CandidateKept,
    Continued,
    Entry,
    Finished,
    IsolationResult,
    Kept,
    LaunchBegun,
    LaunchEvidence,
    LaunchLost,
    Opened,
    Produced,
    ResourceNoise,
    RunBound,
    RunEnded,
    Verified,
    entry_noise,
)
from securebench.stats.intervals import (
    AttemptReward,
    AttemptVerdict,
    VerdictCounts,
    verdict_counts,
    verdicts_by_task,
)

VERIFIED = frozenset({Outcome.SCORED, Outcome.AGENT, Outcome.RESOURCE})
"""Outcomes whose records have a verdict (contract 15.1)."""


KEPT_ON_RESUME = VERIFIED | {Outcome.NOT_VERIFIED}


class AttemptIndex(Mapping[AttemptKey, AttemptHistory]):
    """Every attempt of a run in pack order.

    What is asked in every round of the loop costs as much as there are attempts under way or
    changed, however many the run has.

    Args:
        histories: Attempts in pack order.
    """

    def __init__(self, histories: Iterable[AttemptHistory] = ()) -> None:
        self._all: dict[AttemptKey, AttemptHistory] = {}
        self._under_way: dict[AttemptKey, AttemptHistory] = {}
        self._changed: set[AttemptKey] = set()
        self._counts = Counts()
        self._with_result = 0
        self._is_budget_spent = False
        for history in histories:
            self[history.key] = history

    def __getitem__(self, key: AttemptKey) -> AttemptHistory:
        """Return an attempt."""
        return self._all[key]

    def __iter__(self) -> Iterator[AttemptKey]:
        """Iterate over the keys in pack order."""
        return iter(self._all)

    def __len__(self) -> int:
        """Return the number of attempts."""
        return len(self._all)

    def __setitem__(self, key: AttemptKey, history: AttemptHistory) -> None:
        """Replace the state of an attempt; a new one comes last."""
        before = self._all.get(key)
        if before is not None:
            self._counts.remove(before)
            self._with_result -= _has_result(before)
        self._counts.add(history)
        self._with_result += _has_result(history)
        self._is_budget_spent |= was_refused_by_run_budget(history.production)
        self._all[key] = history
        self._changed.add(key)
        if _is_under_way(history):
            self._under_way[key] = history
        else:
            self._under_way.pop(key, None)

    @property
    def under_way(self) -> Collection[AttemptHistory]:
        """Attempts of which something is known and that have not ended, in no order."""
        return self._under_way.values()

    @property
    def done(self) -> int:
        """How many attempts have their record."""
        return self._counts.done

    @property
    def open(self) -> int:
        """How many attempts have no record yet."""
        return len(self._all) - self.done

    @property
    def in_flight(self) -> int:
        """How many launches have begun and not ended."""
        return self._counts.active

    @property
    def has_results(self) -> bool:
        """Whether any attempt has ended, or its harness has handed something in."""
        return self._with_result > 0

    @property
    def is_budget_spent(self) -> bool:
        """Whether the gateway has refused any launch because the run's budget was used up."""
        return self._is_budget_spent

    def tally(self) -> Tally:
        """Return the attempts counted by state and outcome."""
        return self._counts.tally()

    def pop_changed(self) -> Collection[AttemptKey]:
        """Return which attempts were replaced since the last call."""
        changed, self._changed = self._changed, set()
        return changed


def _has_result(history: AttemptHistory) -> bool:
    state = history.state
    if isinstance(state, LaunchedState):
        state = state.before
    return not isinstance(state, QueuedState)


def _is_under_way(history: AttemptHistory) -> bool:
    match history.state:
        case FinishedState():
            return False
        case LaunchedState() | ProducedState() | JudgedState():
            return True
        case QueuedState():
            return history.launches > 0 or history.last_lost is not None
        case _:
            assert_never(history.state)


class LaunchEnd(StrEnum):
    """How a launch ended."""

    RUNNING = "running"
    CAPTURED = "captured"
    LOST = "lost"
    ENDED = "ended"
    """With its attempt, without a result of its own."""


class LaunchHistory(NamedTuple):
    """One launch, as folded from the journal.

    Attributes:
        begun_at: Seconds since the epoch.
        batch: First launch of the batch that shares its Pod; None if it has its own.
        network: What was known of the run's network when it began.
        ended_at: When it was captured or lost, seconds since the epoch; else None.
        result: What was captured, or None.
        lost: How it was lost, or None.
        evidence: Its Pod at its end; None where the journal has none, or another launch of the
            batch has it.
        finished_at: When its attempt ended, if it was the last launch of it; else None.
    """

    key: LaunchKey
    begun_at: float
    batch: LaunchKey | None = None
    network: ProducerNetwork = ProducerNetwork()
    end: LaunchEnd = LaunchEnd.RUNNING
    ended_at: float | None = None
    result: HarnessResult | VerifierResult | None = None
    lost: Lost | None = None
    evidence: LaunchEvidence | None = None
    finished_at: float | None = None

    @property
    def pod(self) -> LaunchKey:
        """The launch after which its Pod is named: the first one of a batch."""
        return self.batch or self.key


@dataclass(slots=True)
class RunHistory:
    """State of a run, as folded from its journal so far.

    Attributes:
        is_whole: Whether it was folded without a plan: its attempts are those that the journal
            names, in pack order, and ``launches`` are kept.
        attempts: Every attempt of the plan, in pack order.
        bound: The first entry, or None.
        epoch: Epoch of the latest ``Opened``, 0 before the first.
        started_at: Time of the first ``Opened``, or None.
        isolation: Result of the canary, or None.
        findings: Each different result of the canary once, in their order.
        ended: The last entry, or None.
        losses: Number of launches that were lost, by reason; each one of a batch counts.
        noise: Number of launches that met a limit, by how; a Pod of a batch counts once.
        noisy_launches: Number of launches that met one or several.
        launches: Those of each attempt that was launched, in their order; empty unless whole.
    """

    attempts: AttemptIndex = field(default_factory=AttemptIndex)
    is_whole: bool = False
    bound: RunBound | None = None
    epoch: int = 0
    started_at: float | None = None
    isolation: IsolationResult | None = None
    findings: tuple[IsolationResult, ...] = ()
    ended: RunEnded | None = None
    losses: Counter[str] = field(default_factory=Counter)
    noise: Counter[ResourceNoise] = field(default_factory=Counter)
    noisy_launches: int = 0
    launches: dict[AttemptKey, tuple[LaunchHistory, ...]] = field(default_factory=dict)

    @property
    def finished(self) -> list[FinishedState]:
        """How the attempts ended that have, in pack order."""
        states = (history.state for history in self.attempts.values())
        return [state for state in states if isinstance(state, FinishedState)]

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
            case Opened(epoch, at):
                self.epoch = epoch
                self.started_at = at if self.started_at is None else self.started_at
            case IsolationResult():
                self.isolation = entry
                self.findings += () if entry in self.findings else (entry,)
            case RunEnded():
                self.ended = entry
            case _:
                self._apply_to_attempt(entry)

    def _apply_to_attempt(self, entry: AttemptEntry) -> None:
        key = entry.key
        history = self.attempts.get(key)
        if history is None and self.is_whole:
            history = AttemptHistory(key)
        if history is None:
            raise InvariantViolationError(f"the journal names attempt {key}, not in the plan")
        if history.finish is not None:
            raise InvariantViolationError(f"attempt {key} is finished and cannot change")
        self.attempts[key] = self._known(_advanced(history, entry), entry)
        noise = entry_noise(entry)
        if noise:
            self.noise.update(noise)
            self.noisy_launches += 1
        if isinstance(entry, LaunchLost):
            self.losses[entry.lost.reason] += 1

    def _known(self, attempt: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
        """Return what is kept of an attempt that an entry has advanced; a reader keeps more."""
        if self.is_whole:
            self._apply_to_launches(attempt.key, entry)
        elif isinstance(attempt.state, FinishedState):
            return attempt._replace(state=replace(attempt.state, produced=None))
        return attempt

    def _apply_to_launches(self, key: AttemptKey, entry: AttemptEntry) -> None:
        launches = self.launches.get(key, ())
        if isinstance(entry, LaunchBegun):
            found = self.isolation
            network = found and ProducerNetwork(found.verified, found.node_reachable)
            begun = LaunchHistory(entry.launch, entry.at, entry.batch, network or ProducerNetwork())
            self.launches[key] = (*launches, begun)
        elif launches:
            self.launches[key] = (*launches[:-1], _launch_after(launches[-1], entry))


def _launch_after(launch: LaunchHistory, entry: AttemptEntry) -> LaunchHistory:
    """Return the last launch of an attempt after an entry about the attempt."""
    match entry:
        case Produced(_, result, at, evidence) | Verified(_, result, at, evidence):
            return launch._replace(
                end=LaunchEnd.CAPTURED, ended_at=at, result=result, evidence=evidence
            )
        case LaunchLost(lost, evidence):
            return launch._replace(
                end=LaunchEnd.LOST,
                ended_at=lost.at,
                lost=lost,
                evidence=evidence or launch.evidence,
            )
        case Finished(at=at, evidence=evidence) if launch.end is LaunchEnd.RUNNING:
            return launch._replace(end=LaunchEnd.ENDED, finished_at=at, evidence=evidence)
        case Finished(at=at):
            return launch._replace(finished_at=at)
        case _:
            return launch


def run_history(plan: RunPlan, entries: Iterable[Entry]) -> RunHistory:
    """Fold a journal for the loop of its run.

    Raises:
        InvariantViolationError: The entries contradict each other or the plan.
    """
    return _folded(RunHistory(AttemptIndex(_initial_attempts(plan))), entries)


def whole_history(entries: Iterable[Entry]) -> RunHistory:
    """Fold a journal for a reader who has no plan, and keep the launches.

    Raises:
        InvariantViolationError: The entries contradict each other.
    """
    history = _folded(RunHistory(is_whole=True), entries)
    history.attempts = AttemptIndex(history.attempts[key] for key in sorted(history.attempts))
    return history


def _folded(history: RunHistory, entries: Iterable[Entry]) -> RunHistory:
    for entry in entries:
        history.apply(entry)
    return history


def _initial_attempts(plan: RunPlan) -> Iterable[AttemptHistory]:
    for index in plan.tasks:
        for attempt in range(1, plan.policy.attempts + 1):
            yield AttemptHistory(AttemptKey(index, attempt))


def _advanced(history: AttemptHistory, entry: AttemptEntry) -> AttemptHistory:
    match entry:
        case LaunchBegun():
            return _launched(history, entry)
        case LaunchLost(lost):
            return _apply_loss(history, lost)
        case Produced(_, production, at):
            usage = history.usage + usage_of(production.egress)
            return history._replace(state=ProducedState(production, at), usage=usage)
        case CandidateKept(_, production, at, usage, network):
            return history._replace(
                state=ProducedState(production, at), usage=usage, network=network
            )
        case Verified(_, verification):
            return history._replace(state=_judged(history, verification))
        case Finished(finish, sha256, at, usage):
            ended = FinishedState(finish, sha256, at, produced=history.produced)
            return history._replace(state=ended, usage=history.usage + usage)
        case Kept(finish, sha256, run_uid):
            return history._replace(state=FinishedState(finish, sha256, kept_of=run_uid))
        case _:
            assert_never(entry)


def _launched(history: AttemptHistory, entry: LaunchBegun) -> AttemptHistory:
    match history.state:
        case QueuedState() | ProducedState() as before:
            return history._replace(
                state=LaunchedState(entry.launch, entry.at, entry.batch, before),
                launches=entry.launch.launch,
                started_at=entry.at if history.started_at is None else history.started_at,
            )
        case LaunchedState():
            raise InvariantViolationError(f"attempt {history.key} has a live launch already")
        case JudgedState() | FinishedState():
            raise InvariantViolationError(f"attempt {history.key} is judged already")
        case _:
            assert_never(history.state)


def _judged(history: AttemptHistory, verification: VerifierResult) -> JudgedState:
    match history.state:
        case ProducedState() as produced:
            return JudgedState(produced, verification)
        case LaunchedState(before=ProducedState() as produced):
            return JudgedState(produced, verification)
        case JudgedState(produced):
            return JudgedState(produced, verification)
        case QueuedState() | LaunchedState() | FinishedState():
            raise InvariantViolationError(f"attempt {history.key} was judged without a candidate")
        case _:
            assert_never(history.state)


def _apply_loss(history: AttemptHistory, lost: Lost) -> AttemptHistory:
    """Return an attempt after the loss of a launch."""
    idle = history._replace(
        state=_state_after(history.state, lost), last_lost=lost, usage=history.usage + lost.usage
    )
    if lost.is_shared:
        return idle._replace(shared=history.shared + 1)
    if lost.reason in PROVIDER_REASONS:
        return idle._replace(provider_retries=history.provider_retries + 1)
    if lost.is_suspect:
        return idle._replace(suspect=(*history.suspect, lost.launch.role))
    return idle._replace(retries=(*history.retries, lost.launch.role))


def _state_after(state: AttemptState, lost: Lost) -> AttemptState:
    """Return the state after a loss; an outage of the provider also voids the candidate."""
    if lost.reason in PROVIDER_REASONS:
        return QUEUED
    return state.before if isinstance(state, LaunchedState) else state


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of attempts.

    Attributes:
        total: All attempts of the plan.
        active: Attempts with a live launch.
        outcomes: Finished attempts by outcome.
        passed: Attempts that passed.
    """

    total: int
    active: int
    outcomes: Mapping[Outcome, int]
    passed: int

    @property
    def done(self) -> int:
        """Finished attempts."""
        return sum(self.outcomes.values())

    @property
    def verified(self) -> int:
        """Attempts with a verdict."""
        return sum(count for outcome, count in self.outcomes.items() if outcome in VERIFIED)

    @property
    def has_all_verdicts(self) -> bool:
        """Whether every attempt has a verdict, or a family without verifier."""
        kept = sum(count for outcome, count in self.outcomes.items() if outcome in KEPT_ON_RESUME)
        return kept == self.total


@dataclass(slots=True)
class Counts:
    """Attempts counted one by one; an attempt that changes is removed and added again."""

    total: int = 0
    active: int = 0
    done: int = 0
    passed: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def add(self, history: AttemptHistory) -> None:
        """Count an attempt."""
        self._count(history, 1)

    def remove(self, history: AttemptHistory) -> None:
        """Count an attempt no more; it is given as it was added."""
        self._count(history, -1)

    def _count(self, history: AttemptHistory, step: int) -> None:
        self.total += step
        state = history.state
        if isinstance(state, LaunchedState):
            self.active += step
        elif isinstance(state, FinishedState):
            self.done += step
            self.passed += step * (state.finish.passed is True)
            self.outcomes[state.finish.outcome] += step

    def tally(self) -> Tally:
        """Return the counts as they are now."""
        outcomes = {outcome: count for outcome, count in self.outcomes.items() if count}
        return Tally(self.total, self.active, outcomes, self.passed)


def tally(histories: Iterable[AttemptHistory]) -> Tally:
    """Count attempts by state and outcome."""
    counts = Counts()
    for history in histories:
        counts.add(history)
    return counts.tally()


def verdict_of(finish: Finish) -> bool | None:
    """Return the verdict on an attempt, or None if its outcome has none (contract 15.1)."""
    return finish.passed is True if finish.outcome in VERIFIED else None


def score_of(finish: Finish) -> float | None:
    """Return the score of an attempt, or None without a verdict."""
    verdict = verdict_of(finish)
    if verdict is None:
        return None
    return float(verdict) if finish.score is None else finish.score


def attempt_rewards(histories: Iterable[AttemptHistory]) -> list[AttemptReward]:
    """Return the scores so far of a run whose verifiers leave rewards; empty for another run."""
    ends = [end for history in histories if (end := history.finish) is not None]
    if not any(end.grading in REWARDS for end in ends):
        return []
    scores = ((end.key.task, score_of(end)) for end in ends)
    return [AttemptReward(task, score) for task, score in scores if score is not None]


def task_verdicts(histories: Iterable[AttemptHistory]) -> VerdictCounts:
    """Count the tasks by their verdicts so far."""
    ends = (history.finish for history in histories)
    judged = ((end.key.task, verdict_of(end)) for end in ends if end is not None)
    verdicts = (AttemptVerdict(task, passed) for task, passed in judged if passed is not None)
    return verdict_counts(verdicts_by_task(verdicts).values())


def budget_tokens_used(counted: int, usage: Usage) -> int:
    """Return the tokens of a run's budget that are used, as message and status say it.

    Args:
        counted: By the gateway, launches in progress included; what it said last may be old.
        usage: Of the launches that have ended.
    """
    return max(counted, usage.input_tokens + usage.output_tokens)


def total_usage(histories: Iterable[AttemptHistory]) -> Usage:
    """Return the model provider usage of all launches."""
    return sum((history.usage for history in histories), Usage())
