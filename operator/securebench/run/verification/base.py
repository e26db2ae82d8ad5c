"""What a kind of verification is.

A task's plan holds one ``Verification``. The loop asks it for everything that depends on how a
candidate is judged: the Pod, how that Pod's end is read, what is added to a sealed candidate, the
verdict, and the fields of a record. A kind never reads the volume or the cluster itself: ``Folder``
and ``Left`` are what it may read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from securebench.benchmark.families.registry import FAMILIES
from securebench.errors import InvariantViolationError
from securebench.reasons import EMPTY_CANDIDATE, FailurePhase
from securebench.run.api.field_types import Outcome
from securebench.run.layout import VERIFIER
from securebench.run.observe.stage import supervised_end
from securebench.run.state.attempts import Finish

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.protocol.grading import Grading
    from securebench.protocol.supervise import ArtifactSpec
    from securebench.run.observe.pods import ContainerView, PodView, Terminated
    from securebench.run.observe.stage import Ended, Interrupted
    from securebench.run.plan.environment import Environment
    from securebench.run.plan.kinds import PlanRequest
    from securebench.run.plan.model import AttemptKey, ClusterFacts, LaunchKey, RunPlan, TaskPlan
    from securebench.run.state.attempts import SealedCandidate, VerifierResult


MAX_BATCH_MEMBERS = 32
"""Launches of one batch: each is two mounts and about 300 bytes of the Pod."""


class SharedPodLostError(Exception):
    """A Pod of several candidates has no verdict for one of them: each is judged alone again."""


@dataclass(frozen=True, slots=True)
class Member:
    """One candidate to judge.

    Attributes:
        task: It has a verification.
        launch: Role ``verifier``.
        lanes: What lies on the volume for the task.
        candidate: What the harness left; it has a file.
    """

    task: TaskPlan
    launch: LaunchKey
    lanes: LaneSet
    candidate: SealedCandidate


class Folder(Protocol):
    """The folder of a sealed candidate."""

    def read(self, name: str) -> bytes:
        """Return the content of a file that the courier sealed."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the candidate, durably; writing it again replaces it."""
        ...


class Left(Protocol):
    """What a verifier launch left."""

    @property
    def launch(self) -> LaunchKey:
        """The launch."""
        ...

    @property
    def batch(self) -> LaunchKey | None:
        """First of the launches that shared the Pod, or None."""
        ...

    @property
    def view(self) -> PodView:
        """The Pod."""
        ...

    @property
    def code(self) -> int:
        """Exit code of the container whose end is the launch's end."""
        ...

    def message(self, container: str) -> str:
        """Return the termination message of a container; empty without one."""
        ...

    def read(self, launch: LaunchKey, name: str, most_bytes: int) -> bytes:
        """Return what a launch collected in its folder of verification.

        Args:
            launch: This launch, or the first of its batch.
            name: Name of a regular file.
            most_bytes: At most this many bytes and one more are read.

        Raises:
            FileNotFoundError: There is no such file.
            DigestMismatchError: It is no regular file.
        """
        ...


