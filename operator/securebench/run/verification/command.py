"""A command, or a file of the pack, checks a copy of the candidate's workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from securebench.benchmark.pack.lane_plan import LaneSet, checker_reference
from securebench.benchmark.pack.paths import EVALUATION_ROOT
from securebench.protocol.candidate import KINDS, WORKSPACE_FILE, Problem
from securebench.protocol.grading import Grading
from securebench.protocol.messages import FRAMEWORK_FOLDER, DigestedPath
from securebench.protocol.supervise import CandidateSpec, Phase, RunSpec, Transfer
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.plan.environment import Environment
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import AttemptKey, ClusterFacts, LaunchKey, RunPlan, TaskPlan
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    PYTHON,
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest, PodMount, launch_frame, pod
from securebench.run.pods.volumes import (
    asset_mounts,
    asset_places,
    beside_mounts,
    candidate_file,
    candidate_mount,
    lane_mount,
)
from securebench.run.state.attempts import Finish, SealedCandidate, VerifierResult
from securebench.run.verification.base import Left, Member, Verification, agent_end
from securebench.run.verification.checks import (
    PRECHECK_SECONDS,
    SOURCES,
    CheckPlan,
    check_metadata,
    check_plan,
    command_prechecks,
    is_of_candidate,
    row_variable,
    runner_text,
    supervised_verdict,
)

TESTS = "tests of the pack"
"""Precheck: what it finds is the pack's fault, whatever the candidate is."""

COLLECTED = f"{layout.OUTPUT}/collected.json"
"""What the tests do before the candidate is there."""

RUNNER = (PYTHON, "-I", "-S", "-B", "-c", runner_text())
"""Isolated mode without ``site``: no variable, no folder of the user, no working folder and no
file among the packages adds a module."""


@dataclass(frozen=True)
class CommandVerification(Verification):
    """The check's exit code decides, or the runner that counts its tests.

    Attributes:
        check: The row's check.
    """

    name = "command"
    description = "runs a check in the task's image, without network"
    container = layout.CHECK

    check: CheckPlan

    @classmethod
    def planned(cls, request: PlanRequest) -> CommandVerification | None:
        """Return the verification of a row that names a command or a file of the pack."""
        check = request.check
        return None if check is None else cls(check_plan(request, check))

    @property
    def time_limit_seconds(self) -> float:
        """Time limit of the check."""
        return self.check.timeout_seconds

    def environment(self, plan: RunPlan, task: TaskPlan) -> Environment:  # noqa: ARG002
        """Return the agent's environment, with the check's working folder and time limit."""
        return replace(
            task.environment,
            workdir=self.check.workdir,
            timeout_seconds=self.check.timeout_seconds,
            writable_root=True,
        )

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return the Pod that runs the check on a copy of the candidate."""
        (member,) = members
        environment = self.environment(plan, member.task)
        container = TaskContainer(
            name=self.container,
            environment=environment,
            mounts=_mounts(plan, member),
            capabilities=self.check.capabilities,
        )
        spec = _run_spec(plan, self.check, member, facts)
        containers = Containers(
            task_container(plan.pods, container, spec), [verifier_courier(plan, member.launch)]
        )
        frame = launch_frame(plan, first, environment.timeout_seconds, facts)
        return pod(plan, frame, containers)

    def rejected(
        self, task: TaskPlan, key: AttemptKey, candidate: SealedCandidate
    ) -> Finish | None:
        """Return the end of an attempt that handed in no workspace, or None."""
        end = super().rejected(task, key, candidate)
        if end is not None or KINDS[task.extraction.kind].archive == WORKSPACE_FILE:
            return end
        message = "the harness hands in a file; the checker needs a workspace directory"
        phase = FailurePhase.CANDIDATE_EXTRACTION
        return agent_end(key, Problem.MISSING.value, phase, message)

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the verdict of the check."""
        return supervised_verdict(known, left, self.container)

    def own_metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult,
        candidate: str | bytes | None,  # noqa: ARG002 - a workspace is no text
    ) -> Mapping[str, object]:
        """Return what the check was and how it ended."""
        return check_metadata(task, self.check, verification)

    def grading(self, verification: VerifierResult) -> Grading:  # noqa: ARG002 - the row decides
        """Return whether our runner counted the tests."""
        return Grading.TESTS if self.check.is_pytest else Grading.EXIT_CODE


