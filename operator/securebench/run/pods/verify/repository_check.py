"""The containers that check a candidate patch in the image's repository (contract 14.5.1).

With ``tests.control`` the same steps run before in a container of their own, which has a root file
system, temporary folders and a home of its own: nothing that candidate code leaves there reaches
the run that counts, and nothing of that run the control.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.errors import InvariantViolationError
from securebench.protocol.messages import DigestedPath
from securebench.protocol.supervise import PatchField, RepositorySpec, RunSpec
from securebench.run import layout
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest
from securebench.run.pods.verify.check import (
    command_prechecks,
    control_run,
    counted,
    is_of_candidate,
    test_compiler,
)
from securebench.run.pods.volumes import (
    candidate_mount,
    lane_mount,
    tools_mount,
)

if TYPE_CHECKING:
    from securebench.benchmark.families.base import PatchPlan
    from securebench.run.plan.model import CheckPlan, ClusterFacts, RunPlan
    from securebench.run.pods.verify.check import Member
    from securebench.run.state.attempts import SealedPatch

APPLIED = "applied.patch"
DECLARED = "declared.json"
"""Written by the operator beside the sealed candidate: what is applied and what that declares."""

TESTS = "tests.json"
RUNS_PER_CONTAINER = 2
"""The Pod's deadline gives all steps of a container together as much time again as the checks."""

CONTROL_TEMPORARY = "control-temporary"
CONTROL_HOME = "control-home"


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
    check: CheckPlan
    patch: PatchPlan
    member: Member
    digests: SealedPatch
    facts: ClusterFacts

    @property
    def places(self) -> tuple[_Place, ...]:
        return (_CONTROL, _CHECK) if self.patch.has_control else (_CHECK,)


def repository_containers(
    plan: RunPlan, check: CheckPlan, member: Member, facts: ClusterFacts
) -> Containers:
    """Return what applies a candidate patch and runs the row's tests.

    Args:
        plan: The run.
        check: The task's check, with a patch plan.
        member: What is judged; its candidate is a patch that the operator judged.
        facts: What the cluster has told of the run.
    """
    patch, digests, index = check.patch, member.candidate.patch, member.task.index
    if patch is None or digests is None:
        raise InvariantViolationError("a repository is checked with a patch", task=index)
    job = _Job(plan, check, patch, member, digests, facts)
    *control, main = (_container(job, place) for place in job.places)
    return Containers(
        main=main,
        volumes=_volumes(job),
        init=[verifier_courier(job.plan, job.member.launch), *control],
    )


def check_seconds(check: CheckPlan) -> float:
    """Return how long all containers of a check may take together."""
    if check.patch is None:
        return check.timeout_seconds
    containers = 2 if check.patch.has_control else 1
    runs = RUNS_PER_CONTAINER * containers + (1 if check.counts_tests else 0)
    return check.timeout_seconds * runs


def _container(job: _Job, place: _Place) -> Manifest:
    container = TaskContainer(
        name=place.name,
        image=job.member.task.image,
        resources=volumes.task_resources(job.plan.pods, _storage(job)),
        tools=tools_mount(job.plan.pods),
        mounts=(
            volumes.mount(volumes.WORKSPACE, layout.SCRATCH),
            candidate_mount(job.plan, job.member.launch, job.member.candidate, layout.CANDIDATE),
            lane_mount(
                job.plan, job.member.task, layout.LANE_EVALUATION_INPUTS, layout.REPOSITORY_INPUTS
            ),
            volumes.mount(volumes.OUTPUT, layout.OUTPUT),
            volumes.mount(place.home, layout.HOME),
            volumes.mount(place.temporary, layout.TEMPORARY),
        ),
        shared_memory=place.name,
        read_only_root=False,
    )
    return task_container(container, _run_spec(job, has_control=place is _CONTROL))


def _run_spec(job: _Job, *, has_control: bool) -> RunSpec:
    check = job.check
    is_ready = not is_of_candidate(check, check.workdir)
    phase = replace(counted(check), is_ready=is_ready, is_guarded=True)
    prechecks = command_prechecks(check, check.workdir)
    return replace(
        base_spec(job.plan, job.facts, job.plan.limits.stream_bytes),
        verdict=True,
        lanes=(DigestedPath(layout.REPOSITORY_INPUTS, job.member.lanes.evaluation_inputs_digest),),
        home=layout.HOME,
        repository=_repository(job, has_control=has_control),
        prechecks=tuple(prechecks if has_control else [*prechecks, *control_run(check)]),
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


def _volumes(job: _Job) -> list[Manifest]:
    own = [(place.temporary, volumes.TEMPORARY_BYTES) for place in job.places] + [
        (place.home, volumes.HOME_BYTES) for place in job.places
    ]
    return [
        volumes.claim(job.plan.pods.claim),
        volumes.empty_dir(volumes.WORKSPACE, volumes.workspace_bytes(job.plan.pods)),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(job)),
        *(volumes.empty_dir(name, size_bytes) for name, size_bytes in own),
        *(volumes.shared_memory(place.name) for place in job.places),
    ]


def _storage(job: _Job) -> int:
    own = volumes.TEMPORARY_BYTES + volumes.HOME_BYTES + volumes.ROOT_BYTES
    return (
        volumes.workspace_bytes(job.plan.pods)
        + _output_bytes(job)
        + len(job.places) * own
        + volumes.MARGIN_BYTES
    )


def _output_bytes(job: _Job) -> int:
    changes = volumes.CHANGES_BYTES
    return volumes.output_bytes(job.plan.limits.stream_bytes, job.plan.limits) + changes
