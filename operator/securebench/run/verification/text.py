"""Texts that a scorer compares with answers; candidates of several tasks may share a Pod.

The scorers run in a Pod that has answers and candidates read-only and nothing else. A batch writes
its verdicts into its first launch's folder of verification, and its message names their digest.
Whatever does not hold together makes the whole batch lost: its members are judged alone, and nobody
is blamed.

Source: decision 0061.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from securebench.digests import content_digest
from securebench.errors import DigestMismatchError
from securebench.names import MEMBERS_ANNOTATION
from securebench.protocol.grading import (
    MEMBER_BYTES,
    MEMBER_SECONDS,
    VERDICTS_FILE,
    VERDICTS_FOLDER,
    MemberSpec,
    TextSpec,
    decode_verdicts,
)
from securebench.protocol.messages import DigestedPath
from securebench.reasons import VERIFIER_ERROR
from securebench.run import layout
from securebench.run.artifacts import Mount, Part, Taken
from securebench.run.observe.pods import PodView, Terminated
from securebench.run.observe.stage import (
    DEADLINE_REASON,
    Ended,
    Interrupted,
    ended_alone,
    interruption,
)
from securebench.run.observe.termination import BadMessageError, text_verdict, verdicts_digest
from securebench.run.plan.environment import Environment
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import ClusterFacts, LaunchKey, RunPlan, TaskPlan, member_name
from securebench.run.pods import volumes
from securebench.run.pods.containers import module_argv, trusted_container
from securebench.run.pods.frame import Containers, Manifest, launch_frame, pod
from securebench.run.pods.volumes import candidate_file, candidate_mount, lane_mount
from securebench.run.state.attempts import VerifierResult
from securebench.run.state.entries import OOM_REASON
from securebench.run.verification.base import (
    MAX_BATCH_MEMBERS,
    Left,
    Member,
    SharedPodLostError,
    Verification,
)

TEXT_SECONDS = 120
"""Seconds of a text verifier, which computes for milliseconds."""

MOST_BYTES = MAX_BATCH_MEMBERS * MEMBER_BYTES

KILLED = frozenset({137, 143})
"""Exit codes after SIGKILL and SIGTERM; nothing in a text verifier's container sends them."""


@dataclass(frozen=True)
class TextVerification(Verification):
    """A scorer of the family compares the candidate with the row's answers."""

    name = "text"
    description = "compares texts, no code of the agent runs"
    has_courier = False
    is_batched = True

    @property
    def runs_in_task_image(self) -> bool:
        """Whether scorers run in the task's image: they run in none."""
        return False

    @classmethod
    def planned(cls, request: PlanRequest) -> TextVerification:  # noqa: ARG003 - no row has a choice
        """Return the one verification of texts."""
        return cls()

    def environment(self, plan: RunPlan, task: TaskPlan) -> Environment:
        """Return the image that has the scorers."""
        return replace(task.environment, image=plan.pods.text_verifier_image)

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return the Pod that judges candidates.

        Each member has two read-only mounts of its own. The only folder that a batch can write is
        its first launch's folder of verification; a Pod with one member can write nothing.
        """
        is_batch = len(members) > 1
        seconds = TEXT_SECONDS + (MEMBER_SECONDS * len(members)) * is_batch
        frame = launch_frame(plan, first, seconds, facts)
        if is_batch:
            names = " ".join(member_name(member.launch) for member in members)
            frame = replace(frame, annotations={**frame.annotations, MEMBERS_ANNOTATION: names})
        mounts: list[Mount] = [
            mount for number, each in enumerate(members) for mount in _mounts(plan, number, each)
        ]
        if is_batch:
            mounts.append(volumes.part_mount(plan, first, Part.VERIFICATION, VERDICTS_FOLDER))
        main = trusted_container(
            replace(plan.pods, image=plan.pods.text_verifier_image),
            layout.VERIFIER,
            volumes.container_resources(volumes.VERIFIER_REQUESTS, volumes.VERIFIER_LIMITS),
            mounts,
        )
        spec = TextSpec(tuple(_spec(number, member) for number, member in enumerate(members)))
        main["command"] = module_argv("grading.verify_text", spec)
        return pod(plan, frame, Containers(main))

    def ended(self, view: PodView, end: Terminated) -> Interrupted | Ended:
        """Return how the scorers ended; nothing of a candidate runs beside them."""
        if end.exit_code == 0:
            return Ended(0)
        if end.reason == OOM_REASON or view.disrupted or view.deleting_since is not None:
            return replace(interruption(view, end), is_suspect=ended_alone(view, end))
        if end.exit_code in KILLED and view.reason != DEADLINE_REASON:
            return interruption(view, end)
        message = f"the text verifier ended with exit code {end.exit_code}"
        return Ended(end.exit_code, VERIFIER_ERROR, message)

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the verdict of the termination message, or of the batch's file that it names."""
        message = left.message(self.container)
        if left.batch is not None:
            passed, metadata = _batch_verdict(left, left.batch, message)
            return replace(known, passed=passed, metadata=metadata)
        try:
            passed, metadata = text_verdict(message)
        except BadMessageError as error:
            message = f"the text verifier ended well and its verdict was lost: {error}"
            raise BadMessageError(message) from error
        return replace(known, passed=passed, metadata=metadata)

    def own_metadata(
        self,
        task: TaskPlan,  # noqa: ARG002 - the answer says it all
        verification: VerifierResult,  # noqa: ARG002
        candidate: str | bytes | None,
    ) -> Mapping[str, object]:
        """Return the answer that was judged."""
        given = candidate if isinstance(candidate, str) else ""
        return {"candidate_answer": given.strip()}


def _batch_verdict(left: Left, first: LaunchKey, message: str) -> tuple[bool, Mapping[str, object]]:
    try:
        content = left.read(first, VERDICTS_FILE, MOST_BYTES)
        verdicts = decode_verdicts(_checked(content, verdicts_digest(message)))
        return text_verdict(verdicts.get(member_name(left.launch), ""))
    except (DigestMismatchError, FileNotFoundError, ValueError) as error:
        raise SharedPodLostError(f"the batch gave no verdict: {error}") from error


def _checked(content: bytes, digest: str) -> bytes:
    if len(content) > MOST_BYTES:
        raise ValueError(f"{VERDICTS_FILE} is longer than {MOST_BYTES} bytes")
    found = content_digest(content)
    if found != digest:
        raise DigestMismatchError(
            f"{VERDICTS_FILE} has digest {found}, the verifier named {digest}",
            found=found,
            sealed=digest,
        )
    return content


def _mounts(plan: RunPlan, number: int, member: Member) -> tuple[Taken, Taken]:
    candidate, hidden = layout.member_folders(number)
    return (
        candidate_mount(plan, member.launch, member.candidate, candidate),
        lane_mount(plan, member.task, layout.LANE_HIDDEN, hidden),
    )


def _spec(number: int, member: Member) -> MemberSpec:
    candidate, hidden = layout.member_folders(number)
    return MemberSpec(
        name=member_name(member.launch),
        family=member.task.task.task_type,
        candidate=candidate_file(member.candidate, candidate),
        hidden=DigestedPath(hidden, member.lanes.hidden_digest),
    )
