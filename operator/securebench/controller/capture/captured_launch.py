"""Reads what an ended launch left, on the volume and in its containers' messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from securebench.controller.capture.batch import BatchLostError, batch_verdict
from securebench.controller.capture.patches import failed_step, seal_patch
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
from securebench.errors import DigestMismatchError
from securebench.protocol.exit_codes import Code
from securebench.protocol.extraction import TEXT_FILE
from securebench.reasons import (
    EGRESS_REPORT_MISSING,
    EGRESS_SETUP_FAILED,
    EXTRACTION_FAILED,
    VERIFIER_CONFIGURATION,
    VERIFIER_ERROR,
)
from securebench.run.decide.attempt import Capture
from securebench.run.layout import (
    CANDIDATE_NAME,
    CONTROL_CHECK,
    COURIER,
    HARNESS,
    VERIFICATION_NAME,
    VERIFIER,
)
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import MAIN, memory_kills
from securebench.run.observe.termination import (
    BadMessageError,
    collected_streams,
    command_report,
    kernel_release,
    launch_evidence,
    sealed_candidate,
    text_verdict,
)
from securebench.run.plan.model import Role, TaskPlan, VerifierKind
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
from securebench.sizes import MIB

PIECE_BYTES = MIB

Captured = Produced | Verified | LaunchLost


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
    except BatchLostError as error:
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
        command=_report(job.view, HARNESS, job.ended.code),
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
            if task.check is not None and task.check.patch is not None:
                patch = seal_patch(task.check.patch, path.parent)
                candidate = replace(candidate, patch=patch)
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
    if task.verifier is VerifierKind.TEXT:
        return _text_verification(store, base, job)
    return _check_verification(store, task, base, job)


def _text_verification(store: RunStore, base: VerifierResult, job: Capture) -> VerifierResult:
    message = _message(job.view, VERIFIER)
    if job.batch is not None:
        passed, metadata = batch_verdict(store, job.batch, job.launch, message)
        return replace(base, passed=passed, metadata=metadata)
    try:
        passed, metadata = text_verdict(message)
    except BadMessageError as error:
        message = f"the text verifier ended well and its verdict was lost: {error}"
        raise BadMessageError(message) from error
    return replace(base, passed=passed, metadata=metadata)


def _check_verification(
    store: RunStore, task: TaskPlan, base: VerifierResult, job: Capture
) -> VerifierResult:
    report = _report(job.view, _checking(job.view, task.verifier), job.ended.code)
    stdout, stderr = collected_streams(_message(job.view, COURIER))
    known = replace(base, command=report, stdout=stdout, stderr=stderr)
    if job.ended.code in {Code.DONE, Code.FAILED, Code.TIMED_OUT}:
        return replace(known, passed=job.ended.code == Code.DONE)
    if job.ended.code == Code.UNFIT:
        reason = f"{report.phase}: {report.error or f'exit code {report.exit_code}'}"
        return replace(known, problem=VERIFIER_CONFIGURATION, message=reason)
    if task.check is not None and task.check.patch is not None:
        folder = store.launch_folder(job.launch) / VERIFICATION_NAME
        return failed_step(task.check.patch, known, job.ended.code, folder)
    reason = f"the check's preparation failed: {report.error or report.phase}"
    return replace(known, problem=VERIFIER_ERROR, message=reason)


def _checking(view: PodView, kind: VerifierKind) -> str:
    """Return which container ended a check: the one with the control, when it failed."""
    control = view.containers.get(CONTROL_CHECK)
    ended = control.terminated if control is not None else None
    return CONTROL_CHECK if ended is not None and ended.exit_code else MAIN[kind]


def _report(view: PodView, container: str, code: int) -> CommandReport:
    seen = view.containers.get(container)
    kills = memory_kills(seen.terminated) if seen is not None and seen.terminated is not None else 0
    report = command_report(_message(view, container))
    return replace(report, timed_out=code == Code.TIMED_OUT, memory_kills=kills)


def _facts(view: PodView) -> PodFacts:
    return replace(view.facts, kernel=kernel_release(_message(view, COURIER)))


def _message(view: PodView, container: str) -> str:
    seen = view.containers.get(container)
    return seen.terminated.message if seen is not None and seen.terminated is not None else ""
