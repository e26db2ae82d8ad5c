"""What the journal says. Entries are facts; the history is their fold."""

from __future__ import annotations

from dataclasses import dataclass, field

from securebench.run.plan.model import AttemptKey, LaunchKey
from securebench.run.state.attempts import Finish, HarnessResult, Lost, Usage, VerifierResult


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
class IsolationResult:
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

Entry = RunBound | Opened | Closed | IsolationResult | AttemptEntry | RunEnded
