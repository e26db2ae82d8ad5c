"""The containers that run a code_completion's tests against its candidate (contract 14.4).

The candidate's code has a container of its own, which holds neither a test nor any part of the
results volume: its source comes to it over the socket that both containers share. Where a pack asks
for it (``tests.isolation: shared``) there is one container, in which tests and candidate run as
another user than supervise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securebench.digests import PREFIX, listing_digest
from securebench.protocol.candidate import TEXT_FILE
from securebench.protocol.grading import TESTS_INCOMPLETE
from securebench.protocol.messages import DigestedPath
from securebench.protocol.supervise import Phase, RunSpec, StreamsSpec
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    PYTHON,
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest
from securebench.run.pods.verify.check import inline_compiler
from securebench.run.pods.volumes import candidate_mount, lane_mount, tools_mount
from securebench.sizes import MIB

if TYPE_CHECKING:
    from securebench.benchmark.families.base import CodePlan
    from securebench.run.plan.model import ClusterFacts, RunPlan
    from securebench.run.pods.verify.check import Member

WORKER_SECONDS = 60.0
"""Until the worker, whose container starts before that of the tests, has made its socket."""

RUNTIME = "securebench_code"
"""Among the tools: the package ``securebench.grading.code``."""

BOOT = (
    f"import sys; sys.path.insert(0, {layout.TOOLS!r}); from {RUNTIME}.entry import start; start()"
)
PROGRAM = (PYTHON, "-I", "-B", "-c", BOOT)
"""Isolated mode: no variable, no folder of the user and no working folder adds a module."""

SOCKET_BYTES = MIB
SOCKET_VOLUME = "socket"
SOCKET_FOLDER = "/opt/securebench/socket"
SOCKET = f"{SOCKET_FOLDER}/worker"
MARKS = ("first", "tests")
FIRST_START, SERVED = (f"{SOCKET_FOLDER}/{name}" for name in MARKS)
"""Made by the courier, in this order, so no process of the task image can make them again: the
candidate's container takes the first away when it starts, the tests' one holds a lock on the
second. Both wait until the second is there."""
QUEUES = "/dev/mqueue"
"""Where runtimes show the Pod's message queues, as files that anybody may make."""
TEST_FILE = f"{layout.REPOSITORY_INPUTS}/tests.json"

TESTS_USER_ID = 65531
WORKER_USER_ID = 65530
"""Users of both containers; neither of them is the task image's, which is often root."""

ROOT = 0
SUPERVISE_CAPABILITIES = ("SETUID", "SETGID", "KILL")
"""With which supervise starts and ends the tests as another user (threats R-09); they themselves
get none. Pod Security level *baseline* allows them, *restricted* does not."""


@dataclass(frozen=True, slots=True)
class _CodePlace:
    """What a container has for itself.

    Attributes:
        name: Name of the container.
        user: Its user and group.
        is_worker: Whether it has the candidate's code alone.
    """

    name: str
    user: int
    is_worker: bool = False

    @property
    def workspace(self) -> str:
        return f"{volumes.WORKSPACE}-{self.name}"

    @property
    def temporary(self) -> str:
        return f"{volumes.TEMPORARY}-{self.name}"

    @property
    def home(self) -> str:
        return f"{volumes.HOME}-{self.name}"


_TESTS = _CodePlace(layout.VERIFIER, TESTS_USER_ID)
_WORKER = _CodePlace(layout.CANDIDATE_CONTAINER, WORKER_USER_ID, is_worker=True)
_SHARED = _CodePlace(layout.VERIFIER, ROOT)


@dataclass(frozen=True, slots=True)
class _CodeJob:
    """Everything that the containers are made of."""

    plan: RunPlan
    code: CodePlan
    member: Member
    facts: ClusterFacts

    @property
    def places(self) -> tuple[_CodePlace, ...]:
        """The containers, that of the tests first."""
        return (_SHARED,) if self.code.is_shared else (_TESTS, _WORKER)


def code_containers(
    plan: RunPlan, code: CodePlan, member: Member, facts: ClusterFacts
) -> Containers:
    """Return what runs a task's tests.

    Args:
        plan: The run.
        code: How the candidate is judged.
        member: What is judged; its candidate is a module's text.
        facts: What the cluster has told of the run.
    """
    job = _CodeJob(plan, code, member, facts)
    tests, *workers = job.places
    sidecars = [{**_container(job, place), "restartPolicy": "Always"} for place in workers]
    return Containers(
        main=_container(job, tests), volumes=_volumes(job), init=[_courier(job), *sidecars]
    )


def code_seconds(code: CodePlan) -> float:
    """Return how long the verifier's container may take."""
    return code.timeout_seconds + (0 if code.is_shared else WORKER_SECONDS)


def _folder_digest(name: str, digest: str) -> str:
    """Return the tree digest of a folder that holds one file.

    Args:
        name: Name of the file.
        digest: ``sha256:…`` of its content.
    """
    return listing_digest([(name.encode(), digest.removeprefix(PREFIX))])


def _courier(job: _CodeJob) -> Manifest:
    if job.code.is_shared:
        return verifier_courier(job.plan, job.member.launch)
    marks = [f"{SOCKET_VOLUME}/{name}" for name in MARKS]
    mounts = [volumes.mount(SOCKET_VOLUME, f"{layout.COURIER_ROOT}/{SOCKET_VOLUME}")]
    return verifier_courier(job.plan, job.member.launch, marks, mounts)


