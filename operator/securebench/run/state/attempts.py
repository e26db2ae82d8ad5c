"""The state of an attempt: results of its launches, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from securebench.protocol.gateway import LaunchReport
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role

SANDBOX_KERNEL = "gvisor"
"""Part of the kernel release that gVisor shows to a Pod."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One captured stream on the volume.

    Attributes:
        size_bytes: Size before truncation.
        truncated: Whether the stored text is incomplete.
    """

    size_bytes: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class DiffReport:
    """What supervise reported about the diff of a checkout; evidence, never a verdict.

    Attributes:
        exit_code: Exit code of git, or None if git itself did not fail.
        stderr: Git's stderr, or why there is no diff; bounded by supervise, otherwise unchecked.
        baseline: State of the checkout before the command: ``clean``, ``committed`` (it had
            changes, which count as part of the baseline) or empty.
    """

    exit_code: int | None
    stderr: str
    baseline: str = ""


class Loss(NamedTuple):
    """What of a workspace did not reach the check.

    Attributes:
        path: Of the entry; supervise escaped and shortened it.
        reason: Why, in a few words.
    """

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommandReport:
    """What supervise reported about a command; evidence, never a verdict.

    Attributes:
        exit_code: The command's own exit code, or None.
        timed_out: Whether it was killed at its time limit.
        duration_seconds: Wall-clock time.
        phase: Name of the last phase that ran.
        error: One line for the user, or empty.
        commit: Commit of the image's repository, or empty.
        unstarted: Whether the command does not exist or cannot be executed; ``error`` says which.
        memory_kills: Processes killed at the memory limit; also 0 if the container cannot tell.
        grading: What the verdict rests on, and of which form the candidate was (``values-fenced``),
            if the command proved its end and said so.
        diff: Report on the diff of the image's repository, if one was made.
        dropped_entries: Links of the candidate that a check does not get.
        dropped: The first of them.
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
    grading: str = ""
    dropped_entries: int = 0
    dropped: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class SealedPatch:
    """Result of the static checks of a candidate patch.

    Attributes:
        problem: failure_reason if the patch is rejected, else empty. The digests are empty then.
        phase: failure_phase of the problem.
        message: The problem in one plain sentence.
        applied_digest: ``sha256:…`` of ``applied.patch``.
        declared_digest: ``sha256:…`` of ``declared.json``.
    """

    problem: str = ""
    phase: str = ""
    message: str = ""
    applied_digest: str = ""
    declared_digest: str = ""


@dataclass(frozen=True, slots=True)
class SealedCandidate:
    """A candidate that the courier sealed and whose digest the operator verified.

    Attributes:
        launch: Launch that produced it.
        file: ``candidate.txt``, ``workspace.tar`` or None.
        digest: ``sha256:…`` of that file, empty without one.
        size_bytes: Size of that file.
        candidate_sha256: Digest of the candidate itself (contract 13.3).
        dropped_entries: Entries left out of a workspace.
        problem: None or a failure_reason of contract 13.1.
        message: The problem in one plain sentence.
        is_blank: Whether a text is only white space.
        patch: Present if the text is a patch to a repository.
        dropped: The first of what was left out of a workspace, set-id bits included.
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
    dropped: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What the kubelet, and the courier inside the Pod, reported about a launch.

    Attributes:
        image_id: Resolved image of the untrusted container.
        node: Node name.
        runtime_class: Runtime class of the Pod, or empty.
        user_namespace: Whether the Pod had its own user namespace.
        started_at: Start of the untrusted container, seconds since the epoch, or None.
        finished_at: Its end, or None.
        kernel: Kernel release that the courier saw inside the Pod, or empty.
    """

    image_id: str = ""
    node: str = ""
    runtime_class: str = ""
    user_namespace: bool = False
    started_at: float | None = None
    finished_at: float | None = None
    kernel: str = ""


class Runtime(StrEnum):
    """Container runtime of a Pod, as seen from inside."""

    GVISOR = "gvisor"
    RUNC = "runc"
    """An ordinary kernel: no sandbox was detected, whatever the runtime class is called."""
    UNKNOWN = "unknown"
    """No Pod reported its kernel."""


