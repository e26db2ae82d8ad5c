"""Journal entries: facts about a run, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass, field

from securebench.run.plan.model import AttemptKey, LaunchKey
from securebench.run.state.attempts import Finish, HarnessResult, Lost, Usage, VerifierResult


@dataclass(frozen=True, slots=True)
class RunBound:
    """First entry: the run and the plan that this journal belongs to."""

    run_uid: str
    plan_digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """An operator process took over the journal.

    Attributes:
        epoch: Counts from 1; fences off writers of older epochs.
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
class Isolated:
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
    """A launch begins; written before its Pod is created."""

    launch: LaunchKey
    at: float


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
    """A launch ended without a conclusive result."""

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


StepEntry = LaunchBegun | LaunchLost | Produced | Verified | Finished | Kept
"""Entries that advance one attempt."""

AttemptEntry = StepEntry | ReadBegun
"""Entries that belong to one attempt."""

Entry = RunBound | Opened | Closed | Isolated | AttemptEntry | RunEnded
