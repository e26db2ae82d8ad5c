"""Specifications for the program supervise: a class for each verb, encoded by ``messages``.

The Go structs that read them are generated from these classes by ``reference.go_structs``
(``images/supervise/internal/specs/generated.go``): names, types, comments, which fields may be
missing, and which texts a field takes. Source: docs/reference/protocol.md, "supervise".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Final, Literal

from securebench.protocol.candidate import CandidateBounds, Extraction, ExtractionMode, Size
from securebench.protocol.messages import Absolute, AbsoluteOrNone, DigestedPath, Relative

PROBE_TRY_SECONDS = 2
"""Of one try; targets are inside the cluster or answer within this time."""

CANARY_QUIET_SECONDS = 2.0
"""Silence after which a canary is sure, if the control had its answers in half of the time."""

CANARY_SETTLE_SECONDS = 8
"""For policy and network to reach a new Pod, besides the silence."""

CANARY_GATEWAY_SECONDS = 28
"""The same for the first canary of a run, beside which the gateway is started."""

GATEWAY_TARGET = "gateway"
"""Name of the target that must be open; that of no other one."""

KUBELET_TARGET = "kubelet"
"""Name of the target on the operator's node; a network plugin may let a Pod reach its own node."""


ProbedState = Literal["open", "closed"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One address that a canary or a control tries.

    Attributes:
        name: Unique among the targets; stands in the condition.
        host: Numeric address: the Pods have no resolver.
        port: From 1 to 65535.
        protocol: ``tcp`` (open when a connection is accepted) or ``udp`` (a DNS server; open
            when it answers a query).
    """

    name: str
    host: str
    port: int
    protocol: Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True)
class ProbeTarget(TargetSpec):
    """One address that a harness must not reach.

    Attributes:
        is_node: Whether it is the operator's node, which a run may allow its Pods to reach.
    """

    is_node: bool = False

    @property
    def authority(self) -> str:
        """Host and port as one word."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A folder whose content is copied into another one, before the phases.

    Attributes:
        source: Absolute folder.
        to: Absolute folder that gets a copy of each entry.
    """

    source: Absolute
    to: Absolute


@dataclass(frozen=True, slots=True)
class CopySpec(Transfer):
    """``copy``: the same as a job of its own."""

    verb: ClassVar = "copy"


@dataclass(frozen=True, slots=True)
class CandidateSpec(DigestedPath):
    """A sealed workspace that is unpacked before the phases.

    Attributes:
        to: Absolute folder for what it holds.
    """

    to: Absolute


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """A path that is kept as it is in the end, with everything below it.

    Attributes:
        source: Absolute, or relative to the working folder of the last phase.
        exclude: Patterns of tar for what is left out of a folder.
    """

    source: str
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RootSpec:
    """How the changes of the root file system become an archive beside the streams.

    Mounts and what the kernel shows of itself are never part of it.

    Attributes:
        excluded: Further absolute paths that are not part of it.
        bytes: Most bytes of contents and names.
        entries: Most entries, those that are gone too.
        artifacts: What is kept, changed or not; without any the changes are. One may be a mount.
    """

    excluded: tuple[Absolute, ...]
    bytes: Size
    entries: Size
    artifacts: tuple[ArtifactSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class RootChangesSpec(DigestedPath):
    """Sealed changes of a root file system that are made before the phases.

    Attributes:
        excluded: Absolute paths at and below which nothing is changed.
        tools: Names of programs that stay the image's, with what they load. The interpreters of
            scripts among the phases do so too.
        user: With whose rights they are made, a name of the image or a number; empty: with those
            of supervise.
        replaces: Whether a folder that is above all others of the archive is emptied before.
    """

    excluded: tuple[Absolute, ...]
    tools: tuple[str, ...]
    user: str = ""
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """One command that supervise runs.

    Attributes:
        name: As the termination message has it.
        command: The argv.
        workdir: Absolute working folder.
        timeout_seconds: Time limit, or None.
        env: Variables besides those of the image.
        script: Whether the command's file is started by its #! line; it needs no mode.
        interpreter: Program for a script without such a line, if the image has it; else sh.
        user: User and group; 0 for those of supervise.
        proof: What stderr says when the command ends without proof that it completed; empty for
            one that gives none.
        search: Folders with programs, looked into after those of the PATH.
        ready: Whether its program must be there before the candidate is.
        guarded: Whether what the command starts is kept from the memory of its process.
        sources: Text for ``-c`` of a script's own Python: it compiles the script before that.
    """

    name: str
    command: tuple[str, ...]
    workdir: str
    timeout_seconds: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    script: bool = False
    interpreter: str = ""
    user: Annotated[int, "uint32"] = 0
    proof: str = ""
    search: tuple[Absolute, ...] = ()
    ready: bool = False
    guarded: bool = False
    sources: str = ""


@dataclass(frozen=True, slots=True)
class StreamsSpec:
    """How much of the last phase's output is kept.

    Attributes:
        folder: Absolute folder for it, or empty: nothing is kept.
        head_bytes: Most bytes of the beginning of each stream.
        tail_bytes: Most bytes of the end of each stream that is longer.
    """

    folder: AbsoluteOrNone
    head_bytes: int
    tail_bytes: int


@dataclass(frozen=True, slots=True)
class PatchField:
    """A patch that is text in a file with an object of JSON.

    Attributes:
        path: Absolute path of the file.
        field: Its key.
    """

    path: Absolute
    field: str


@dataclass(frozen=True, slots=True)
class RepositorySpec:
    """How the image's repository is made ready before the phase that checks it.

    Attributes:
        workdir: Absolute folder of the checkout.
        scratch: Absolute folder for a git directory of supervise's own.
        base_commit: Full hash, to which the checkout must be.
        timeout_seconds: Time limit of each step.
        setup_patch: Patch of the author, applied first.
        candidate: File with the patch of the candidate.
        declared: File that says what this patch changes.
        test_patch: Patch of the author, applied last.
        control: Test that must fail, applied with it.
        compile: Precheck to which the tests of ``test_patch`` are added.
    """

    workdir: str
    scratch: Absolute
    base_commit: str
    timeout_seconds: float
    candidate: DigestedPath
    declared: DigestedPath
    setup_patch: PatchField | None = None
    test_patch: PatchField | None = None
    control: PatchField | None = None
    compile: Phase | None = None


@dataclass(frozen=True, slots=True)
class DiffSpec:
    """How the changes of a checkout become a patch beside the streams.

    Attributes:
        workdir: Absolute folder of the checkout.
        scratch: Absolute folder for a git directory of supervise's own.
        timeout_seconds: Time limit of each step.
        bytes: Most bytes of the patch; one more is kept of a longer one.
    """

    workdir: Absolute
    scratch: Absolute
    timeout_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """Where a script leaves its reward, which is kept beside the streams.

    Attributes:
        folder: Absolute folder.
        files: Names in it; the first that is there counts, whatever it is.
        bytes: Most bytes of it.
    """

    folder: Absolute
    files: tuple[Relative, ...]
    bytes: Size


@dataclass(frozen=True, slots=True)
class RunSpec:
    """``run``: stages inputs, runs phases, and keeps what the last one said.

    Attributes:
        streams: What is kept of the last phase.
        temporary: Absolute folder for everybody's temporary files, or empty.
        probes: ``host:port`` of each address that must be closed.
        probe_timeout_seconds: How long that is waited for.
        max_processes: Most processes of the user; 0 for no limit.
        verdict: Whether the last phase's exit code is the verdict.
        lanes: Compared with their digests first.
        candidate: Unpacked before the phases, or None.
        copies: Made after that.
        protected: Absolute mount points, into which nothing is staged.
        home: Absolute home of the phases, or empty for the image's.
        repository: The checkout that is checked; there is one phase then.
        prechecks: What examines the pack's own part before the candidate is there.
        phases: Run one after the other; at least one.
        holds: Absolute folder on which a lock is held to the end, or empty.
        needs: Absolute path of a file that another container makes before the candidate is brought
            and the phases begin, or empty.
        needs_seconds: How long that is waited for; 0 without a file.
        linger: Whether the program stays until it gets a signal to stop.
        once: Absolute folder that the first start removes, or empty; later ones run nothing.
        serves: The folder that the container which this one serves holds, or empty.
        open_modes: Absolute folders that everybody may read in the end.
        awaits: ``host:port`` of each sidecar that must accept connections first.
        diff: The checkout whose changes are kept, or None.
        user: Whom this process becomes when everything is staged, a name of the image or a number;
            empty: it stays who it is.
        root: How the changes of the root file system are kept, or None.
        changes: Changes of a root file system that are made before the phases, or None.
        reward: The reward that is kept, or None.
    """

    verb: ClassVar = "run"

    streams: StreamsSpec
    temporary: AbsoluteOrNone
    probes: tuple[str, ...]
    probe_timeout_seconds: float
    max_processes: Annotated[int, "uint64"]
    verdict: bool = False
    lanes: tuple[DigestedPath, ...] = ()
    candidate: CandidateSpec | None = None
    copies: tuple[Transfer, ...] = ()
    protected: tuple[Absolute, ...] = ()
    home: AbsoluteOrNone = ""
    repository: RepositorySpec | None = None
    prechecks: tuple[Phase, ...] = ()
    phases: tuple[Phase, ...] = ()
    holds: AbsoluteOrNone = ""
    needs: AbsoluteOrNone = ""
    needs_seconds: float = 0.0
    linger: bool = False
    once: AbsoluteOrNone = ""
    serves: AbsoluteOrNone = ""
    open_modes: tuple[Absolute, ...] = ()
    awaits: tuple[str, ...] = ()
    diff: DiffSpec | None = None
    user: str = ""
    root: RootSpec | None = None
    changes: RootChangesSpec | None = None
    reward: RewardSpec | None = None


@dataclass(frozen=True, slots=True)
class SealSpec:
    """How a candidate is sealed.

    Attributes:
        extraction: What is taken.
        limit_bytes: Bound of a candidate that is one file of text.
        exclude: Paths of the workspace that never belong to a candidate.
        live: Whether the streams are copied while the agent works.
    """

    extraction: Extraction
    limit_bytes: Size
    exclude: tuple[Relative, ...]
    live: bool = False


@dataclass(frozen=True, slots=True)
class CourierSpec:
    """``courier``: seals the candidate of a harness Pod, or keeps what a verifier Pod's check said.

    Attributes:
        limits: Bounds of what is kept.
        seal: What is sealed, or None in a verifier Pod.
        folders: Relative to the courier's root; made at once, in this order, for containers that
            wait for the last one.
    """

    verb: ClassVar = "courier"

    limits: CandidateBounds
    seal: SealSpec | None = None
    folders: tuple[Relative, ...] = ()


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a run's gateway listens.

    Attributes:
        host: Numeric: the Pod has no resolver.
        port: From 1 to 65535.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class EgressSpec:
    """``egress-proxy``: the sidecar of a harness Pod.

    Attributes:
        gateway: Gateway of the run.
        token: Absolute path of the file with the launch's token.
        listen: Port on the loopback by route (``protocol.gateway.Route``).
        connections: Open at once.
        start_seconds: For reaching the gateway at first.
        close_seconds: For telling it that the harness has ended.
    """

    verb: ClassVar = "egress-proxy"

    gateway: GatewayAddress
    token: Absolute
    listen: Mapping[str, int]
    connections: int
    start_seconds: float
    close_seconds: float


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """``probe``: tries targets until their state is sure.

    Attributes:
        want: ``messages.CLOSED`` for a canary, ``messages.OPEN`` for a control.
        timeout_seconds: For the answer to one try.
        quiet_seconds: Silence after which a canary is sure.
        limit_seconds: For everything; more than ``quiet_seconds``.
        targets: At least one.
        must_open: Further ones that a canary must reach.
    """

    verb: ClassVar = "probe"

    want: ProbedState
    timeout_seconds: float
    quiet_seconds: float
    limit_seconds: float
    targets: tuple[TargetSpec, ...]
    must_open: tuple[TargetSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateSource:
    """What the Pod of an agent has for the source of its candidate.

    Attributes:
        is_image: Whether the agent works on the image's own files, whose root it may write then.
        scratch: Absolute folder that is a volume for supervise's use, as large as a workspace; or
            empty.
        seconds: Time that supervise takes for it, before and after the commands.
        bound: Field of ``CandidateBounds``: the size of the file that supervise writes beside the
            streams. Empty if it writes none.
        entry_bytes: What each entry of a tree takes in this file besides.
        excluded: Paths below ``/`` that never belong to the candidate, of a source that is not the
            workspace.
        is_stream: Whether it is what the command prints.
        added: The specification with what supervise does for it, from the one without, the working
            folder and the bounds.
    """

    is_image: bool = False
    scratch: str = ""
    seconds: float = 0.0
    bound: str = ""
    entry_bytes: int = 0
    excluded: tuple[Relative, ...] = ()
    is_stream: bool = False
    added: Callable[[RunSpec, str, CandidateBounds], RunSpec] = lambda spec, *_: spec

    def file_bytes(self, bounds: CandidateBounds) -> int:
        """Return the size of what supervise writes beside the streams."""
        if not self.bound:
            return 0
        return int(getattr(bounds, self.bound)) + self.entry_bytes * bounds.workspace_files


BASELINE: Final = "/opt/securebench/baseline"
"""In a harness container: git objects of the checkout as it was before the command."""

DIFF_SECONDS: Final = 120.0
"""Of one git command on the checkout, before and after the agent."""


def _with_diff(spec: RunSpec, workdir: str, bounds: CandidateBounds) -> RunSpec:
    return replace(spec, diff=DiffSpec(workdir, BASELINE, DIFF_SECONDS, bounds.patch_bytes))


ROOT_SECONDS: Final = 150.0
"""Of one reading of a root file system, before and after the agent."""

ROOT_ENTRY_BYTES: Final = 4096
"""Headers and long names of an entry in an archive of changes."""

ROOT_EXCLUDED: Final[tuple[Absolute, ...]] = (
    "/opt/securebench",
    "/securebench-workspace",
    "/tests",
    "/logs",
    "/solution",
)
"""Places of the framework and of the tests: never part of what an agent changed."""

ROOT_TOOLS: Final = ("bash", "sh", "env")
"""Programs that start a test script; they stay the image's, with what they load."""


def _with_root(spec: RunSpec, _workdir: str, bounds: CandidateBounds) -> RunSpec:
    root = RootSpec(ROOT_EXCLUDED, bounds.workspace_bytes, bounds.workspace_files)
    return replace(spec, root=root)


def root_changes(candidate: DigestedPath, user: str = "") -> RootChangesSpec:
    """Return how sealed changes are made in the root file system of a check.

    Args:
        candidate: Where the check has them.
        user: Whom the agent worked as; empty for the image's own user.
    """
    return RootChangesSpec(candidate.path, candidate.digest, ROOT_EXCLUDED, ROOT_TOOLS, user)


ARTIFACTS_EXCLUDED: Final[tuple[Absolute, ...]] = (
    "/opt/securebench",
    "/securebench-workspace",
    "/tests",
    "/logs/verifier",
    "/solution",
)
"""Places of the framework and of the tests: never part of an artifact."""


def with_artifacts(spec: RunSpec, artifacts: tuple[ArtifactSpec, ...]) -> RunSpec:
    """Return the specification of an agent of whom only artifacts are kept."""
    if spec.root is None:
        return spec
    root = replace(spec.root, excluded=ARTIFACTS_EXCLUDED, artifacts=artifacts)
    return replace(spec, root=root)


def artifacts_put(candidate: DigestedPath) -> RootChangesSpec:
    """Return how sealed artifacts are put into the image of a check.

    Args:
        candidate: Where the check has them.
    """
    return RootChangesSpec(
        candidate.path, candidate.digest, ARTIFACTS_EXCLUDED, ROOT_TOOLS, replaces=True
    )


SOURCES: Final[Mapping[ExtractionMode, CandidateSource]] = {
    ExtractionMode.STDOUT: CandidateSource(is_stream=True),
    ExtractionMode.FILE: CandidateSource(),
    ExtractionMode.GIT_DIFF: CandidateSource(
        is_image=True,
        scratch=BASELINE,
        seconds=2 * DIFF_SECONDS,
        bound="patch_bytes",
        added=_with_diff,
    ),
    ExtractionMode.WORKSPACE: CandidateSource(),
    ExtractionMode.ROOT: CandidateSource(
        is_image=True,
        seconds=2 * ROOT_SECONDS,
        bound="workspace_bytes",
        entry_bytes=ROOT_ENTRY_BYTES,
        excluded=tuple(place.removeprefix("/") for place in ROOT_EXCLUDED),
        added=_with_root,
    ),
    ExtractionMode.UNSUPPORTED: CandidateSource(),
}
"""Every source of candidates; Pods, plans and records ask nothing else of a source."""


SuperviseSpec = CopySpec | RunSpec | CourierSpec | EgressSpec | ProbeSpec
