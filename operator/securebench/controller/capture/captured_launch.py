"""Reads what an ended launch left, on the volume and in its containers' messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.controller.capture.secret_scrubbing import hide_values, without_values
from securebench.controller.capture.secret_values import SecretMatcher
from securebench.controller.volume.gateway_reports import (
    GatewayReplacedError,
    ReportMissingError,
    launch_report,
    lost_usage,
    require_same_gateway,
)
from securebench.controller.volume.store import RunStore, last_words
from securebench.errors import DigestMismatchError, InvariantViolationError
from securebench.files.durable import replace_file
from securebench.files.untrusted import UnreadableError, open_regular, open_root
from securebench.protocol.extraction import TEXT_FILE
from securebench.reasons import EGRESS_REPORT_MISSING, EGRESS_SETUP_FAILED, EXTRACTION_FAILED
from securebench.run.decide.attempt import Capture
from securebench.run.layout import (
    CANDIDATE_NAME,
    COURIER,
    HARNESS,
    VERIFICATION_NAME,
)
from securebench.run.observe.evidence import launch_evidence
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import container_report
from securebench.run.observe.termination import (
    BadMessageError,
    kernel_release,
    sealed_candidate,
)
from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.plan.model import TaskPlan
from securebench.run.state.attempts import (
    CommandReport,
    HarnessResult,
    Lost,
    PodFacts,
    SealedCandidate,
    StreamInfo,
    Usage,
    VerifierResult,
)
from securebench.run.state.entries import LaunchLost, Produced, Verified
from securebench.run.verification.base import SharedPodLostError
from securebench.sizes import MIB

PIECE_BYTES = MIB

Captured = Produced | Verified | LaunchLost


class CandidateFolder(NamedTuple):
    """The folder of a sealed candidate on the volume."""

    path: Path

    def read(self, name: str) -> bytes:
        """Return the content of a file that the courier sealed."""
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the candidate, durably; writing it again replaces it."""
        replace_file(self.path / name, content)


class LeftOnVolume(NamedTuple):
    """What a verifier launch left in its Pod's messages and on the volume."""

    store: RunStore
    job: Capture

    @property
    def launch(self) -> LaunchKey:
        """The launch."""
        return self.job.launch

    @property
    def batch(self) -> LaunchKey | None:
        """First of the launches that shared the Pod, or None."""
        return self.job.batch

    @property
    def view(self) -> PodView:
        """The Pod."""
        return self.job.view

    @property
    def code(self) -> int:
        """Exit code of the container whose end is the launch's end."""
        return self.job.ended.code

    def message(self, container: str) -> str:
        """Return the termination message of a container; empty without one."""
        return _message(self.job.view, container)

    def read(self, launch: LaunchKey, name: str, most_bytes: int) -> bytes:
        """Return what a launch collected in its folder of verification."""
        folder = self.store.launch_folder(launch) / VERIFICATION_NAME
        if not (folder / name).exists():
            raise FileNotFoundError(f"there is no {name}")
        try:
            with open_root(folder) as root, open_regular(root, name) as file:
                return file.read(most_bytes + 1)
        except UnreadableError as error:
            raise DigestMismatchError(f"{name} cannot be read: {error}") from error


def capture(
    store: RunStore,
    task: TaskPlan,
    job: Capture,
    now: float,
    *,
    gateway_since: float | None = None,
    exposed: SecretMatcher,
) -> Captured:
    """Turn an ended launch into its journal entry. Blocks: it hashes the candidate again.

    Args:
        store: The run's folder.
        task: The launch's task.
        job: What to capture.
        now: Seconds since the epoch.
        gateway_since: When the run's gateway Pod was created, in seconds since the epoch; then its
            last word on the launch is needed. None: the run's harnesses have no egress.
        exposed: What is filled up in the launch's streams and in what git said of its diff.

    Returns:
        The result, or the loss of the launch when what it left does not hold together.
    """
    entry = _captured(store, task, job, now, gateway_since, exposed)
    has_evidence_elsewhere = job.batch not in {None, job.launch}
    return replace(entry, evidence=None if has_evidence_elsewhere else launch_evidence(job.view))


