"""The vocabulary of the loop: what is known of an attempt and what may be decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from securebench.protocol.gateway import LaunchReport
from securebench.run.plan.model import AttemptKey, LaunchKey, Role


class Outcome(StrEnum):
    """Contract 15.1. ``NOT_VERIFIED`` is written as null."""

    SCORED = "scored"
    AGENT = "agent"
    RESOURCE = "resource"
    VERIFIER = "verifier"
    PROVIDER = "provider"
    INFRASTRUCTURE = "infrastructure"
    CANCELLED = "cancelled"
    NOT_VERIFIED = "not_verified"


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One captured stream on the volume.

    Attributes:
        size_bytes: Real size.
        truncated: Whether the kept text lacks bytes.
    """

    size_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class DiffReport:
    """What supervise said of the diff of a checkout; evidence, never a verdict.

    Attributes:
        exit_code: Of git, or None where no program of git is to blame.
        stderr: What git said, or why there is no diff; bounded by supervise, else as it came.
        baseline: ``clean`` or ``committed``: whether the checkout was as committed before the
            command; else empty.
    """

    exit_code: int | None
    stderr: str
    baseline: str = ""


@dataclass(frozen=True, slots=True)
class CommandReport:
    """What supervise said of the command that ended; evidence, never a verdict.

    Attributes:
        exit_code: The command's own exit code, or None.
        timed_out: Whether the time limit ended it.
        duration_seconds: Wall time of the command.
        phase: Name of the last phase that ran.
        error: One line for the user, or empty.
        commit: Commit of the image's repository, or empty.
        unstarted: Whether the command does not exist or cannot be executed; ``error`` says which.
        memory_kills: Processes that were killed at the memory limit while it ran; 0 also where the
            container cannot tell.
        diff: How the diff of the image's repository was made, None where none was.
    """

    exit_code: int | None = None
    timed_out: bool = False
    duration_seconds: float = 0.0
    phase: str = ""
    error: str = ""
    commit: str = ""
    diff: DiffReport | None = None
    unstarted: bool = False
    memory_kills: int = 0


@dataclass(frozen=True, slots=True)
class SealedPatch:
    """What the operator found in a candidate patch without running anything.

    Attributes:
        problem: failure_reason why the patch is not applied, or empty.
        phase: failure_phase where there is a problem.
        message: One plain sentence where there is a problem.
        applied_digest: ``sha256:…`` of ``applied.patch``, empty where there is a problem.
        declared_digest: ``sha256:…`` of ``declared.json``, empty where there is a problem.
    """

    problem: str = ""
    phase: str = ""
    message: str = ""
    applied_digest: str = ""
    declared_digest: str = ""