def runtime_of(kernel: str) -> Runtime:
    """Return the runtime of a Pod from the kernel release measured inside it; it may be empty."""
    if not kernel:
        return Runtime.UNKNOWN
    return Runtime.GVISOR if SANDBOX_KERNEL in kernel else Runtime.RUNC


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a model provider, by one launch or several.

    Attributes:
        requests: Requests sent to the provider, including failed ones.
        input_tokens: Including cached ones.
        cached_tokens: The part of the input that was cached.
        output_tokens: Over all answers.
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
    """Return a launch's usage of its model provider; zero without one."""
    relay = report.relay if report is not None else None
    if relay is None:
        return Usage()
    return Usage(relay.requests, relay.input_tokens, relay.cached_tokens, relay.output_tokens)


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """Result of a harness launch that ended conclusively.

    Attributes:
        launch: Number of the harness launch.
        command: Evidence about the command.
        candidate: The sealed candidate; None if none was extracted.
        problem: ``oom_killed``, ``disk_limit_exceeded`` or ``supervisor_killed`` if that ended the
            launch, else empty.
        egress: The gateway's report on the launch; None without egress.
        last_words: Last line of stderr, truncated and printable; empty if there was none.
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


def was_refused_by_run_budget(production: HarnessResult | None) -> bool:
    """Return whether the agent was refused a request because the run's budget was used up."""
    relay = production.egress.relay if production is not None and production.egress else None
    return relay is not None and relay.run_budget_exhausted


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """Result of a verifier launch that ended conclusively.

    Attributes:
        launch: Number of the verifier launch.
        passed: The verdict; false if there is none.
        metadata: The verifier's metadata, before redaction.
        command: Evidence about the check.
        problem: Empty if the verifier reached a verdict; else ``oom_killed``,
            ``disk_limit_exceeded``, ``supervisor_killed``, ``verifier_error``, or the
            failure_reason of a step before the check.
        message: The problem in one plain sentence.
        outcome: Outcome of a check with a problem; empty if the problem alone determines it.
        phase: failure_phase that belongs to ``outcome``.
        score: Reward of a script, any finite number; None where the verdict is the whole score.
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
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """How an attempt ended.

    Attributes:
        key: The attempt.
        reason: failure_reason or empty.
        phase: failure_phase or empty.
        message: failure_message or empty.
        passed: The verdict, or None.
        metadata: Verifier metadata if the operator itself reached the verdict, else empty.
        grading: ``labels.grading`` of its record; empty for a record without it.
        score: Reward of a script; None where the verdict is the whole score.
    """

    key: AttemptKey
    outcome: Outcome
    reason: str = ""
    phase: str = ""
    message: str = ""
    passed: bool | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    grading: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A launch that ended without a conclusive result.

    Attributes:
        reason: failure_reason of outcome infrastructure or provider.
        message: One plain sentence.
        at: When it was declared lost, seconds since the epoch.
        usage: Its usage of the model provider, unless another journal entry already counts it.
        is_suspect: Whether the agent's output may have caused the loss, rather than the cluster.
        is_shared: Whether the launch shared its Pod, or an outage of the whole run, so that the
            loss is not held against it.
    """

    launch: LaunchKey
    reason: str
    message: str
    at: float
    usage: Usage = Usage()
    is_suspect: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class ProducerNetwork:
    """What was known of the network of an earlier run while it produced a candidate.

    Attributes:
        verified: Whether its policy was proven to be enforced.
        node_reachable: Whether its canary reached the node.
    """

    verified: bool = False
    node_reachable: bool = False


@dataclass(frozen=True, slots=True)
class QueuedState:
    """No launch is under way, nothing was handed in: before the first launch, or after a loss."""


QUEUED = QueuedState()


@dataclass(frozen=True, slots=True)
class ProducedState:
    """The harness has handed something in, which is judged next.

    Attributes:
        production: The harness's result.
        at: When that was journalled, seconds since the epoch, or 0.
    """

    production: HarnessResult
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class LaunchedState:
    """A launch is under way: its Pod may exist in the cluster.

    Attributes:
        since: When it was journalled, seconds since the epoch.
        batch: First launch of its batch; None if it has its own Pod.
        before: The state to which the attempt returns if the launch is lost.
    """

    launch: LaunchKey
    since: float = 0.0
    batch: LaunchKey | None = None
    before: QueuedState | ProducedState = QUEUED

    @property
    def pod(self) -> LaunchKey:
        """The launch after which the Pod is named: the first one of a batch."""
        return self.launch if self.batch is None else self.batch


