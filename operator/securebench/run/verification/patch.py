"""A patch of the candidate is applied to the image's repository, and the row's tests run there.

The operator judges the patch by its text first and writes what is applied, and what that declares,
beside the sealed candidate. With ``tests.control`` the same steps run before in a container of
their own, which has a root file system, temporary folders and a home of its own: nothing that
candidate code leaves there reaches the run that counts, and nothing of that run the control. A
command that certainly starts pytest gets our runner in its place and has to prove a pass; every
other one is judged by its exit code alone.

Source: contract 14.5.1, 15.1, 21.4, 21.5, 21.14, docs/reference/checks.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from securebench.benchmark.families.base import PatchPlan
from securebench.benchmark.families.counted_commands import counted_calls, with_runner
from securebench.benchmark.patch.judgement import PatchJudgement, judge_changes, listed
from securebench.digests import content_digest
from securebench.errors import DigestMismatchError, InvariantViolationError
from securebench.protocol.candidate import CHANGED_FILE, TEXT_FILE
from securebench.protocol.grading import RUNNER_VARIABLE, Grading
from securebench.protocol.messages import Code, DigestedPath
from securebench.protocol.supervise import PatchField, Phase, RepositorySpec, RunSpec
from securebench.reasons import EVALUATOR_TAMPERED, VERIFIER_ERROR, VERIFIER_TIMEOUT, FailurePhase
from securebench.run import layout
from securebench.run.api.field_types import Outcome
from securebench.run.observe.pods import ContainerView, PodView
from securebench.run.plan.environment import Environment
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import (
    VERIFIER_STDERR,
    AttemptKey,
    ClusterFacts,
    LaunchKey,
    RunPlan,
    TaskPlan,
)
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest, launch_frame, pod
from securebench.run.pods.volumes import candidate_mount, lane_mount
from securebench.run.records.labels import command_fields
from securebench.run.state.attempts import Finish, SealedCandidate, SealedPatch, VerifierResult
from securebench.run.verification.base import Folder, Left, Member, Verification, agent_end
from securebench.run.verification.checks import (
    IN_PROCESS,
    CheckPlan,
    check_metadata,
    check_plan,
    command_prechecks,
    is_of_candidate,
    row_variable,
    runner_text,
    supervised_verdict,
    test_compiler,
)
from securebench.sizes import KIB

APPLIED = "applied.patch"
DECLARED = "declared.json"
"""Written by the operator beside the sealed candidate: what is applied and what that declares."""

TESTS = "tests.json"
RUNS_PER_CONTAINER = 2
"""The Pod's deadline gives all steps of a container together as much time again as the checks."""

CONTROL_TEMPORARY = "control-temporary"
CONTROL_HOME = "control-home"


TAMPERED_MESSAGE = "the checks succeeded although a test was added that must fail"

CHANGED_BYTES = 256 * KIB
"""What is read of a list of changed paths; beyond it the patch counts as one that does not do what
it declares, without a list."""

INCOMPLETE = "the report of the tests is no pass"
"""Stderr ends with it when a command succeeds and its tests did not."""

ISOLATED = ("-I", "-S", "-B", "-c")
LOADER = f"import os; exec(os.environ[{RUNNER_VARIABLE!r}])"
"""The runner of an argv; its text is long, and a specification is one argument."""

CONTROL_RUN = "control run of the tests"
CONTROL_REPORT = f"{layout.OUTPUT}/control.json"
"""What the tests do on the base, before the candidate is there."""

ANYHOW = ("sh", "-c", '"$@"; exit 0', "sh")
"""Runs a command whose exit code says nothing."""


