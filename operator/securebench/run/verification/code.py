"""The containers that run a code_completion's tests against its candidate (contract 14.4).

The candidate's code has a container of its own, which holds neither a test nor any part of the
results volume: its source comes to it over the socket that both containers share. Where a pack asks
for it (``tests.isolation: shared``) there is one container, in which tests and candidate run as
another user than supervise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from securebench.benchmark.families.base import CodePlan
from securebench.digests import PREFIX, listing_digest
from securebench.errors import InvariantViolationError
from securebench.protocol.candidate import TEXT_FILE
from securebench.protocol.grading import TESTS_INCOMPLETE, Grading
from securebench.protocol.messages import Code, DigestedPath
from securebench.protocol.supervise import Phase, RunSpec, StreamsSpec
from securebench.reasons import (
    MATERIALIZATION_FAILED,
    OOM_KILLED,
    SUPERVISOR_KILLED,
    VERIFIER_TIMEOUT,
    FailurePhase,
)
from securebench.run import layout
from securebench.run.observe.pods import PodView, Terminated
from securebench.run.observe.stage import Ended, Interrupted, memory_kills, supervised_end
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import ClusterFacts, LaunchKey, RunPlan, TaskPlan
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    PYTHON,
    TaskContainer,
    base_spec,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest, PodMount, launch_frame, pod
from securebench.run.pods.volumes import OwnVolume, candidate_mount, lane_mount
from securebench.run.records.labels import command_fields
from securebench.run.state.attempts import VerifierResult
from securebench.run.verification.base import Left, Member, Verification
from securebench.run.verification.checks import IN_PROCESS, inline_compiler, supervised_verdict
from securebench.sizes import MIB

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
    def workspace(self) -> str:
        return self.member.task.environment.workspace

    @property
    def places(self) -> tuple[_CodePlace, ...]:
        """The containers, that of the tests first."""
        return (_SHARED,) if self.code.is_shared else (_TESTS, _WORKER)


CODE_FILES = {
    "test_file": "solution_test.py",
    "candidate_file": "candidate.py",
    "supervisor_file": "solution_supervisor.py",
    "worker_file": "candidate_worker.py",
}
"""File names in the verifier metadata of code_completion (contract 14.4)."""

FENCED = "fenced"
"""What a runner adds to its word where a fenced block of the text was the candidate."""

_REPORTED = frozenset({Grading.VALUES, Grading.OBJECTS})
"""What the runner of ``separate`` tests may report."""


@dataclass(frozen=True)
class CodeVerification(Verification):
    """Tests call the candidate's code.

    Attributes:
        code: How the module is tested.
    """

    name = "code"
    description = "calls the candidate from tests, without network"

    code: CodePlan

    @classmethod
    def planned(cls, request: PlanRequest) -> CodeVerification:
        """Return the verification of a row with tests.

        Raises:
            InvariantViolationError: The family does not test code.
        """
        if request.family.code is None:
            raise InvariantViolationError(f"{request.family.name} has no tests of code")
        return cls(request.family.code(request.task))

    @property
    def time_limit_seconds(self) -> float:
        """Time limit of import and tests together."""
        return self.code.timeout_seconds

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return the Pod that runs a task's tests."""
        (member,) = members
        job = _CodeJob(plan, self.code, member, facts)
        tests, *workers = job.places
        sidecars = [{**_container(job, place), "restartPolicy": "Always"} for place in workers]
        containers = Containers(_container(job, tests), [_courier(job), *sidecars])
        wait = 0.0 if self.code.is_shared else WORKER_SECONDS
        frame = launch_frame(plan, first, self.code.timeout_seconds + wait, facts)
        return pod(plan, frame, containers)

    def ended(self, view: PodView, end: Terminated) -> Interrupted | Ended:
        """Return how the tests ended, with what became of their candidate's own container."""
        verdict = supervised_end(view, end)
        if verdict == Ended(Code.PHASE_FAILED):
            words = "the tests waited for the candidate's container in vain"
            return Interrupted(MATERIALIZATION_FAILED, words)
        if verdict not in {Ended(Code.DONE), Ended(Code.FAILED)}:
            return verdict
        # The kubelet starts it again when candidate code ends it.
        candidate = view.containers.get(layout.CANDIDATE_CONTAINER)
        both = (candidate.terminated, candidate.previous) if candidate is not None else ()
        ends = [each for each in both if each is not None]
        if any(each.exit_code == Code.TAMPERED for each in ends):
            message = "the candidate told the supervise of its container to stop"
            return Ended(Code.TAMPERED, SUPERVISOR_KILLED, message)
        if verdict == Ended(Code.FAILED) and any(memory_kills(each) for each in ends):
            message = "the memory limit ended the candidate or a process of it"
            return Ended(Code.FAILED, OOM_KILLED, message)
        return verdict

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the verdict of the tests."""
        return supervised_verdict(known, left, self.container)

    def own_metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult,
        candidate: str | bytes | None,  # noqa: ARG002 - the record has it
    ) -> Mapping[str, object]:
        """Return how the tests ran and ended."""
        words = verification.command.grading.split("-")
        timeout = {
            "failure_reason": VERIFIER_TIMEOUT,
            "timed_out": True,
            "timeout_seconds": self.code.timeout_seconds,
        }
        return {
            **command_fields(verification.command),
            "image": task.environment.image,
            "isolation": self.code.isolation,
            **CODE_FILES,
            **({"candidate_form": FENCED} if FENCED in words else {}),
            **(IN_PROCESS if self.code.is_shared else {}),
            **(timeout if verification.command.timed_out else {}),
        }

    def grading(self, verification: VerifierResult) -> Grading | None:
        """Return what the runner reports of ``separate`` tests."""
        if self.code.is_shared:
            return Grading.IN_PROCESS
        reported = verification.command.grading.split("-")[0]
        return Grading(reported) if reported in _REPORTED else None


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
    mounts = [_socket(f"{layout.COURIER_ROOT}/{SOCKET_VOLUME}")]
    return verifier_courier(job.plan, job.member.launch, marks, mounts)


def _socket(path: str) -> OwnVolume:
    return volumes.empty_dir(SOCKET_VOLUME, SOCKET_BYTES, path)


def _container(job: _CodeJob, place: _CodePlace) -> Manifest:
    own = _worker_mounts() if place.is_worker else _test_mounts(job)
    container = TaskContainer(
        name=place.name,
        environment=replace(job.member.task.environment, writable_root=False),
        mounts=(
            *own,
            volumes.workspace(job.plan.pods, job.workspace, place.workspace),
            volumes.home(place.home),
            volumes.temporary(place.temporary),
        ),
        capabilities=SUPERVISE_CAPABILITIES if job.code.is_shared else (),
        user=place.user,
    )
    spec = _worker_spec(job) if place.is_worker else _test_spec(job)
    return task_container(job.plan.pods, container, spec)


def _test_mounts(job: _CodeJob) -> list[PodMount]:
    return [
        *([] if job.code.is_shared else [_socket(SOCKET_FOLDER)._replace(read_only=True)]),
        candidate_mount(job.plan, job.member.launch, job.member.candidate, layout.CANDIDATE),
        lane_mount(
            job.plan, job.member.task, layout.LANE_EVALUATION_INPUTS, layout.REPOSITORY_INPUTS
        ),
        volumes.output(volumes.output_bytes(job.plan.limits)),
    ]


def _worker_mounts() -> list[PodMount]:
    return [_socket(SOCKET_FOLDER)]


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
        prechecks=(inline_compiler(TEST_FILE, job.workspace, user),),
        phases=tuple(_shared_phases(job) if is_shared else _test_phases(job)),
        holds="" if is_shared else SERVED,
        needs="" if is_shared else SOCKET,
        needs_seconds=0.0 if is_shared else WORKER_SECONDS,
        open_modes=(layout.OUTPUT,),
    )


def _test_phases(job: _CodeJob) -> list[Phase]:
    workdir = job.workspace
    again = (str(job.code.repeat),) if job.code.repeat else ()
    tests = (*PROGRAM, "proven", SOCKET, *_test_arguments(job), *again)
    seconds = job.code.timeout_seconds
    return [Phase(FailurePhase.TESTS, tests, workdir, seconds, proof=TESTS_INCOMPLETE)]


def _shared_phases(job: _CodeJob) -> list[Phase]:
    workdir = job.workspace
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
    worker = (*PROGRAM, "worker", SOCKET, job.workspace, *_rerun_arguments(job))
    return replace(
        base_spec(job.plan, job.facts, 0),
        streams=StreamsSpec("", 0, 0),
        temporary="",
        home=layout.HOME,
        phases=(Phase("candidate", worker, job.workspace, None),),
        linger=True,
        once=FIRST_START,
        serves=SERVED,
    )


def _rerun_arguments(job: _CodeJob) -> tuple[str, ...]:
    """Return how many workers follow the first, and all that candidate code can write."""
    if not job.code.repeat:
        return ()
    folders = (job.workspace, layout.HOME, layout.TEMPORARY, layout.SHARED_MEMORY)
    return (str(job.code.repeat), *folders, SOCKET_FOLDER, QUEUES)
