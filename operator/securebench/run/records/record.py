"""Build the record of a finished attempt, one JSON object.

``RecordContext`` is what a record holds of its run, and of the network under which it was produced.

Source: contract 14.5.1, 15.3, 15.4, 21.1, 21.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.benchmark.resources import REDACTED
from securebench.clock import rfc3339
from securebench.names import logical_name
from securebench.protocol.candidate import KINDS
from securebench.reasons import PRODUCER_TIMEOUT
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import VERIFIER_STDERR
from securebench.run.records.labels import (
    IsolationLabel,
    losses,
    producer_metadata,
    record_digests,
    record_labels,
    stream_fields,
)
from securebench.run.records.redaction import (
    RedactedVerification,
    redact_texts,
    redact_verification,
    task_secrets,
)
from securebench.run.state.attempts import ProducerNetwork
from securebench.run.state.history import verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.benchmark.pack.task import SecureBenchTask
    from securebench.run.plan.model import EarlierRun, RunPlan, TaskPlan
    from securebench.run.state.attempts import AttemptHistory, Finish
    from securebench.run.state.entries import IsolationResult


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Properties of the run, and the end of the attempt, for a record.

    Attributes:
        isolation: Whether the network isolation was verified.
        finished_at: End of the attempt, seconds since the epoch.
        run_ordinal: Ordinal of the run among those with this run id and these digests, from 1.
        resume_generation: Number of runs before it in a chain of resumed runs.
        platform: ``<os>-<arch>`` of the agents' CLIs.
        node_reachable: Whether the canary reached the node.
    """

    isolation: IsolationLabel
    finished_at: float
    run_ordinal: int = 1
    resume_generation: int = 0
    platform: str = "linux-amd64"
    node_reachable: bool = False


def record_context(
    isolation: IsolationResult | None,
    producer: ProducerNetwork | None,
    finished_at: float,
    run_ordinal: int,
    resume_generation: int,
    platform: str,
) -> RecordContext:
    """Return the context of one record.

    Isolation counts as verified only where a canary proved that of this run and, for a candidate
    that another run produced, that of the other one. The node was reachable if it was for either.

    Args:
        isolation: What is known of this run's network; None before that was found out.
        producer: The network of the run that produced the candidate; None where it is this one.
        finished_at: End of the attempt, seconds since the epoch.
        run_ordinal: As of ``RecordContext``.
        resume_generation: As of ``RecordContext``.
        platform: ``<os>-<arch>`` of the agents' CLIs.
    """
    known = ProducerNetwork()
    if isolation is not None:
        known = ProducerNetwork(isolation.verified, isolation.node_reachable)
    networks = [known] if producer is None else [known, producer]
    is_verified = all(network.verified for network in networks)
    return RecordContext(
        isolation=IsolationLabel.VERIFIED if is_verified else IsolationLabel.DECLARED,
        finished_at=finished_at,
        run_ordinal=run_ordinal,
        resume_generation=resume_generation,
        platform=platform,
        node_reachable=any(network.node_reachable for network in networks),
    )


LOSSES_SHOWN = 5
"""Entries that a failure message names; the record has more."""

MAX_TAGS, LABEL_CHARACTERS = 32, 64
"""Bounds of the tags of a record, and of each of them and the difficulty."""


@dataclass(frozen=True, slots=True)
class RecordTexts:
    """Captured texts of an attempt, bounded by the courier; bytes are UTF-8."""

    producer_stdout: str | bytes = ""
    producer_stderr: str | bytes = ""
    verifier_stdout: str | bytes = ""
    verifier_stderr: str | bytes = ""
    candidate: str | bytes | None = None


def candidate_record(
    plan: RunPlan,
    task: TaskPlan,
    history: AttemptHistory,
    finish: Finish,
    texts: RecordTexts,
    context: RecordContext,
) -> dict[str, object]:
    """Return the record of an attempt.

    Args:
        plan: The run.
        task: Its task.
        history: The attempt, still open: its state has what the record reports.
        finish: How it ends.
        texts: What its launches left.
        context: What the record holds of its run.
    """
    verified = _redacted(task, history, finish, texts)
    return {
        **_identity(plan, task, history, context),
        "outcome": record_outcome(finish.outcome),
        **verdict_fields(verdict_of(finish), finish.score),
        **_failure(finish, verified.failure_message),
        **_candidate(task, history, finish, texts),
        "producer_stdout": texts.producer_stdout,
        "producer_stderr": texts.producer_stderr,
        "producer_metadata": producer_metadata(plan, task, history, context.platform),
        **_verifier_fields(history, finish, verified),
        "labels": record_labels(
            plan, task, history, context.isolation, node_reachable=context.node_reachable
        ),
        "digests": record_digests(plan, task, history),
        "timing": _timing(history, context),
    }


def task_fields(run_id: str, task: SecureBenchTask) -> dict[str, object]:
    """Return the fields of a record that describe its task; no hidden values (contract 15.3)."""
    return {
        "run_id": run_id,
        "task_id": task.id,
        "benchmark_id": task.benchmark_id,
        "task_type": task.task_type,
        "resource_summary": task.resource_summary(),
        "hidden_values": REDACTED,
    }


def _task_labels(task: SecureBenchTask) -> dict[str, object]:
    """Return difficulty and tags of a task's metadata where they have their usual form.

    Both are bounded, and redacted like everything that quotes a task's author.
    """
    difficulty, tags = task.metadata.get("difficulty"), task.metadata.get("tags")
    given = [difficulty] if isinstance(difficulty, str) else []
    listed = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    if not given and not listed:
        return {}
    secrets = task_secrets(task.resources)
    first, *_ = (*_bounded(redact_texts(secrets, given)), "")
    named = _bounded(redact_texts(secrets, listed[:MAX_TAGS]))
    fields = {"difficulty": first, "tags": list(dict.fromkeys(named))}
    return {name: value for name, value in fields.items() if value}


