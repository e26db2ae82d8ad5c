"""The courier: takes what untrusted code left, after the kubelet said that it has ended.

``python3 -I -m securebench.sandbox.courier --spec JSON`` waits for SIGTERM, works, writes its
termination message and exits with 0. With any other exit nothing was sealed.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # First of all: as PID 1, a SIGTERM that arrives before it is blocked would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

import argparse
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from securebench.core.errors import SpecError
from securebench.files.termination_log import TERMINATION_LOG, kernel_release, write_message
from securebench.files.untrusted import (
    DISK_ERRORS,
    UnreadableError,
    open_regular,
    open_root,
    read_regular,
    write_file,
)
from securebench.protocol.bounds import CandidateBounds, bounded_text
from securebench.protocol.extraction import (
    CHANGED_FILE,
    STREAMS,
    CandidateKind,
    Extraction,
    ExtractionMode,
    Problem,
)
from securebench.protocol.messages import STORAGE_FAILED
from securebench.protocol.specs import (
    decode_object,
    encode_message,
    require_fields,
    require_version,
    section,
    text,
)
from securebench.sandbox.candidate.sealing import Output, SealingPlaces, seal
from securebench.sandbox.live_copy import LiveCopy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

VOLUMES = Path("/work")
REPORT = "report.json"
REPORT_BYTES = 8192
SEALED = "sealed.json"
"""The message of a sealing that is done: a courier that is started again repeats it and never
seals a second time."""

MESSAGE_CHARACTERS = 500

LIVE_SECONDS = 1.0
"""Between two looks at what an agent has printed since."""


@dataclass(frozen=True, slots=True)
class CourierTask:
    """What the courier is told.

    Attributes:
        bounds: How much is kept.
        extraction: What to seal; None collects the streams of a check instead.
        exclude: Paths of the workspace that never belong to a candidate.
        is_live: Whether stdout is copied while the agent works.
    """

    bounds: CandidateBounds
    extraction: Extraction | None
    exclude: tuple[str, ...] = ()
    is_live: bool = False


def main(
    arguments: Sequence[str] | None = None,
    *,
    volumes: Path = VOLUMES,
    log: Path = TERMINATION_LOG,
    wait: Callable[[], None] | None = None,
) -> int:
    """Wait for SIGTERM, work, write the termination message and return 0.

    When a disk fails, not what the agent left, the message is its error and the answer 74.

    Args:
        arguments: Command line without the program.
        volumes: Where the Pod's volumes are mounted.
        log: The termination message's file.
        wait: Returns when it is time to work.

    Raises:
        SpecError: The specification is not of this version.
    """
    parser = argparse.ArgumentParser(prog="securebench.sandbox.courier")
    parser.add_argument("--spec", required=True)
    job = decode(parser.parse_args(arguments).spec)
    os.umask(0o022)
    if wait is not None:
        wait()
    elif job.is_live:
        copy = LiveCopy(volumes / "output", "stdout", volumes / "producer")
        wait_for_term(copy.step)
    else:
        wait_for_term()
    try:
        message = _work(job, volumes)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        write_message(os.strerror(error.errno or 0).encode(), log)
        return STORAGE_FAILED
    write_message(message, log)
    return 0


def _work(job: CourierTask, volumes: Path) -> bytes:
    if job.extraction is None:
        return collect(job, volumes)
    return seal_once(job, job.extraction, volumes)


def wait_for_term(
    meanwhile: Callable[[], None] | None = None, *, seconds: float = LIVE_SECONDS
) -> None:
    """Sleep until the kubelet says that the untrusted container has ended.

    Args:
        meanwhile: Called again and again until then; None: sleep only.
        seconds: Between two calls.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if meanwhile is None:
        signal.sigwait({signal.SIGTERM})
        return
    while signal.sigtimedwait({signal.SIGTERM}, seconds) is None:
        meanwhile()


def decode(spec: str) -> CourierTask:
    """Return the job of a command line.

    Raises:
        SpecError: It is not exactly of this version's form.
    """
    raw = decode_object(spec)
    require_version(raw)
    match raw.get("mode"):
        case "collect":
            require_fields(raw, ["version", "mode", "limits"])
            return CourierTask(_bounds(raw), None)
        case "seal":
            live = raw.pop("live", False)
            require_fields(raw, ["version", "mode", "extraction", "limits", "exclude"])
            if not isinstance(live, bool):
                raise SpecError("live must be true or false")
            return CourierTask(_bounds(raw), _extraction(raw), _exclude(raw["exclude"]), live)
        case _:
            raise SpecError("mode must be seal or collect")