class PatchStep(Enum):
    """A step that can fail before candidate code runs: number, reason, phase, outcome, message."""

    HEAD = (0, "base_commit_unreadable", "base_commit", Outcome.VERIFIER,
            "the commit of the image's repository cannot be read")  # fmt: skip
    BASE = (1, "base_commit_mismatch", "base_commit", Outcome.VERIFIER,
            "the image's repository is at another commit than the row says")  # fmt: skip
    SETUP = (2, "setup_patch_failed", "setup_patch", Outcome.VERIFIER,
             "the row's setup patch does not apply")  # fmt: skip
    TEST_ALONE = (3, "test_patch_failed", "test_patch", Outcome.VERIFIER,
                  "the row's test patch does not apply, even without the candidate")  # fmt: skip
    CANDIDATE = (4, "candidate_patch_apply_failed", "candidate_patch", Outcome.AGENT,
                 "the candidate patch does not apply")  # fmt: skip
    PATHS = (5, "candidate_patch_path_mismatch", "candidate_policy", Outcome.AGENT,
             "the paths that the patch really changed are not those that it declares")  # fmt: skip
    TEST = (6, "test_patch_failed", "test_patch", Outcome.SCORED,
            "the row's test patch does not apply to what the candidate left")  # fmt: skip
    CONTROL = (7, "test_patch_failed", "test_patch", Outcome.SCORED,
               "the row's control does not apply to what the candidate left")  # fmt: skip

    def __init__(
        self, number: int, reason: str, phase: str, outcome: Outcome, message: str
    ) -> None:
        self.code = Code.PHASE_FAILED + number
        self.reason = reason
        self.phase = phase
        self.outcome = outcome
        self.message = message


STEP_OF_CODE = {step.code: step for step in PatchStep}


