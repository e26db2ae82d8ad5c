"""Client side of the exec protocol; ``securebench.controller.exec_io`` is the server side.

The tester trusts the operator's Pod, but a transfer can be truncated or corrupted. Everything is
therefore bounded, and digests are verified on both sides.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from securebench.benchmark.files.bundle import (
    LOG_LIMITS,
    BundleLimits,
    BundleReceipt,
    require_digest,
    unpack_bundle,
    write_bundle,
)
from securebench.client.volume.watch_answers import (
    ActiveAttempts,
    AttemptOutput,
    FoundLaunches,
    LivePart,
    OutputPart,
)
from securebench.errors import (
    DigestMismatchError,
    InvalidInputError,
    SecureBenchError,
    StorageError,
    TooLargeError,
    TransientClusterError,
)
from securebench.json_values import number_at, text_at
from securebench.protocol.exec_calls import (
    NEAR_LIMITS,
    LaunchNumbers,
    LiveMark,
    Operation,
    OutputMark,
    PrefixMark,
)
from securebench.protocol.messages import decode_object, decode_value
from securebench.protocol.volume import AuditResult

COMMAND = ("securebench", "operator-io", "--")
"""Executed in the operator's container; the operation and its arguments follow."""

VIEWER_COMMAND = ("securebench", "viewer-io", "--")
"""The same in the viewers' Pod."""

LOCAL_LIMITS = BundleLimits()
"""Client-side limits on an upload; the operator's settings may be stricter."""

_ERRORS: Mapping[str, type[SecureBenchError]] = {
    kind.__name__: kind
    for kind in (DigestMismatchError, InvalidInputError, StorageError, TooLargeError)
}


