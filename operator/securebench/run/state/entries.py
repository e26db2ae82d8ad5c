"""Journal entries: facts about a run, in the words of its journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from securebench.run.plan.keys import AttemptKey, LaunchKey
from securebench.run.state.attempts import (
    Finish,
    HarnessResult,
    Lost,
    ProducerNetwork,
    Usage,
    VerifierResult,
)
from securebench.run.state.evidence import LaunchEvidence


@dataclass(frozen=True, slots=True)
class Continued:
    """The journal continues in a file of the next leader, of which this is the first line.

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
        evidence: Its Pod as it was last seen, or None where it was never or another entry has it.
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
        evidence: Pod of the launch that this entry ends; None if no launch was running, where no
            Pod of it was seen, in journals that do not record it, and where another launch of the
            batch has it.
    """

    finish: Finish
    record_sha256: str
    at: float
    usage: Usage = field(default_factory=Usage)
    evidence: LaunchEvidence | None = None


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