@dataclass(frozen=True)
class PatchVerification(Verification):
    """Tests in the image's repository, after the patch was applied.

    Attributes:
        check: The row's test command.
        patch: How patches are judged.
    """

    name = "patch"
    description = "runs a check in the task's image, without network"
    container = layout.CHECK

    check: CheckPlan
    patch: PatchPlan

    @classmethod
    def planned(cls, request: PlanRequest) -> PatchVerification | None:
        """Return the verification of a row whose candidate is a patch."""
        check = request.check
        if check is None or check.patch is None:
            return None
        return cls(check_plan(request, check), check.patch)

    @property
    def time_limit_seconds(self) -> float:
        """Time limit of the tests."""
        return self.check.timeout_seconds

    @property
    def checkout(self) -> str:
        """The folder of the repository."""
        return self.check.workdir

    def environment(self, plan: RunPlan, task: TaskPlan) -> Environment:  # noqa: ARG002
        """Return the agent's image, with the tests' working folder and time limit."""
        return Environment(
            image=task.environment.image,
            workspace=layout.SCRATCH,
            workdir=self.check.workdir,
            timeout_seconds=self.check.timeout_seconds,
            writable_root=True,
        )

    @property
    def counts_tests(self) -> bool:
        """Whether our runner counts the tests; else the exit code alone decides."""
        return counted_calls(self.check.command) > 0

    @property
    def pod_seconds(self) -> float:
        """Seconds that all containers of the check may take together."""
        containers = 2 if self.patch.has_control else 1
        runs = RUNS_PER_CONTAINER * containers + int(self.counts_tests)
        return self.check.timeout_seconds * runs

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return the Pod that applies a candidate patch and runs the row's tests.

        Raises:
            InvariantViolationError: The operator has not judged the patch.
        """
        (member,) = members
        digests = member.candidate.patch
        if digests is None:
            index = member.task.index
            raise InvariantViolationError("a repository is checked with a patch", task=index)
        job = _Job(plan, self, member, digests, facts)
        *control, main = _containers(job)
        containers = Containers(main, [verifier_courier(job.plan, job.member.launch), *control])
        return pod(plan, launch_frame(plan, first, self.pod_seconds, facts), containers)

    def main(self, view: PodView) -> ContainerView | None:
        """Return the container that ended the check: the control's, when it failed."""
        return view.containers.get(_ending(view))

    def sealed(self, candidate: SealedCandidate, folder: Folder) -> SealedCandidate:
        """Judge a sealed patch by its text and write what the check applies."""
        return replace(candidate, patch=seal_patch(self.patch, folder))

    def rejected(
        self,
        task: TaskPlan,  # noqa: ARG002 - the policy is in the plan
        key: AttemptKey,
        candidate: SealedCandidate,
    ) -> Finish | None:
        """Return the end of an attempt whose patch the policy denies, or None."""
        patch = candidate.patch
        if patch is None or not patch.problem:
            return None
        end = agent_end(key, patch.problem, patch.phase, patch.message)
        return replace(end, metadata={"phase": patch.phase, "failure_reason": patch.problem})

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the verdict of the tests, or which step of the preparation failed."""
        found = supervised_verdict(known, left, _ending(left.view))
        return failed_step(self.patch, found, left) if found.problem == VERIFIER_ERROR else found

    def metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult | None,
        finish: Finish,
        candidate: str | bytes | None,
    ) -> dict[str, object]:
        """Return what a patch changes, what was applied and how its tests ended."""
        if candidate is None:
            return super().metadata(task, verification, finish, candidate)
        return self._patch_metadata(task, verification, finish, candidate)

    def own_metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult,
        candidate: str | bytes | None,  # noqa: ARG002 - there is none
    ) -> Mapping[str, object]:
        """Return what the check was and how it ended."""
        return check_metadata(task, self.check, verification)

    def grading(self, verification: VerifierResult) -> Grading:  # noqa: ARG002 - the row decides
        """Return whether our runner counted the tests."""
        return Grading.TESTS if self.counts_tests else Grading.EXIT_CODE

    def _patch_metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult | None,
        finish: Finish,
        text: str | bytes,
    ) -> dict[str, object]:
        """Return the verifier metadata of a candidate patch, before redaction.

        The function that decided at capture runs again on the sealed text: the journal keeps its
        decision, but not the lists of paths, which would make it as long as the patches.
        If no verifier Pod was started, the operator's own message is under ``VERIFIER_STDERR``.
        """
        judgement = self.patch.judged(text)
        tests = task.task.resources.value("tests")
        common: dict[str, object] = {
            "verifier": task.task.task_type,
            "image": task.environment.image,
            "workdir": self.check.workdir,
            "base_commit": self.patch.base_commit,
            "command": tests.get("command")
            if isinstance(tests, Mapping)
            else list(self.check.command),
            "exit_code": None,
            "timed_out": False,
            "timeout_seconds": self.check.timeout_seconds,
            "candidate_allow_paths_configured": bool(self.patch.policy.get("allow_paths")),
            **IN_PROCESS,
            **judgement.metadata(),
        }
        if judgement.text:
            common["applied_candidate_patch_sha256"] = content_digest(judgement.text)
        if verification is None:
            return common | dict(finish.metadata) | {VERIFIER_STDERR: judgement.stderr}
        command = verification.command
        common |= {
            "phase": verification.phase or command.phase or FailurePhase.CHECKS,
            "timed_out": command.timed_out,
            "image_commit": command.commit or None,
        }
        if not verification.problem and not command.timed_out:
            common |= listed("actual_candidate_patch_paths", sorted(judgement.changed))
        reason = verification.problem or (VERIFIER_TIMEOUT if command.timed_out else "")
        if reason:
            common["failure_reason"] = reason
        return common | dict(verification.metadata) | command_fields(command)


def _ending(view: PodView) -> str:
    """Return the name of the container that ended a check."""
    control = view.containers.get(layout.CONTROL_CHECK)
    ended = control.terminated if control is not None else None
    return layout.CONTROL_CHECK if ended is not None and ended.exit_code else layout.CHECK


def seal_patch(plan: PatchPlan, folder: Folder) -> SealedPatch:
    """Judge a sealed patch by its text and write what the check applies.

    Args:
        plan: How patches of the task are judged.
        folder: The candidate's folder; writing there again writes the same.
    """
    judgement = plan.judged(folder.read(TEXT_FILE))
    if judgement.problem is not None:
        problem = judgement.problem
        return SealedPatch(problem.value, problem.phase, judgement.message)
    applied, declared = judgement.text, _declared(judgement)
    folder.write(APPLIED, applied)
    folder.write(DECLARED, declared)
    return SealedPatch(
        applied_digest=content_digest(applied), declared_digest=content_digest(declared)
    )


def _declared(judgement: PatchJudgement) -> bytes:
    links = dict(sorted(judgement.links.items()))
    declared = {"version": 1, "changed": sorted(judgement.changed), "links": links}
    return json.dumps(declared, separators=(",", ":")).encode()


def failed_step(plan: PatchPlan, base: VerifierResult, left: Left) -> VerifierResult:
    """Return the result of a check that gave no verdict of its own."""
    if left.code == Code.TAMPERED:
        return replace(
            base,
            problem=EVALUATOR_TAMPERED,
            outcome=Outcome.SCORED.value,
            phase=FailurePhase.CHECKS,
            message=TAMPERED_MESSAGE,
        )
    step = STEP_OF_CODE.get(left.code)
    if step is None:
        reason = f"the repository could not be prepared: {base.command.error}"
        return replace(base, problem=VERIFIER_ERROR, message=reason)
    suffix = f": {base.command.error}" if base.command.error else ""
    known = replace(
        base,
        problem=step.reason,
        outcome=step.outcome.value,
        phase=step.phase,
        message=step.message + suffix,
    )
    return _denied(plan, known, left) if step is PatchStep.PATHS else known


def _denied(plan: PatchPlan, known: VerifierResult, left: Left) -> VerifierResult:
    """Tell a policy violation from a patch that changes other paths than it declares."""
    changed = _changed(left)
    if changed is None:
        return known
    judgement = judge_changes(changed, plan.candidate_policy)
    metadata = listed("actual_candidate_patch_paths", sorted(changed))
    if judgement.denied:
        metadata |= listed("denied_candidate_patch_paths", sorted(judgement.denied))
    reason = judgement.problem.value if judgement.problem is not None else known.problem
    return replace(known, problem=reason, message=judgement.message, metadata=metadata)


def _changed(left: Left) -> Mapping[str, str | None] | None:
    """Read the list that supervise wrote before any candidate code ran; None for a long one."""
    try:
        content = left.read(left.launch, CHANGED_FILE, CHANGED_BYTES)
        if len(content) > CHANGED_BYTES:
            return None
        value = json.loads(content)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DigestMismatchError(f"the list of changed paths is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DigestMismatchError("the list of changed paths is damaged")
    return {str(name): None if target is None else str(target) for name, target in value.items()}


@dataclass(frozen=True, slots=True)
class _Place:
    """What a container has for itself."""

    name: str
    temporary: str
    home: str


_CHECK = _Place(layout.CHECK, volumes.TEMPORARY, volumes.HOME)
_CONTROL = _Place(layout.CONTROL_CHECK, CONTROL_TEMPORARY, CONTROL_HOME)


@dataclass(frozen=True, slots=True)
class _Job:
    """Everything that both containers are made of."""

    plan: RunPlan
    verification: PatchVerification
    member: Member
    digests: SealedPatch
    facts: ClusterFacts

    @property
    def check(self) -> CheckPlan:
        return self.verification.check

    @property
    def patch(self) -> PatchPlan:
        return self.verification.patch

    @property
    def places(self) -> tuple[_Place, ...]:
        return (_CONTROL, _CHECK) if self.patch.has_control else (_CHECK,)


def _containers(job: _Job) -> list[Manifest]:
    """Return the container of the control, where there is one, and that of the check."""
    made: list[Manifest] = []
    ended: list[TaskContainer] = []
    for place in job.places:
        container = replace(_container(job, place), ended=tuple(ended))
        spec = _run_spec(job, has_control=place is _CONTROL)
        made.append(task_container(job.plan.pods, container, spec))
        ended.append(container)
    return made


def _container(job: _Job, place: _Place) -> TaskContainer:
    return TaskContainer(
        name=place.name,
        environment=job.verification.environment(job.plan, job.member.task),
        mounts=(
            volumes.workspace(job.plan.pods, layout.SCRATCH),
            candidate_mount(job.plan, job.member.launch, job.member.candidate, layout.CANDIDATE),
            lane_mount(
                job.plan, job.member.task, layout.LANE_EVALUATION_INPUTS, layout.REPOSITORY_INPUTS
            ),
            volumes.output(_output_bytes(job)),
            volumes.home(place.home),
            volumes.temporary(place.temporary),
        ),
    )


def _run_spec(job: _Job, *, has_control: bool) -> RunSpec:
    check = job.check
    is_ready = not is_of_candidate(check, check.workdir)
    phase = replace(counted(job.verification), ready=is_ready, guarded=True)
    prechecks = command_prechecks(check, check.workdir)
    return replace(
        base_spec(job.plan, job.facts, job.plan.limits.stream_bytes),
        verdict=True,
        lanes=(DigestedPath(layout.REPOSITORY_INPUTS, job.member.lanes.evaluation_inputs_digest),),
        home=layout.HOME,
        repository=_repository(job, has_control=has_control),
        prechecks=tuple(prechecks if has_control else [*prechecks, *control_run(job.verification)]),
        phases=(phase,),
        open_modes=(layout.OUTPUT,),
    )


def _repository(job: _Job, *, has_control: bool) -> RepositorySpec:
    return RepositorySpec(
        workdir=job.check.workdir,
        scratch=layout.SCRATCH,
        base_commit=job.patch.base_commit,
        timeout_seconds=job.check.timeout_seconds,
        setup_patch=_field("setup_patch", is_given=job.patch.has_setup),
        candidate=DigestedPath(f"{layout.CANDIDATE}/{APPLIED}", job.digests.applied_digest),
        declared=DigestedPath(f"{layout.CANDIDATE}/{DECLARED}", job.digests.declared_digest),
        test_patch=_field("test_patch", is_given=job.patch.has_test),
        control=_field("control", is_given=has_control),
        compile=test_compiler(job.check) if job.patch.has_test else None,
    )


def _field(name: str, *, is_given: bool) -> PatchField | None:
    return PatchField(f"{layout.REPOSITORY_INPUTS}/{TESTS}", name) if is_given else None


def _output_bytes(job: _Job) -> int:
    return volumes.output_bytes(job.plan.limits) + volumes.CHANGES_BYTES


def counted(verification: PatchVerification, known: str = CONTROL_REPORT) -> Phase:
    """Return the phase that runs a repository's tests.

    Args:
        verification: Its check.
        known: File with the report of the control run.
    """
    check = verification.check
    phase = Phase(FailurePhase.CHECKS, check.command, check.workdir, check.timeout_seconds)
    if not verification.counts_tests:
        return phase
    return Phase(
        FailurePhase.CHECKS,
        _command(check, known, "patch", "script"),
        check.workdir,
        check.timeout_seconds,
        env=_variables(check),
        proof=INCOMPLETE,
    )


def control_run(verification: PatchVerification, known: str = CONTROL_REPORT) -> list[Phase]:
    """Return the precheck that runs counted tests on the base; it finds no fault with anybody."""
    if not verification.counts_tests:
        return []
    check = verification.check
    command = (*ANYHOW, *_command(check, known, "base", "base-script"))
    env = _variables(check)
    return [Phase(CONTROL_RUN, command, check.workdir, check.timeout_seconds, env=env)]


def _variables(check: CheckPlan) -> Mapping[str, str]:
    return {RUNNER_VARIABLE: runner_text(), **row_variable(check)}


def _command(check: CheckPlan, known: str, module: str, script: str) -> tuple[str, ...]:
    def words(name: str) -> tuple[str, ...]:
        return (script, known, name) if name else (module, known)

    return with_runner(
        check.command,
        lambda name: (*ISOLATED, LOADER, *words(name)),
        lambda name: (*ISOLATED, f'"${RUNNER_VARIABLE}"', *words(name)),
    )
