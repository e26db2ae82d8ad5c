"""Termination messages and Pod status of an ended launch: strict decoders, and what is kept.

``decode`` reads what supervise, courier and verifier write. ``launch_evidence`` is what the journal
keeps of a Pod's status.

Source: contract 15.1, 21.4, 21.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from securebench.protocol.candidate import CANDIDATE_FILES, Problem
from securebench.protocol.messages import (
    CPU_PERIODS,
    CPU_THROTTLED,
    MEMORY_PEAK_BYTES,
    USAGE_FIELDS,
    VERSION,
    decode_object,
)
from securebench.run.observe.pods import ContainerView, PodView
from securebench.run.state.attempts import (
    CommandReport,
    DiffReport,
    Loss,
    SealedCandidate,
    StreamInfo,
)
from securebench.run.state.entries import ContainerEvidence, ContainerUsage, LaunchEvidence

CANDIDATE_PROBLEMS = frozenset(Problem)


COLLECTED_FIELDS = USAGE_FIELDS | {"v", "stdout", "stderr", "kernel"}


SEALED_FIELDS = COLLECTED_FIELDS | {
    "problem",
    "message",
    "file",
    "digest",
    "size_bytes",
    "candidate_sha256",
    "dropped_entries",
    "dropped",
}


MAX_COUNT = 2**63 - 1
"""What a counter of the kernel has at most."""

MAX_LOSSES = 20
MAX_LOSS_CHARACTERS = 200
"""Bounds of the losses that a message names, and of each of their texts."""

EXIT_CODES = range(256)


MAX_KERNEL = 64
"""Characters of a kernel's release; Linux keeps no more."""


BASELINES = frozenset({"clean", "committed"})


BATCH_FIELDS = USAGE_FIELDS | {"v", "verdicts"}


VERDICT_FIELDS = USAGE_FIELDS | {"v", "passed", "score", "metadata"}


class BadMessageError(ValueError):
    """A termination message that no version of our programs writes."""


def command_report(message: str) -> CommandReport:
    """Decode supervise's message. It is evidence only, so a bad one gives an empty report."""
    try:
        fields = decode(message)
    except BadMessageError:
        return CommandReport(error="supervise left no readable report")
    return CommandReport(
        exit_code=_exit_code(fields),
        timed_out=fields.get("timed_out") is True,
        duration_seconds=_float(fields, "duration_seconds"),
        phase=_text(fields, "phase"),
        error=_text(fields, "error"),
        commit=_text(fields, "commit"),
        diff=_diff(fields.get("diff")),
        unstarted=fields.get("unstarted") is True,
        memory_kills=_count(fields, "memory_kills"),
        grading=_text(fields, "grading"),
        dropped_entries=_count(fields, "dropped_entries"),
        dropped=_losses(fields),
    )


def container_usage(message: str) -> ContainerUsage:
    """Decode what a program of ours measured of its container; without it nothing is known."""
    try:
        fields = decode(message)
    except BadMessageError:
        return ContainerUsage()
    return ContainerUsage(
        memory_peak_bytes=_count(fields, MEMORY_PEAK_BYTES),
        cpu_periods=_count(fields, CPU_PERIODS),
        cpu_throttled=_count(fields, CPU_THROTTLED),
    )


def error_words(message: str) -> str:
    """Return what a program of ours said went wrong; a message that is no report as it is."""
    try:
        return _text(decode(message), "error")
    except BadMessageError:
        return message


def sealed_candidate(message: str, launch: int) -> tuple[SealedCandidate, StreamInfo, StreamInfo]:
    """Decode the courier's message after sealing.

    Returns:
        The candidate and what was kept of stdout and stderr.

    Raises:
        BadMessageError: The courier did not write this.
    """
    fields = _trusted(message, SEALED_FIELDS)
    file = _known(fields, "file", CANDIDATE_FILES)
    problem = _known(fields, "problem", CANDIDATE_PROBLEMS)
    candidate = SealedCandidate(
        launch=launch,
        file=file,
        digest=_text(fields, "digest"),
        size_bytes=_integer(fields, "size_bytes") or 0,
        candidate_sha256=_text(fields, "candidate_sha256"),
        dropped_entries=_integer(fields, "dropped_entries") or 0,
        problem=problem,
        message=_text(fields, "message"),
        dropped=_losses(fields),
    )
    return candidate, *streams(fields)


def collected_streams(message: str) -> tuple[StreamInfo, StreamInfo]:
    """Decode the courier's message after collecting the streams of a check.

    Raises:
        BadMessageError: The courier did not write this.
    """
    return streams(_trusted(message, COLLECTED_FIELDS))


def kernel_release(message: str) -> str:
    """Return the kernel's release that a courier or a probe measured, or empty.

    It is evidence about the Pod, so a message that cannot be read only says nothing of it.
    """
    try:
        release = _text(decode(message), "kernel")
    except BadMessageError:
        return ""
    return release[:MAX_KERNEL]


