"""A family and its kind of verification: the answer is an even or an odd number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from securebench.benchmark.families.base import Family, Field, FieldSection
from securebench.benchmark.resources import Lane
from securebench.json_values import BOOLEAN, TEXT
from securebench.run.layout import CANDIDATE
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import ClusterFacts, LaunchKey, RunPlan, TaskPlan
from securebench.run.pods import volumes
from securebench.run.pods.containers import trusted_container
from securebench.run.pods.frame import Containers, Manifest, launch_frame, pod
from securebench.run.state.attempts import VerifierResult
from securebench.run.verification.base import Left, Member, Verification

SECONDS = 30.0
PROGRAM = 'case "$(tr -d "[:space:]" < "$0")" in *[02468]) exit 0 ;; *) exit 1 ;; esac'
"""Its exit code says whether the number is even."""

FAMILY = Family(
    name="parity",
    candidate_kind="text",
    verification="last-digit",
    input=FieldSection("input", (Field("question", TEXT, required=True),)),
    eval=FieldSection("eval", (Field("even", BOOLEAN, required=True, lane=Lane.HIDDEN),)),
)


@dataclass(frozen=True)
class LastDigit(Verification):
    """A shell in the task's image looks at the last digit.

    Attributes:
        even: Whether the number must be even; it stays in the operator.
    """

    name = "last-digit"
    description = "looks at the last digit of a number"
    has_courier = False

    even: bool

    @classmethod
    def planned(cls, request: PlanRequest) -> LastDigit:
        """Return the verification of a row."""
        return cls(bool(request.task.resources.value("even")))

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return a Pod with the candidate and a shell."""
        (member,) = members
        main = trusted_container(
            replace(plan.pods, image=self.environment(plan, member.task).image),
            self.container,
            volumes.container_resources(volumes.VERIFIER_REQUESTS, volumes.VERIFIER_LIMITS),
            [volumes.candidate_mount(plan, member.launch, member.candidate, CANDIDATE)],
        )
        main["command"] = ["sh", "-c", PROGRAM, f"{CANDIDATE}/{member.candidate.file}"]
        frame = launch_frame(plan, first, SECONDS, facts)
        return pod(plan, frame, Containers(main))

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the verdict by the exit code."""
        return replace(known, passed=(left.code == 0) == self.even, metadata={"code": left.code})

    def own_metadata(
        self, task: TaskPlan, verification: VerifierResult, candidate: str | bytes | None
    ) -> Mapping[str, object]:
        """Return what records of verdicts say of the row."""
        return {"wanted": "an even number" if self.even else "an odd number"}