def _container(job: _CodeJob, place: _CodePlace) -> Manifest:
    own = _worker_mounts() if place.is_worker else _test_mounts(job)
    container = TaskContainer(
        name=place.name,
        image=job.member.task.image,
        resources=volumes.task_resources(job.plan.pods, _storage(job)),
        tools=tools_mount(job.plan.pods),
        mounts=(
            *own,
            volumes.mount(place.workspace, job.member.task.workspace),
            volumes.mount(place.home, layout.HOME),
            volumes.mount(place.temporary, layout.TEMPORARY),
        ),
        shared_memory=place.name,
        capabilities=SUPERVISE_CAPABILITIES if job.code.is_shared else (),
        user=place.user,
    )
    spec = _worker_spec(job) if place.is_worker else _test_spec(job)
    return task_container(container, spec)


def _test_mounts(job: _CodeJob) -> list[Manifest]:
    socket = volumes.mount(SOCKET_VOLUME, SOCKET_FOLDER, read_only=True)
    return [
        *([] if job.code.is_shared else [socket]),
        candidate_mount(job.plan, job.member.launch, job.member.candidate, layout.CANDIDATE),
        lane_mount(
            job.plan, job.member.task, layout.LANE_EVALUATION_INPUTS, layout.REPOSITORY_INPUTS
        ),
        volumes.mount(volumes.OUTPUT, layout.OUTPUT),
    ]


def _worker_mounts() -> list[Manifest]:
    return [volumes.mount(SOCKET_VOLUME, SOCKET_FOLDER)]


def _test_spec(job: _CodeJob) -> RunSpec:
    is_shared = job.code.is_shared
    user = WORKER_USER_ID if is_shared else 0
    base = base_spec(job.plan, job.facts, job.plan.limits.stream_bytes)
    return replace(
        base,
        temporary=base.temporary if is_shared else "",
        verdict=True,
        lanes=(
            DigestedPath(layout.REPOSITORY_INPUTS, job.member.lanes.evaluation_inputs_digest),
            DigestedPath(layout.CANDIDATE, _folder_digest(TEXT_FILE, job.member.candidate.digest)),
        ),
        home=layout.HOME,
        prechecks=(inline_compiler(TEST_FILE, job.member.task.workspace, user),),
        phases=tuple(_shared_phases(job) if is_shared else _test_phases(job)),
        holds="" if is_shared else SERVED,
        needs="" if is_shared else SOCKET,
        needs_seconds=0.0 if is_shared else WORKER_SECONDS,
        open_modes=(layout.OUTPUT,),
    )


def _test_phases(job: _CodeJob) -> list[Phase]:
    workdir = job.member.task.workspace
    again = (str(job.code.repeat),) if job.code.repeat else ()
    tests = (*PROGRAM, "proven", SOCKET, *_test_arguments(job), *again)
    seconds = job.code.timeout_seconds
    return [Phase(FailurePhase.TESTS, tests, workdir, seconds, proof=TESTS_INCOMPLETE)]


def _shared_phases(job: _CodeJob) -> list[Phase]:
    workdir = job.member.task.workspace
    tests = (*PROGRAM, "shared", workdir, *_test_arguments(job))
    seconds = job.code.timeout_seconds
    return [
        Phase(
            FailurePhase.TESTS, tests, workdir, seconds, user=WORKER_USER_ID, proof=TESTS_INCOMPLETE
        )
    ]


def _test_arguments(job: _CodeJob) -> tuple[str, str, str]:
    return f"{layout.CANDIDATE}/{TEXT_FILE}", TEST_FILE, ",".join(job.code.declared)


def _worker_spec(job: _CodeJob) -> RunSpec:
    worker = (*PROGRAM, "worker", SOCKET, job.member.task.workspace, *_rerun_arguments(job))
    return replace(
        base_spec(job.plan, job.facts, 0),
        streams=StreamsSpec("", 0, 0),
        temporary="",
        home=layout.HOME,
        phases=(Phase("candidate", worker, job.member.task.workspace, None),),
        linger=True,
        once=FIRST_START,
        serves=SERVED,
    )


def _rerun_arguments(job: _CodeJob) -> tuple[str, ...]:
    """Return how many workers follow the first, and all that candidate code can write."""
    if not job.code.repeat:
        return ()
    folders = (job.member.task.workspace, layout.HOME, layout.TEMPORARY, layout.SHARED_MEMORY)
    return (str(job.code.repeat), *folders, SOCKET_FOLDER, QUEUES)


def _volumes(job: _CodeJob) -> list[Manifest]:
    result = [
        volumes.claim(job.plan.pods.claim),
        volumes.empty_dir(volumes.OUTPUT, _output_bytes(job)),
    ]
    if not job.code.is_shared:
        result.append(volumes.empty_dir(SOCKET_VOLUME, SOCKET_BYTES))
    for place in job.places:
        result += [
            volumes.empty_dir(place.workspace, volumes.workspace_bytes(job.plan.pods)),
            volumes.empty_dir(place.temporary, volumes.TEMPORARY_BYTES),
            volumes.empty_dir(place.home, volumes.HOME_BYTES),
            volumes.shared_memory(place.name),
        ]
    return result


def _storage(job: _CodeJob) -> int:
    """Return what one of the two containers' limits adds to the Pod's."""
    own = volumes.workspace_bytes(job.plan.pods) + volumes.TEMPORARY_BYTES + volumes.HOME_BYTES
    shared = _output_bytes(job) + volumes.MARGIN_BYTES
    return own + shared


def _output_bytes(job: _CodeJob) -> int:
    return volumes.output_bytes(job.plan.limits.stream_bytes, job.plan.limits)
