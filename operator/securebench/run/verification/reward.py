"""A script of the pack leaves a reward file beside the candidate.

The script is free: its exit code says nothing. supervise runs it, ends every process and then keeps
the first of the reward files that is there, whatever it is; the courier brings it, and it is read
here. What is no reward is the verifier's fault and never 0. Candidate code that the script runs
shares its container and can write the file: ``labels.grading`` says so.

Source: decision 0123.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from securebench.benchmark.families.base import RewardRequest
from securebench.errors import InvariantViolationError
from securebench.json_values import object_at, text_at
from securebench.protocol.candidate import KINDS, WORKSPACE_FILE, Problem
from securebench.protocol.grading import REWARD_FILE, Grading
from securebench.protocol.messages import VERSION, Code, DigestedPath, decode_object
from securebench.protocol.supervise import (
    ArtifactSpec,
    CandidateSpec,
    Phase,
    RewardSpec,
    RunSpec,
    artifacts_put,
    root_changes,
)
from securebench.reasons import (
    OOM_KILLED,
    REWARD_AMBIGUOUS,
    REWARD_EMPTY,
    REWARD_INVALID,
    REWARD_MISSING,
    VERIFIER_TIMEOUT,
    FailurePhase,
)
from securebench.run import layout
from securebench.run.observe.termination import BadMessageError
from securebench.run.plan.environment import Environment, in_image
from securebench.run.plan.kinds import PlanRequest
from securebench.run.plan.model import AttemptKey, ClusterFacts, LaunchKey, RunPlan, TaskPlan
from securebench.run.pods import volumes
from securebench.run.pods.containers import (
    TaskContainer,
    base_spec,
    side_pod,
    task_container,
    verifier_courier,
)
from securebench.run.pods.frame import Containers, Manifest, PodMount, launch_frame
from securebench.run.pods.volumes import (
    candidate_file,
    candidate_mount,
    lane_mount,
)
from securebench.run.records.labels import command_fields
from securebench.run.records.redaction import redact_texts, task_secrets
from securebench.run.state.attempts import Finish, SealedCandidate, VerifierResult
from securebench.run.verification.base import Left, Member, Verification, agent_end
from securebench.run.verification.checks import supervised_verdict
from securebench.sizes import KIB

TESTS: Final = "/tests"
REWARD_JSON: Final = "reward.json"
REWARD_TEXT: Final = "reward.txt"
MOST_BYTES: Final = 64 * KIB
"""Size of a reward file."""

FILES: Final = (REWARD_JSON, REWARD_TEXT)
"""The first that is there counts."""

_MOST_REPORT_BYTES: Final = 2 * MOST_BYTES
"""What supervise writes of it: base64, names and a message."""

REWARD: Final = "reward"
"""The reward that is the score, where there are several."""

SHELL: Final = "bash"
"""Runs a script without a #! line, if the image has it."""