class ExecResult(NamedTuple):
    """Result of a command in the operator's container, with complete output."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Exec(Protocol):
    """Executes a command in the operator's container."""

    async def __call__(self, command: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
        """Execute the command and wait for its end.

        Raises:
            TransientClusterError: The connection broke; the effect is unknown.
            PermanentClusterError: The API server rejected the request.
        """
        ...


class RunEntry(NamedTuple):
    """An entry of ``runs/index.jsonl`` on the volume; unknown values are empty.

    Args:
        run: Name of the BenchmarkRun.
        uid: Uid of the BenchmarkRun.
        pack_digest: Digest of its pack.
        harness_digest: Digest of its harness.
        verifier_version: Version of its verifiers.
        outcome: How it ended; empty while it is active.
        removed_at: When its results were removed from the volume; empty while they exist.
    """

    run: str
    uid: str
    pack_digest: str
    harness_digest: str
    verifier_version: str
    outcome: str
    removed_at: str = ""


class FilePart(NamedTuple):
    """A part of a file of a run.

    Args:
        offset: Where it begins: the offset of one of the offered marks, or 0.
        data: Its bytes.
        size: Size of the whole file.
        sha256: Hex SHA-256 of the file up to the end of ``data``.
    """

    offset: int
    data: bytes
    size: int
    sha256: str

    @property
    def is_complete(self) -> bool:
        """Whether this part reaches the end of the file."""
        return self.offset + len(self.data) >= self.size


class OperatorLink:
    """Client of the exec protocol.

    Args:
        execute: Executes a command in the container.
        command: The program that serves the protocol there.
    """

    def __init__(self, execute: Exec, command: Sequence[str] = COMMAND) -> None:
        self._execute = execute
        self._command = command

    async def pack_digest(self, name: str) -> str | None:
        """Return the tree digest of an uploaded pack, or None if it does not exist."""
        answer = (await self._call(Operation.SHOW_PACK, name)).answer
        return text_at(answer, "digest") if answer.get("present") else None

    async def show_pack(self, name: str) -> Mapping[str, object]:
        """Return ``present`` and, for an uploaded pack, ``digest``, ``files``, ``size_bytes``."""
        return (await self._call(Operation.SHOW_PACK, name)).answer

    async def put_pack(self, name: str, files: Mapping[str, Path]) -> BundleReceipt:
        """Upload a pack as ``packs/<name>``; idempotent.

        Args:
            name: Folder below ``packs/``.
            files: Local file by path in the pack.

        Raises:
            DigestMismatchError: The upload was corrupted.
            SecureBenchError: The operator's Pod or the cluster rejected it.
        """
        with tempfile.TemporaryFile() as bundle:
            receipt = write_bundle(files, bundle, LOCAL_LIMITS)
            size = bundle.tell()
            bundle.seek(0)
            arguments = (name, receipt.digest, str(size))
            reply = await self._call(Operation.PUT_PACK, *arguments, stdin=bundle)
        found = text_at(reply.answer, "digest")
        require_digest("the pack", expected=receipt.digest, found=found)
        return receipt

    async def get_run(
        self, uid: str, file: str, marks: Sequence[PrefixMark] = ()
    ) -> FilePart | None:
        """Return a file of a run after the longest matching prefix, or None if it does not exist.

        Args:
            uid: Uid of the BenchmarkRun.
            file: For example ``summary.json``.
            marks: Prefixes that the client already has.
        """
        offered = [mark.encode() for mark in marks]
        reply = await self._call(Operation.GET_RUN, uid, file, *offered)
        if not reply.answer.get("present"):
            return None
        part = FilePart(
            offset=_number(reply.answer, "offset"),
            data=reply.stdout,
            size=_number(reply.answer, "size"),
            sha256=text_at(reply.answer, "sha256"),
        )
        if len(part.data) != _number(reply.answer, "sent"):
            raise TransientClusterError(f"{file} arrived incomplete")
        return part

    async def find_run(self, run_id: str) -> tuple[RunEntry, ...]:
        """Return the runs with this run id, oldest first."""
        return _entries(await self._call(Operation.FIND_RUN, run_id))

    async def find_named(self, name: str) -> tuple[RunEntry, ...]:
        """Return the runs with this BenchmarkRun name or run id, oldest first."""
        return _entries(await self._call(Operation.FIND_NAMED, name))

    async def list_packs(self) -> list[Mapping[str, object]]:
        """Return ``name``, ``files`` and ``size_bytes`` of every uploaded pack, by name."""
        return _objects(await self._call(Operation.LIST_PACKS), "packs")

    async def put_audit(self, result: AuditResult) -> None:
        """Store the result of an audit on the volume.

        Raises:
            InvalidInputError: The operator is older and does not support audit results.
            SecureBenchError: The cluster or the operator's Pod rejected it.
        """
        data = result.encode()
        await self._call(Operation.PUT_AUDIT, str(len(data)), stdin=BytesIO(data))

    async def remove_pack(self, name: str) -> bool:
        """Remove an uploaded pack; False if it does not exist."""
        return bool((await self._call(Operation.REMOVE_PACK, name)).answer.get("present"))

    async def get_log(self, uid: str, task_id: str, folder: Path) -> BundleReceipt:
        """Fetch the captured output of a task's last launches into a new folder.

        Args:
            uid: Uid of the BenchmarkRun.
            task_id: Id of the row.
            folder: Must not exist.
        """
        reply = await self._call(Operation.GET_LOG, uid, task_id)
        receipt = unpack_bundle(BytesIO(reply.stdout), folder, LOG_LIMITS)
        require_digest("the log", expected=text_at(reply.answer, "digest"), found=receipt.digest)
        return receipt

    async def get_launches(self, uid: str, task: str, *, with_noisy: bool = False) -> FoundLaunches:
        """Return attempts with their launches, as the journal has them.

        Args:
            uid: Uid of the BenchmarkRun.
            task: Id of a task, or ``#`` and its index; empty for all that have not passed.
            with_noisy: Whether those that passed are among all if a launch of theirs met a limit.

        Raises:
            InvalidInputError: No such task, or the operator is older and does not support this.
            SecureBenchError: The cluster or the operator's Pod rejected the request.
        """
        words = ["", NEAR_LIMITS] if with_noisy else filter(None, [task])
        reply = await self._call(Operation.GET_LAUNCHES, uid, *words)
        attempts = _attempts(reply, "the launches")
        now = number_at(reply.answer, "now")
        left_out = _number(reply.answer, "left_out")
        return FoundLaunches(attempts, left_out, math.inf if now is None else now)

    async def get_active(self, uid: str) -> ActiveAttempts:
        """Return where the attempts in flight of a run are, as the journal has it.

        Raises:
            InvalidInputError: The operator is older and does not support this.
            SecureBenchError: The cluster or the operator's Pod rejected the request.
        """
        reply = await self._call(Operation.GET_ACTIVE, uid)
        attempts = _attempts(reply, "the attempts in flight")
        return ActiveAttempts(attempts, number_at(reply.answer, "now") or 0.0)

    async def list_tasks(self, uid: str) -> list[str]:
        """Return the ids of all rows of a run's pack, in pack order.

        Raises:
            InvalidInputError: The run has not begun, or the operator is older.
            SecureBenchError: The cluster or the operator's Pod rejected the request.
        """
        reply = await self._call(Operation.LIST_TASKS, uid)
        found = decode_value(_whole(reply, "the ids of the tasks"))
        return [str(task) for task in found] if isinstance(found, list) else []

    async def get_output(self, uid: str, task: str, marks: Sequence[OutputMark]) -> AttemptOutput:
        """Return what the harness of a task's unfinished attempt has printed since.

        Args:
            uid: Uid of the BenchmarkRun.
            task: Id of the task, or ``#`` and its index from 0.
            marks: How far each stream was received already.

        Raises:
            InvalidInputError: No such task, the run has not begun, or the operator is older.
            SecureBenchError: The cluster or the operator's Pod rejected the request.
        """
        known = [mark.encode() for mark in marks]
        reply = await self._call(Operation.GET_OUTPUT, uid, task, *known)
        parts, position = list[OutputPart](), 0
        listed = reply.answer.get("parts")
        for part in listed if isinstance(listed, list) else []:
            end = position + _number(part, "sent")
            data = reply.stdout[position:end]
            parts.append(OutputPart(text_at(part, "stream"), _number(part, "offset"), data))
            position = end
        if position != len(reply.stdout):
            raise TransientClusterError("the output arrived incomplete")
        attempt, launch = (_number(reply.answer, key) for key in ("attempt", "launch"))
        finished = reply.answer.get("finished") is True
        return AttemptOutput(attempt, launch, finished, tuple(parts))

    async def get_live(self, uid: str, sizes: Mapping[LaunchNumbers, int]) -> list[LivePart]:
        """Return the new output of a run's active agents.

        Args:
            uid: Uid of the BenchmarkRun.
            sizes: Number of bytes already received, by launch.

        Raises:
            InvalidInputError: The operator is older and does not support live output.
            SecureBenchError: The cluster or the operator's Pod rejected the request.
        """
        marks = [LiveMark(*item).encode() for item in sizes.items()]
        reply = await self._call(Operation.GET_LIVE, uid, *marks)
        parts, position = list[LivePart](), 0
        listed = reply.answer.get("parts")
        for part in listed if isinstance(listed, list) else []:
            end = position + _number(part, "sent")
            launch = LaunchNumbers(*(_number(part, key) for key in LaunchNumbers._fields))
            parts.append(LivePart(launch, _number(part, "offset"), reply.stdout[position:end]))
            position = end
        if position != len(reply.stdout):
            raise TransientClusterError("the live output arrived incomplete")
        return parts

    async def _call(
        self, operation: Operation, *arguments: str, stdin: IO[bytes] | None = None
    ) -> _Reply:
        result = await self._execute((*self._command, operation, *arguments), stdin)
        answer = _answer(result)
        if answer.get("ok") is not True:
            kind = _ERRORS.get(text_at(answer, "kind"), SecureBenchError)
            raise kind(f"the operator's Pod answered: {text_at(answer, 'error')}")
        return _Reply(answer, result.stdout)


class _Reply(NamedTuple):
    answer: Mapping[str, object]
    stdout: bytes


def _answer(result: ExecResult) -> Mapping[str, object]:
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    with suppress(IndexError, ValueError):
        return decode_object(lines[-1])
    if result.exit_code == 0:
        raise TransientClusterError("the response of the operator's Pod was cut off")
    last = f": {lines[-1]}" if lines else ""
    raise TransientClusterError(
        f"the operator's Pod failed to respond (exit code {result.exit_code}){last}"
    )


def _entries(reply: _Reply) -> tuple[RunEntry, ...]:
    return tuple(
        RunEntry(*(str(entry.get(key) or "") for key in RunEntry._fields))
        for entry in _objects(reply, "runs")
    )


def _objects(reply: _Reply, what: str) -> list[Mapping[str, object]]:
    try:
        found = decode_value(reply.stdout)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise TransientClusterError(f"the list of {what} arrived damaged")
    return found


def _whole(reply: _Reply, what: str) -> bytes:
    """Return what was sent, if all of it arrived."""
    if len(reply.stdout) != _number(reply.answer, "sent"):
        raise TransientClusterError(f"{what} arrived incomplete")
    return reply.stdout


def _attempts(reply: _Reply, what: str) -> tuple[Mapping[str, object], ...]:
    return tuple(map(decode_object, filter(None, _whole(reply, what).split(b"\n"))))


def _number(answer: Mapping[str, object], key: str) -> int:
    value = answer.get(key)
    return value if isinstance(value, int) else 0