def _bounded(texts: Iterable[str]) -> list[str]:
    return [text[:LABEL_CHARACTERS] for text in texts if text.strip()]


def regrade_field(earlier: EarlierRun, *, graded_again: bool) -> dict[str, object]:
    """Return what the record of a regrade says of the run that it grades again.

    Args:
        earlier: That run.
        graded_again: False where it sealed no candidate, so that its outcome stands.
    """
    known = {"run": earlier.name, "run_id": earlier.run_id, "run_uid": earlier.uid}
    return {**known, "graded_again": graded_again}


def record_outcome(outcome: Outcome) -> str | None:
    """Return an outcome as records spell it; null for a family without verifier."""
    return None if outcome is Outcome.NOT_VERIFIED else outcome.value


def verdict_fields(
    passed: bool | None,  # noqa: FBT001 - it is the verdict
    score: float | None = None,
) -> dict[str, object]:
    """Return the verdict fields of a record (contract 15.3).

    Args:
        passed: None means no verdict.
        score: Reward of a script; None where the verdict is the whole score.
    """
    if passed is None:
        return {"verification_status": "pending"}
    return {
        "verification_status": "passed" if passed else "failed",
        "passed": passed,
        "score": float(passed) if score is None else score,
    }


def _identity(
    plan: RunPlan, task: TaskPlan, history: AttemptHistory, context: RecordContext
) -> dict[str, object]:
    return {
        **task_fields(plan.identity.run_id, task.task),
        **_task_labels(task.task),
        "attempt": history.key.attempt,
        "launches": history.launches,
        "resume_generation": context.resume_generation,
        "run_ordinal": context.run_ordinal,
        "pack_digest": plan.pack_digest,
        "harness_digest": plan.harness.digest,
        "verifier_version": plan.verifier_version,
        **_regrade(plan, history),
    }


def _regrade(plan: RunPlan, history: AttemptHistory) -> dict[str, object]:
    if plan.regrade is None:
        return {}
    graded_again = history.production is not None
    return {"regrade": regrade_field(plan.regrade, graded_again=graded_again)}


def _failure(finish: Finish, message: str | None) -> dict[str, object]:
    fields = {
        "failure_reason": finish.reason,
        "failure_phase": finish.phase,
        "failure_message": message,
    }
    return {name: value for name, value in fields.items() if value}


def _candidate(
    task: TaskPlan, history: AttemptHistory, finish: Finish, texts: RecordTexts
) -> dict[str, object]:
    fields: dict[str, object] = {form.record_field: None for form in KINDS.values()}
    production = history.production
    if production is None or production.candidate is None or finish.reason == PRODUCER_TIMEOUT:
        return fields
    form = KINDS[task.extraction.kind]
    if not form.archive:
        fields[form.record_field] = texts.candidate
    elif production.candidate.file is not None:
        fields[form.record_field] = f"workspaces/{logical_name(task.task.id)}"
    return fields


def _redacted(
    task: TaskPlan, history: AttemptHistory, finish: Finish, texts: RecordTexts
) -> RedactedVerification:
    metadata = _verifier_metadata(task, history, finish, texts)
    operator_stderr = metadata.pop(VERIFIER_STDERR, None)
    stderr = texts.verifier_stderr if operator_stderr is None else str(operator_stderr)
    return redact_verification(
        task_secrets(task.task.resources),
        texts.verifier_stdout,
        stderr,
        metadata,
        _message(history, finish),
    )


def _message(history: AttemptHistory, finish: Finish) -> str | None:
    """Return the failure message: also what the check did not get, where the attempt failed."""
    count, named = losses(history)
    if verdict_of(finish) is not False or not named:
        return finish.message or None
    shown = [f"{path} ({reason})" for path, reason in named[:LOSSES_SHOWN]]
    more = max(count, len(named)) - len(shown)
    listed = ", ".join([*shown, f"{more} more"] if more else shown)
    lost = f"the check did not get all that the agent left: {listed}"
    return f"{finish.message}; {lost}" if finish.message else lost


def _verifier_metadata(
    task: TaskPlan, history: AttemptHistory, finish: Finish, texts: RecordTexts
) -> dict[str, object]:
    """Return the metadata before redaction; may include the operator's own stderr text."""
    verification = history.verification
    if task.verification is None:
        return dict(finish.metadata)
    metadata = task.verification.metadata(task, verification, finish, texts.candidate)
    if verification is None:
        return metadata
    streams = stream_fields(verification.stdout, verification.stderr)
    return {**metadata, **streams, "image_id": verification.facts.image_id}


def _verifier_fields(
    history: AttemptHistory, finish: Finish, verified: RedactedVerification
) -> dict[str, object]:
    if history.verification is None and not finish.metadata:
        return {}
    return {
        "verifier_stdout": verified.stdout,
        "verifier_stderr": verified.stderr,
        "verifier_metadata": verified.metadata,
    }


def _timing(history: AttemptHistory, context: RecordContext) -> dict[str, object]:
    started = context.finished_at if history.started_at is None else history.started_at
    return {
        "started_at": rfc3339(started),
        "finished_at": rfc3339(context.finished_at),
        "duration_seconds": round(context.finished_at - started, 3),
    }