@dataclass(frozen=True, slots=True)
class SealedCandidate:
    """What the courier sealed and the operator hashed again.

    Attributes:
        launch: Launch that produced it.
        file: ``candidate.txt``, ``workspace.tar`` or None.
        digest: ``sha256:…`` of that file, empty without one.
        size_bytes: Its size.
        candidate_sha256: The candidate's own digest (contract 13.3).
        dropped_entries: Entries left out of a workspace.
        problem: None or a failure_reason of contract 13.1.
        message: One plain sentence when there is a problem.
        is_blank: Whether a text holds nothing but white space.
        patch: Present where the text is a patch for a repository.
    """

    launch: int
    file: str | None
    digest: str
    size_bytes: int
    candidate_sha256: str
    dropped_entries: int
    problem: str | None
    message: str
    is_blank: bool = False
    patch: SealedPatch | None = None


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the kubelet, and the courier from inside the Pod, reported about a launch.

    Attributes:
        image_id: Resolved image of the untrusted container.
        node: Node name.
        runtime_class: Runtime class of the Pod, or empty.
        user_namespace: Whether the Pod had a user namespace of its own.
        started_at: Start of the untrusted container, seconds since the epoch, or None.
        finished_at: Its end, or None.
        kernel: Release of the kernel that a courier measured inside the Pod, or empty.
    """

    image_id: str = ""
    node: str = ""
    runtime_class: str = ""
    user_namespace: bool = False
    started_at: float | None = None
    finished_at: float | None = None
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked of a model provider, by one launch or by several.

    Attributes:
        requests: Sent to the provider, failed ones included.
        input_tokens: Cached ones included.
        cached_tokens: Part of the input.
        output_tokens: Of all answers.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
        )


def usage_of(report: LaunchReport | None) -> Usage:
    """Return what a launch asked its model provider; nothing where there is none."""
    relay = report.relay if report is not None else None
    if relay is None:
        return Usage()
    return Usage(relay.requests, relay.input_tokens, relay.cached_tokens, relay.output_tokens)


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """A harness launch that ended definitely.

    Attributes:
        launch: The harness's launch number.
        command: Evidence about the command.
        candidate: What was sealed; None where nothing is extracted.
        facts: What the kubelet reported.
        stdout: Captured stdout.
        stderr: Captured stderr.
        problem: ``oom_killed``, ``disk_limit_exceeded`` or ``supervisor_killed`` where that
            ended it, else empty.
        egress: What the gateway says of the launch; None without a network.
        last_words: Last line of stderr, cut and printable; empty where nothing was said.
    """

    launch: int
    command: CommandReport
    candidate: SealedCandidate | None
    facts: PodFacts
    stdout: StreamInfo = StreamInfo()
    stderr: StreamInfo = StreamInfo()
    problem: str = ""
    egress: LaunchReport | None = None
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """A verifier launch that ended definitely.

    Attributes:
        launch: The verifier's launch number.
        passed: The verdict; false where there is none.
        metadata: What the verifier said, before redaction.
        command: Evidence about the check.
        facts: What the kubelet reported.
        stdout: Captured stdout of the check.
        stderr: Captured stderr of the check.
        problem: Empty with a verdict of its own; ``oom_killed``, ``disk_limit_exceeded``,
            ``supervisor_killed``, ``verifier_error``, or the failure_reason of a step before the
            check.
        message: One plain sentence where there is a problem.
        outcome: Outcome of a check with a problem, empty where the problem alone decides it.
        phase: failure_phase that goes with ``outcome``.
    """

    launch: int
    passed: bool
    metadata: Mapping[str, object]
    command: CommandReport
    facts: PodFacts
    stdout: StreamInfo = StreamInfo()
    stderr: StreamInfo = StreamInfo()
    problem: str = ""
    message: str = ""
    outcome: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """How an attempt ended.

    Attributes:
        key: The attempt.
        outcome: Contract 15.1.
        reason: failure_reason, empty where there is none.
        phase: failure_phase, empty where there is none.
        message: failure_message, empty where there is none.
        passed: The verdict, None where there is none.
        metadata: Verifier metadata where the operator itself judged, else empty.
    """

    key: AttemptKey
    outcome: Outcome
    reason: str = ""
    phase: str = ""
    message: str = ""
    passed: bool | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lost:
    """A launch that ended without a definite result.

    Attributes:
        launch: Which one.
        reason: failure_reason of outcome infrastructure (or provider).
        message: One plain sentence.
        at: When it was decided, seconds since the epoch.
        usage: What it asked its model provider, as far as nothing else in the journal says so.
        is_suspect: Whether what the agent left may have caused it, rather than the cluster.
    """

    launch: LaunchKey
    reason: str
    message: str
    at: float
    usage: Usage = Usage()
    is_suspect: bool = False


class Reading(StrEnum):
    """Whether what an attempt left is being read."""

    NONE = ""
    TOGETHER = "together"
    ALONE = "alone"


class Doubt(StrEnum):
    """What the operator's abnormal ends say of what an attempt left."""

    NONE = ""
    SUSPECTED = "suspected"
    """It was being read: it is read alone the next time."""
    CONDEMNED = "condemned"
    """It was being read alone: it is not read again."""


@dataclass(frozen=True, slots=True)
class AttemptHistory:
    """What the journal knows of one attempt.

    Attributes:
        key: The attempt.
        live: The launch that the cluster may know, or None.
        live_since: When that launch was journalled, seconds since the epoch.
        launches: How many launches were begun, of either role.
        retries: Launches lost to infrastructure trouble so far.
        provider_retries: Launches lost to an outage of the model provider so far.
        suspect: Roles of the launches lost so far to what the agent may have left, one each.
        last_lost: The latest lost launch, or None.
        production: The harness's result, or None.
        verification: The verifier's result, or None.
        finish: How it ended, or None.
        record_sha256: Digest of the record's line, empty until finished.
        started_at: When the first launch was journalled, seconds since the epoch, or None.
        finished_at: When the attempt was finished, or None.
        usage: What all its launches asked the model provider, lost ones included.
        reading: Whether what it left is being read.
        doubt: Whether that ended the operator.
    """

    key: AttemptKey
    live: LaunchKey | None = None
    live_since: float = 0.0
    launches: int = 0
    retries: int = 0
    provider_retries: int = 0
    suspect: tuple[Role, ...] = ()
    last_lost: Lost | None = None
    production: HarnessResult | None = None
    verification: VerifierResult | None = None
    finish: Finish | None = None
    record_sha256: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    usage: Usage = Usage()
    reading: Reading = Reading.NONE
    doubt: Doubt = Doubt.NONE

    @property
    def has_texts(self) -> bool:
        """Whether its record has texts to read."""
        return self.production is not None and self.doubt is not Doubt.CONDEMNED

    @property
    def lost(self) -> int:
        """Launches lost so far, for whatever reason; the next one has the number after it."""
        return self.retries + self.provider_retries + len(self.suspect)