def seal_once(job: CourierTask, extraction: Extraction, volumes: Path) -> bytes:
    """Seal the candidate and keep the producer's streams; return the message.

    Blocks until all of it is on the disk. When it was done before, only the message is returned.
    """
    producer = volumes / "producer"
    with open_root(producer) as folder:
        try:
            return read_regular(folder, SEALED, REPORT_BYTES)
        except UnreadableError as refused:
            if refused.problem is not Problem.MISSING:
                raise
    outputs = _outputs(job, volumes)
    places = SealingPlaces(volumes / "workspace", volumes / "candidate", volumes / "output")
    sealed = seal(places, extraction, job.bounds, job.exclude, outputs["stdout"])
    streams = _keep(outputs, producer, job.bounds)
    candidate = {**asdict(sealed), "message": sealed.message[:MESSAGE_CHARACTERS]}
    message = encode_message({**candidate, **streams, "kernel": kernel_release()})
    write_file(producer, SEALED, message)
    return message


def collect(job: CourierTask, volumes: Path) -> bytes:
    """Keep the streams of a check and the changed paths of a patch; return the message."""
    _keep_changes(volumes, job.bounds)
    streams = _keep(_outputs(job, volumes), volumes / "verification", job.bounds)
    return encode_message({**streams, "kernel": kernel_release()})


def _keep(
    outputs: Mapping[str, Output | None], folder: Path, bounds: CandidateBounds
) -> dict[str, dict[str, object]]:
    """Write both streams as text of bounded size and return what the message says of them."""
    kept: dict[str, dict[str, object]] = {}
    for name in STREAMS:
        output = outputs[name] or Output(b"", b"", 0)
        content = bounded_text(*output, bounds.stream_bytes)
        write_file(folder, name, content.text.encode("utf-8"))
        kept[name] = {"bytes": output.total, "truncated": content.truncated}
    return kept


def _keep_changes(volumes: Path, bounds: CandidateBounds) -> None:
    """Keep the list that supervise wrote, if any; the operator knows when to read it."""
    with open_root(volumes / "output") as folder:
        try:
            content = read_regular(folder, CHANGED_FILE, bounds.patch_bytes)
        except UnreadableError:
            return
    write_file(volumes / "verification", CHANGED_FILE, content)


def _outputs(job: CourierTask, volumes: Path) -> dict[str, Output | None]:
    """Read what supervise captured; a command that was killed with it may leave less, or junk."""
    limits = (job.bounds.text_bytes, job.bounds.patch_bytes, job.bounds.stream_bytes)
    with open_root(volumes / "output") as folder:
        report = _report(folder)
        return {name: _output(folder, name, report, max(limits)) for name in STREAMS}


def _output(folder: int, name: str, report: Mapping[str, object], limit: int) -> Output | None:
    try:
        head, head_size = _beginning(folder, name, limit)
    except UnreadableError:
        return None
    try:
        tail, tail_size = _beginning(folder, f"{name}.tail", limit)
    except UnreadableError:
        tail, tail_size = b"", 0
    counted = report.get(f"{name}_bytes")
    total = counted if isinstance(counted, int) and not isinstance(counted, bool) else 0
    return Output(head, tail, max(total, head_size + tail_size))


def _beginning(folder: int, name: str, limit: int) -> tuple[bytes, int]:
    with open_regular(folder, name) as file:
        return file.read(limit), os.fstat(file.fileno()).st_size


def _report(folder: int) -> Mapping[str, object]:
    try:
        return decode_object(read_regular(folder, REPORT, REPORT_BYTES))
    except (UnreadableError, SpecError):
        return {}


def _bounds(raw: Mapping[str, object]) -> CandidateBounds:
    names = [field.name for field in fields(CandidateBounds)]
    limits = section(raw, "limits", names)
    numbers = {name: value for name, value in limits.items() if type(value) is int and value >= 0}
    if len(numbers) != len(names):
        raise SpecError("limits must be whole numbers from 0")
    return CandidateBounds(**numbers)


def _extraction(raw: Mapping[str, object]) -> Extraction:
    given = section(raw, "extraction", ["mode", "path", "kind"])
    kinds: tuple[CandidateKind, ...] = get_args(CandidateKind)
    mode = next((known for known in ExtractionMode if known == given["mode"]), None)
    kind = next((known for known in kinds if known == given["kind"]), None)
    if mode is None or kind is None:
        raise SpecError("extraction names an unknown mode or kind")
    path = _clean(text(given, "path")) if mode is ExtractionMode.FILE else None
    return Extraction(mode, kind, path)


def _exclude(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SpecError("exclude must be a list")
    return tuple(_clean(item if isinstance(item, str) else "") for item in value)


def _clean(path: str) -> str:
    if any(component in {"", ".", ".."} for component in path.split("/")):
        raise SpecError(f"{path!r} is not a clean relative path")
    return path


if __name__ == "__main__":
    sys.exit(main())