class Verification(ABC):
    """How the candidates of one task are judged; frozen, and equal for equal rows."""

    name: ClassVar[str]
    """As families and entry points name the kind."""
    description: ClassVar[str]
    """What the verifier does, for people who write packs."""
    container: ClassVar[str] = VERIFIER
    """The container whose end is the launch's end."""
    has_courier: ClassVar[bool] = True
    """Whether a courier collects what the Pod printed and left."""
    is_batched: ClassVar[bool] = False
    """Whether candidates of several tasks may share a Pod."""

    @property
    def runs_in_task_image(self) -> bool:
        """Whether verdicts of another image than the harness's do not count."""
        return True

    @property
    def artifacts(self) -> tuple[ArtifactSpec, ...] | None:
        """What alone of the agent's container is judged; None: what its kind of candidate says."""
        return None

    @classmethod
    @abstractmethod
    def planned(cls, request: PlanRequest) -> Verification | None:
        """Return the verification of a row; None if the row has a configuration error."""

    @property
    def time_limit_seconds(self) -> float | None:
        """Time limit of the row's own check, or None."""
        return None

    @property
    def checkout(self) -> str:
        """Absolute folder of the image in which the agent works, or empty for the workspace."""
        return ""

    def environment(self, plan: RunPlan, task: TaskPlan) -> Environment:  # noqa: ARG002
        """Return in what candidates are judged, with the image that ends the launch."""
        return task.environment

    @abstractmethod
    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> dict[str, object]:
        """Return the Pod of a verifier launch.

        Args:
            plan: The run.
            first: The launch after which the Pod is named.
            members: What is judged; exactly one unless the kind is batched.
            facts: What is known of the cluster.
        """

    def main(self, view: PodView) -> ContainerView | None:
        """Return the container whose end is the launch's end."""
        return view.containers.get(self.container)

    def ended(self, view: PodView, end: Terminated) -> Interrupted | Ended:
        """Return how a launch ended whose container ended."""
        return supervised_end(view, end)

    def sealed(self, candidate: SealedCandidate, folder: Folder) -> SealedCandidate:  # noqa: ARG002
        """Return a candidate of text with what the operator itself finds in it."""
        return candidate

    def rejected(
        self,
        task: TaskPlan,  # noqa: ARG002 - the checks of others depend on it
        key: AttemptKey,
        candidate: SealedCandidate,
    ) -> Finish | None:
        """Return the end of an attempt whose candidate needs no Pod, or None."""
        return blank_end(key, candidate)

    @abstractmethod
    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the result of a launch that ended definitely and without a problem of its Pod.

        Raises:
            BadMessageError: What the Pod reports cannot be read; the launch is lost.
            DigestMismatchError: What it left is damaged; the launch is lost.
            SharedPodLostError: Its batch is lost.
        """

    def metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult | None,
        finish: Finish,
        candidate: str | bytes | None,
    ) -> dict[str, object]:
        """Return the verifier metadata of a record, before redaction.

        Args:
            task: The attempt's task.
            verification: The result of its verifier; None without one.
            finish: How the attempt ends.
            candidate: Text of the candidate; None for a workspace, or where there is none.
        """
        if verification is None:
            return dict(finish.metadata)
        return {
            "verifier": task.task.task_type,
            **verification.metadata,
            **FAMILIES[task.task.task_type].record_metadata(task.task),
            **self.own_metadata(task, verification, candidate),
        }

    def own_metadata(
        self,
        task: TaskPlan,  # noqa: ARG002 - kinds choose
        verification: VerifierResult,  # noqa: ARG002
        candidate: str | bytes | None,  # noqa: ARG002
    ) -> Mapping[str, object]:
        """Return what the kind adds to the metadata of a verdict."""
        return {}

    def grading(self, verification: VerifierResult) -> Grading | None:  # noqa: ARG002
        """Return what a verdict rests on, or None where it compares texts."""
        return None


def verifier_pod(
    plan: RunPlan, members: Sequence[Member], facts: ClusterFacts
) -> dict[str, object]:
    """Return the Pod of a verifier launch, named after its first member.

    Raises:
        InvariantViolationError: There is nothing to judge, or nothing that judges.
    """
    first = members[0]
    verification = first.task.verification
    if verification is None:
        raise InvariantViolationError("this task has no verifier Pod", task=first.task.index)
    if any(member.candidate.file is None for member in members):
        raise InvariantViolationError("a verifier needs a candidate's file", task=first.task.index)
    return verification.pod(plan, first.launch, members, facts)


def agent_end(key: AttemptKey, reason: str, phase: str, message: str) -> Finish:
    """Return the end of an attempt that failed by what the agent left."""
    return Finish(key, Outcome.AGENT, reason, phase, message, passed=False)


def blank_end(key: AttemptKey, candidate: SealedCandidate) -> Finish | None:
    """Return the end of an attempt whose candidate holds nothing but white space, else None."""
    if not candidate.is_blank:
        return None
    return agent_end(key, EMPTY_CANDIDATE, FailurePhase.VERIFICATION, "the candidate is empty")