def _mounts(plan: RunPlan, member: Member) -> list[PodMount]:
    task, lanes = member.task, member.lanes
    evaluation_inputs = [task.environment.inside(EVALUATION_ROOT)]
    if checker_reference(task.task) is not None:
        evaluation_inputs.append(layout.EVALUATOR)
    return [
        volumes.workspace(plan.pods, task.environment.workspace),
        *beside_mounts(
            [EVALUATION_ROOT, *asset_places(lanes)], task.environment.workspace, plan.pods
        ),
        *asset_mounts(plan, task, lanes),
        *(
            lane_mount(plan, task, layout.LANE_EVALUATION_INPUTS, place)
            for place in evaluation_inputs
        ),
        lane_mount(plan, task, layout.LANE_PUBLIC, layout.PUBLIC),
        candidate_mount(plan, member.launch, member.candidate, layout.CANDIDATE),
        volumes.output(volumes.output_bytes(plan.limits)),
        volumes.home(),
        volumes.temporary(),
    ]


def _run_spec(plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts) -> RunSpec:
    task, lanes = member.task, member.lanes
    evaluation_inputs = task.environment.inside(EVALUATION_ROOT)
    archive = candidate_file(member.candidate, layout.CANDIDATE)
    own_files = f"{layout.PUBLIC_FILES}/{FRAMEWORK_FOLDER}"
    return replace(
        base_spec(plan, facts, plan.limits.stream_bytes),
        verdict=True,
        lanes=(
            DigestedPath(layout.PUBLIC, lanes.public_digest),
            DigestedPath(evaluation_inputs, lanes.evaluation_inputs_digest),
        ),
        candidate=CandidateSpec(archive.path, archive.digest, task.environment.workspace),
        copies=(Transfer(own_files, task.environment.inside(FRAMEWORK_FOLDER)),),
        protected=(
            evaluation_inputs,
            *(task.environment.inside(place) for place in asset_places(lanes)),
        ),
        home=layout.HOME,
        prechecks=tuple(checker_prechecks(task, check, lanes)),
        phases=tuple(checker_phases(task, check, lanes)),
        open_modes=(layout.OUTPUT,),
    )


def checker_phases(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what supervise runs one after the other; the last one decides.

    Args:
        task: The task.
        check: Its check.
        lanes: Tells whether the checker's file is a folder.
    """
    if check.source is None:
        is_ready = not is_of_candidate(check, task.environment.workspace)
        phase = Phase(FailurePhase.CHECKER, check.command, check.workdir, check.timeout_seconds)
        return [replace(phase, ready=is_ready, guarded=True)]
    path = f"{layout.EVALUATOR}/{check.source.path}"
    variables = _variables(task, path, lanes)
    phase = Phase(
        FailurePhase.CHECKER,
        (path,),
        check.workdir,
        check.timeout_seconds,
        variables,
    )
    if not check.is_pytest:
        return [replace(phase, script=True, ready=True, guarded=True, sources=SOURCES)]
    env = variables | row_variable(check)
    command = _pytest(task, "run", path)
    return [replace(phase, command=command, env=env, ready=True, guarded=True)]


def checker_prechecks(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what examines the pack's own part before the candidate is there."""
    if check.source is None:
        return command_prechecks(check, task.environment.workspace)
    if not check.is_pytest:
        return []
    path = f"{layout.EVALUATOR}/{check.source.path}"
    command = _pytest(task, "check", path)
    env = _variables(task, path, lanes) | row_variable(check)
    return [Phase(TESTS, command, check.workdir, PRECHECK_SECONDS, env)]


def _pytest(task: TaskPlan, verb: str, path: str) -> tuple[str, ...]:
    places = (task.environment.workspace, layout.PYTEST_BUNDLE, layout.EVALUATOR, path, COLLECTED)
    return (*RUNNER, verb, *places)


def _variables(task: TaskPlan, path: str, lanes: LaneSet) -> dict[str, str]:
    return {
        "SECUREBENCH_WORKSPACE": task.environment.workspace,
        "SECUREBENCH_EVALUATOR": layout.EVALUATOR,
        "TEST_DIR": path if lanes.checker_is_folder else path.rpartition("/")[0],
    }