def text_verdict(message: str) -> tuple[bool, Mapping[str, object]]:
    """Decode the text verifier's message: the verdict and its metadata.

    Raises:
        BadMessageError: The verifier did not write this.
    """
    fields = _trusted(message, VERDICT_FIELDS)
    passed, metadata = fields.get("passed"), fields.get("metadata")
    if not isinstance(passed, bool) or not isinstance(metadata, Mapping):
        raise BadMessageError("a verdict needs passed and metadata")
    return passed, metadata


def verdicts_digest(message: str) -> str:
    """Decode the message of a batch's verifier: the digest of its verdict file.

    Raises:
        BadMessageError: The verifier did not write this.
    """
    digest = _text(_trusted(message, BATCH_FIELDS), "verdicts")
    if not digest:
        raise BadMessageError("a batch needs the digest of its verdicts")
    return digest


def streams(fields: Mapping[str, object]) -> tuple[StreamInfo, StreamInfo]:
    """Return what was kept of stdout and stderr."""
    return _stream(fields.get("stdout")), _stream(fields.get("stderr"))


def decode(message: str) -> Mapping[str, object]:
    """Decode one JSON object of version 1.

    Raises:
        BadMessageError: Anything else.
    """
    try:
        value = decode_object(message)
    except ValueError as error:
        raise BadMessageError(str(error)) from error
    if _integer(value, "v") != VERSION:
        raise BadMessageError("not an object of version 1")
    return value


def _trusted(message: str, known: frozenset[str]) -> Mapping[str, object]:
    """Decode a message of our own programs, which has no other fields than those known."""
    fields = decode(message)
    unknown = sorted(set(fields) - known)
    if unknown:
        raise BadMessageError(f"unknown fields: {', '.join(unknown)}")
    return fields


def _known(fields: Mapping[str, object], key: str, known: frozenset[str]) -> str | None:
    value = fields.get(key)
    if value is None or (isinstance(value, str) and value in known):
        return value
    raise BadMessageError(f"{key} is nothing that a courier says")


def _stream(value: object) -> StreamInfo:
    if not isinstance(value, Mapping):
        return StreamInfo()
    return StreamInfo(_integer(value, "bytes") or 0, value.get("truncated") is True)


def _losses(fields: Mapping[str, object]) -> tuple[Loss, ...]:
    given = fields.get("dropped")
    listed = given[:MAX_LOSSES] if isinstance(given, list) else []
    texts = [(_text(each, "path"), _text(each, "reason")) for each in listed if _is_object(each)]
    return tuple(
        Loss(_printable(path), _printable(reason)) for path, reason in texts if path and reason
    )


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _printable(text: str) -> str:
    """Return a text of bounded length without control characters; supervise escaped it."""
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_LOSS_CHARACTERS])


def _diff(diff: object) -> DiffReport | None:
    if not isinstance(diff, Mapping):
        return None
    baseline = _text(diff, "baseline")
    return DiffReport(
        exit_code=_exit_code(diff),
        stderr=_text(diff, "stderr"),
        baseline=baseline if baseline in BASELINES else "",
    )


def _integer(fields: Mapping[str, object], key: str) -> int | None:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= MAX_COUNT else None


def _exit_code(fields: Mapping[str, object]) -> int | None:
    value = _integer(fields, "exit_code")
    return value if value in EXIT_CODES else None


def _count(fields: Mapping[str, object], key: str) -> int:
    value = _integer(fields, key) or 0
    return value if 0 <= value <= MAX_COUNT else 0


def _float(fields: Mapping[str, object], key: str) -> float:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        return float(value)
    except OverflowError:
        return 0.0


def _text(fields: Mapping[str, object], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


MESSAGE_CHARACTERS = 500
"""Longest message that is kept."""


CONTAINERS = 16
"""Most containers of a Pod that are kept; our Pods have fewer."""


def launch_evidence(view: PodView) -> LaunchEvidence:
    """Return the evidence of a Pod, bounded in size."""
    return LaunchEvidence(
        pod=view.name,
        node=view.facts.node,
        created_at=view.created_at,
        scheduled_at=view.scheduled_at,
        sandbox_at=view.sandbox_since,
        reason=view.reason,
        message=(view.message or view.unschedulable)[:MESSAGE_CHARACTERS],
        containers=tuple(map(_container, list(view.containers.values())[:CONTAINERS])),
    )


def _container(view: ContainerView) -> ContainerEvidence:
    # The rest of termination messages stays out: what they say is in the result of the launch.
    end = view.terminated or view.previous
    usage = container_usage(end.message) if end is not None else ContainerUsage()
    return ContainerEvidence(
        name=view.name,
        image=view.image,
        image_id=view.image_id,
        started_at=view.started_at if end is None else end.started_at,
        finished_at=None if end is None else end.finished_at,
        exit_code=None if end is None else end.exit_code,
        reason=view.waiting_reason if end is None else end.reason,
        message=view.waiting_message[:MESSAGE_CHARACTERS],
        restarts=view.restarts,
        requests=view.requests,
        limits=view.limits,
        usage=usage if usage != ContainerUsage() else None,
    )