class RewardError(Exception):
    """What a script left is no reward; ``reason`` is a failure_reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Reward(NamedTuple):
    """What a script says of a candidate.

    Attributes:
        rewards: By name; finite.
        score: The one called ``reward``, or the only one.
    """

    rewards: Mapping[str, float]
    score: float


def read_reward(name: str, content: bytes) -> Reward:
    """Return what a reward file says, read as Harbor reads it.

    Args:
        name: ``reward.json``: an object of numbers; otherwise a text with one number.
        content: Of the file; hostile.

    Raises:
        RewardError: It says nothing, something else, or does not say which reward is the score.
    """
    if not content:
        raise RewardError(REWARD_EMPTY, f"{name} is empty")
    try:
        text = content.decode("utf-8")
        rewards = _numbers(text) if name == REWARD_JSON else {REWARD: float(text)}
    except (ValueError, OverflowError, RecursionError):
        wanted = "an object of numbers in JSON" if name == REWARD_JSON else "one number as text"
        raise RewardError(REWARD_INVALID, f"{name} is not {wanted}") from None
    if not all(map(math.isfinite, rewards.values())):
        raise RewardError(REWARD_INVALID, f"{name} has a number that is not finite")
    return Reward(rewards, _score(name, rewards))


def _numbers(text: str) -> dict[str, float]:
    """Return an object of numbers; booleans count, and of equal names the last one.

    Raises:
        ValueError: It is none, or a name is no Unicode text.
        OverflowError: A number is too large for a float.
    """
    value = json.loads(text)
    if not isinstance(value, dict) or not all(
        isinstance(each, int | float) for each in value.values()
    ):
        raise ValueError("no object of numbers")
    "".join(value).encode()
    return {name: float(each) for name, each in value.items()}


def _score(name: str, rewards: Mapping[str, float]) -> float:
    if not rewards:
        raise RewardError(REWARD_MISSING, f"{name} has no reward")
    if len(rewards) > 1 and REWARD not in rewards:
        message = f"{name} has {len(rewards)} rewards, none of which is called {REWARD!r}"
        raise RewardError(REWARD_AMBIGUOUS, message)
    return rewards[REWARD] if REWARD in rewards else next(iter(rewards.values()))


def left_reward(report: bytes) -> Reward:
    """Return the reward of which supervise reports.

    Raises:
        RewardError: There is none.
        BadMessageError: supervise did not write this.
    """
    try:
        found = decode_object(report)
        name, problem, message = (text_at(found, key) for key in ("name", "problem", "message"))
        content = base64.b64decode(text_at(found, "content"), validate=True)
    except ValueError as error:
        raise BadMessageError(f"the report on the reward cannot be read: {error}") from error
    if found.get("v") != VERSION or name not in FILES or len(content) > MOST_BYTES:
        raise BadMessageError("the report on the reward is not of this version")
    if problem == Problem.MISSING:
        raise RewardError(REWARD_MISSING, f"the script left neither {' nor '.join(FILES)}")
    if problem:
        raise RewardError(REWARD_INVALID, message)
    return read_reward(name, content)


@dataclass(frozen=True)
class RewardVerification(Verification):
    """A script that the pack brings leaves a reward file.

    Attributes:
        request: What the row says of it.
        changes_root: Whether the candidate changes the file system in which the script runs.
    """

    name = "reward"
    description = "runs a script that leaves a reward, in the task's image, without network"
    container = layout.CHECK

    request: RewardRequest
    changes_root: bool

    @classmethod
    def planned(cls, request: PlanRequest) -> RewardVerification:
        """Return the verification of a row with a script.

        Raises:
            InvariantViolationError: The family has no script.
        """
        family = request.family
        if family.reward is None:
            raise InvariantViolationError(f"{family.name} has no script that leaves a reward")
        archive = KINDS[family.candidate_kind].archive
        return cls(family.reward(request.task), archive not in {"", WORKSPACE_FILE})

    @property
    def runs_in_task_image(self) -> bool:
        """Whether the script runs in the image of the agent."""
        return not text_at(self.request.environment, "image")

    @property
    def artifacts(self) -> tuple[ArtifactSpec, ...] | None:
        """What alone of the agent's container comes to the script."""
        wanted = self.request.artifacts
        if wanted is None:
            return None
        return tuple(ArtifactSpec(each.source, each.exclude) for each in wanted)

    @property
    def time_limit_seconds(self) -> float | None:
        """Time limit of the script."""
        return self.request.timeout_seconds

    def environment(self, plan: RunPlan, task: TaskPlan) -> Environment:  # noqa: ARG002
        """Return the script's environment, with the workspace if the candidate is one."""
        agents, request = task.environment, self.request
        own = in_image(request.environment, request.timeout_seconds, agents.image)
        if not agents.workspace:
            return own
        workdir = own.workdir or agents.workdir
        return replace(own, workspace=agents.workspace, workdir=workdir)

    def pod(
        self, plan: RunPlan, first: LaunchKey, members: Sequence[Member], facts: ClusterFacts
    ) -> Manifest:
        """Return the Pod that runs the script beside the candidate."""
        (member,) = members
        environment = self.environment(plan, member.task)
        container = TaskContainer(
            name=self.container,
            environment=environment,
            mounts=self._mounts(plan, member, environment),
        )
        spec = self._run_spec(plan, member, environment, facts)
        containers = Containers(
            task_container(plan.pods, container, spec), [verifier_courier(plan, member.launch)]
        )
        frame = launch_frame(plan, first, environment.timeout_seconds, facts)
        return side_pod(plan, environment, frame, containers)

    def _run_spec(
        self, plan: RunPlan, member: Member, environment: Environment, facts: ClusterFacts
    ) -> RunSpec:
        script = Phase(
            FailurePhase.TESTS,
            (f"{TESTS}/{self.request.script}",),
            environment.workdir,
            environment.timeout_seconds,
            environment.env,
            script=True,
            interpreter=SHELL,
            ready=True,
        )
        return replace(
            self._with_candidate(
                base_spec(plan, facts, plan.limits.stream_bytes), member, environment
            ),
            verdict=True,
            lanes=(
                ()
                if self.request.brings_tests
                else (DigestedPath(TESTS, member.lanes.evaluation_inputs_digest),)
            ),
            protected=(TESTS, *self._log_folders()),
            phases=(script,),
            open_modes=(layout.OUTPUT,),
            reward=RewardSpec(layout.VERIFIER_LOGS, FILES, MOST_BYTES),
        )

    def rejected(
        self, task: TaskPlan, key: AttemptKey, candidate: SealedCandidate
    ) -> Finish | None:
        """Return the end of an attempt that handed in no files, or None."""
        end = super().rejected(task, key, candidate)
        if end is not None or KINDS[task.extraction.kind].archive:
            return end
        message = "the harness hands in a text; the script needs files"
        phase = FailurePhase.CANDIDATE_EXTRACTION
        return agent_end(key, Problem.MISSING.value, phase, message)

    def verdict(self, known: VerifierResult, left: Left) -> VerifierResult:
        """Return the score by the reward that the script left; its exit code says nothing."""
        found = replace(supervised_verdict(known, left, self.container), passed=False)
        if found.problem:
            return found
        if left.code == Code.TIMED_OUT:
            message = "the script ran into its time limit before it ended"
            return replace(found, problem=VERIFIER_TIMEOUT, message=message)
        try:
            reward = left_reward(left.read(left.launch, REWARD_FILE, _MOST_REPORT_BYTES))
        except RewardError as error:
            reason = OOM_KILLED if found.command.memory_kills else error.reason
            return replace(found, problem=reason, message=str(error))
        passed = reward.score >= self.request.threshold
        metadata = {"rewards": dict(reward.rewards)}
        return replace(found, passed=passed, score=reward.score, metadata=metadata)

    def own_metadata(
        self,
        task: TaskPlan,
        verification: VerifierResult,
        candidate: str | bytes | None,  # noqa: ARG002 - files are no text
    ) -> Mapping[str, object]:
        """Return how the script ended, and the rewards without hidden values in their names."""
        rewards = object_at(verification.metadata, "rewards")
        names = redact_texts(task_secrets(task.task.resources), rewards)
        return {
            **command_fields(verification.command),
            **({"rewards": dict(zip(names, rewards.values(), strict=True))} if rewards else {}),
            "threshold": self.request.threshold,
            "image": text_at(self.request.environment, "image") or task.environment.image,
            "timed_out": verification.command.timed_out,
            "timeout_seconds": self.request.timeout_seconds,
        }

    def grading(self, verification: VerifierResult) -> Grading:  # noqa: ARG002 - the row decides
        """Return how near the candidate's files came to the reward."""
        if self.request.artifacts is not None:
            return Grading.REWARD_FILE_ARTIFACTS
        return Grading.REWARD_FILE_ROOT if self.changes_root else Grading.REWARD_FILE

    def _with_candidate(self, spec: RunSpec, member: Member, environment: Environment) -> RunSpec:
        """Return a specification that brings the candidate before the script runs."""
        archive = candidate_file(member.candidate, layout.CANDIDATE)
        if self.request.artifacts is not None:
            return replace(spec, temporary="", changes=artifacts_put(archive))
        return _with_candidate(spec, archive, member, environment)

    def _log_folders(self) -> tuple[str, ...]:
        """Return the folders of logs; artifacts may be files below the others."""
        return layout.LOG_FOLDERS if self.request.artifacts is None else (layout.VERIFIER_LOGS,)

    def _mounts(self, plan: RunPlan, member: Member, environment: Environment) -> list[PodMount]:
        """Return the mounts of the script's container.

        Without a workspace the candidate may be anywhere in the image's file system, so that
        nothing lies over it but the folders of the tests.
        """
        workspace, tests = environment.workspace, layout.LANE_EVALUATION_INPUTS
        return [
            *([volumes.workspace(plan.pods, workspace), volumes.temporary()] if workspace else []),
            *([] if self.request.brings_tests else [lane_mount(plan, member.task, tests, TESTS)]),
            candidate_mount(plan, member.launch, member.candidate, layout.CANDIDATE),
            *volumes.logs(self._log_folders()),
            volumes.output(volumes.output_bytes(plan.limits)),
        ]


def _with_candidate(
    spec: RunSpec, archive: DigestedPath, member: Member, environment: Environment
) -> RunSpec:
    """Return a specification that brings what an agent changed, or its workspace."""
    if not environment.workspace:
        changes = root_changes(archive, member.task.environment.user)
        return replace(spec, temporary="", changes=changes)
    brought = CandidateSpec(archive.path, archive.digest, environment.workspace)
    return replace(spec, candidate=brought)