def _captured(
    store: RunStore,
    task: TaskPlan,
    job: Capture,
    now: float,
    gateway_since: float | None,
    exposed: SecretMatcher,
) -> Captured:
    hide_values(store, job.launch, exposed)
    try:
        if job.launch.role is Role.HARNESS:
            production = _production(store, task, job)
            command = without_values(production.command, exposed)
            production = replace(production, command=command)
            if gateway_since is not None:
                require_same_gateway(job.view, gateway_since)
                report = launch_report(store, job.view, job.ended.problem)
                production = replace(production, egress=report)
            return Produced(job.launch.attempt_key, production, now)
        return Verified(job.launch.attempt_key, _verification(store, task, job), now)
    except SharedPodLostError as error:
        return LaunchLost(Lost(job.launch, EXTRACTION_FAILED, str(error), now, is_shared=True))
    except GatewayReplacedError as error:
        lost = Lost(job.launch, EGRESS_SETUP_FAILED, str(error), now)
    except ReportMissingError as error:
        lost = Lost(job.launch, EGRESS_REPORT_MISSING, str(error), now)
    except (BadMessageError, DigestMismatchError, FileNotFoundError) as error:
        lost = Lost(job.launch, EXTRACTION_FAILED, str(error), now)
    usage = lost_usage(store, job.view.name) if gateway_since is not None else Usage()
    return LaunchLost(replace(lost, usage=usage))


def _production(store: RunStore, task: TaskPlan, job: Capture) -> HarnessResult:
    candidate, stdout, stderr = _sealed(store, task, job)
    return HarnessResult(
        launch=job.launch.launch,
        command=container_report(job.view, HARNESS, job.ended.code),
        candidate=candidate,
        facts=_facts(job.view),
        stdout=stdout,
        stderr=stderr,
        problem=job.ended.problem,
        last_words=last_words(store, job.launch),
    )


def _sealed(
    store: RunStore, task: TaskPlan, job: Capture
) -> tuple[SealedCandidate | None, StreamInfo, StreamInfo]:
    message = _message(job.view, COURIER)
    if job.ended.problem and not message:
        return None, StreamInfo(), StreamInfo()
    candidate, stdout, stderr = sealed_candidate(message, job.launch.launch)
    if candidate.file is not None:
        path = store.launch_folder(job.launch) / CANDIDATE_NAME / candidate.file
        store.check_file(path, candidate.digest)
        if candidate.file == TEXT_FILE:
            candidate = replace(candidate, is_blank=_is_blank(path))
            if task.verification is not None:
                candidate = task.verification.sealed(candidate, CandidateFolder(path.parent))
    return candidate, stdout, stderr


def _is_blank(path: Path) -> bool:
    with path.open("rb") as file:
        return not any(piece.strip() for piece in iter(partial(file.read, PIECE_BYTES), b""))


def _verification(store: RunStore, task: TaskPlan, job: Capture) -> VerifierResult:
    base = VerifierResult(
        launch=job.launch.launch,
        passed=False,
        metadata={},
        command=CommandReport(),
        facts=_facts(job.view),
        problem=job.ended.problem,
        message=job.ended.message,
    )
    if job.ended.problem:
        return base
    if task.verification is None:
        raise InvariantViolationError("a verifier launch of a task without verification")
    return task.verification.verdict(base, LeftOnVolume(store, job))


def _facts(view: PodView) -> PodFacts:
    return replace(view.facts, kernel=kernel_release(_message(view, COURIER)))


def _message(view: PodView, container: str) -> str:
    seen = view.containers.get(container)
    return seen.terminated.message if seen is not None and seen.terminated is not None else ""