@dataclass(frozen=True, slots=True)
class JudgedState:
    """The verifier has given its result; the record comes next.

    Attributes:
        produced: What was judged.
        verification: The verifier's result.
    """

    produced: ProducedState
    verification: VerifierResult


@dataclass(frozen=True, slots=True)
class FinishedState:
    """The attempt has its record, which holds what production and verification reported.

    Attributes:
        finish: How it ended.
        record_sha256: Digest of the record's line.
        at: When it ended, seconds since the epoch; None for a record of an earlier run.
        kept_of: Uid of the earlier run from which the record was taken over; empty for none.
        produced: What its harness handed in, in a ``whole_history`` only.
    """

    finish: Finish
    record_sha256: str = ""
    at: float | None = None
    kept_of: str = ""
    produced: ProducedState | None = None


OpenState = QueuedState | LaunchedState | ProducedState | JudgedState

AttemptState = OpenState | FinishedState


class AttemptHistory(NamedTuple):
    """One attempt, as folded from the journal: its state, and its launches so far.

    A tuple, since each entry of a journal makes a copy: of a dataclass it takes ten times as long.

    Attributes:
        state: What is under way or known.
        launches: Number of the last launch, of either role.
        retries: Roles of the launches lost to infrastructure failures so far.
        provider_retries: Launches lost to outages of the model provider so far.
        shared: Launches lost so far together with others of their batch, or of the run.
        suspect: Roles of the launches lost so far, possibly because of the agent's output.
        last_lost: The latest lost launch, or None.
        started_at: When the first launch was journalled, seconds since the epoch, or None.
        usage: Model provider usage of all its launches, including lost ones.
        network: Network of the earlier run that sealed its candidate; None unless it was taken
            over.
    """

    key: AttemptKey
    state: AttemptState = QUEUED
    launches: int = 0
    retries: tuple[Role, ...] = ()
    provider_retries: int = 0
    suspect: tuple[Role, ...] = ()
    last_lost: Lost | None = None
    started_at: float | None = None
    usage: Usage = Usage()
    shared: int = 0
    network: ProducerNetwork | None = None

    @property
    def launched(self) -> LaunchedState | None:
        """The launch that is under way, or None."""
        return self.state if isinstance(self.state, LaunchedState) else None

    @property
    def live(self) -> LaunchKey | None:
        """Key of the launch that is under way, or None."""
        return self.state.launch if isinstance(self.state, LaunchedState) else None

    @property
    def pod(self) -> LaunchKey | None:
        """The launch after which the Pod of the launch under way is named, or None."""
        return self.state.pod if isinstance(self.state, LaunchedState) else None

    @property
    def produced(self) -> ProducedState | None:
        """What the harness has handed in, or None; once it ended as of ``FinishedState``."""
        match self.state:
            case (
                (ProducedState() as found)
                | LaunchedState(before=ProducedState() as found)
                | JudgedState(found)
            ):
                return found
            case FinishedState() as finished:
                return finished.produced
            case _:
                return None

    @property
    def production(self) -> HarnessResult | None:
        """The harness's result, or None; as of ``produced``."""
        produced = self.produced
        return produced.production if produced is not None else None

    @property
    def verification(self) -> VerifierResult | None:
        """The verifier's result, or None; also None once the attempt has its record."""
        return self.state.verification if isinstance(self.state, JudgedState) else None

    @property
    def finish(self) -> Finish | None:
        """How the attempt ended, or None."""
        return self.state.finish if isinstance(self.state, FinishedState) else None

    @property
    def is_untouched(self) -> bool:
        """Whether its candidate was taken over from an earlier run and nothing began since."""
        return self.network is not None and self.launches == 0

    @property
    def lost(self) -> int:
        """Launches lost so far, for any reason."""
        return len(self.retries) + self.provider_retries + len(self.suspect) + self.shared
