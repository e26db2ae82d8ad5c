"""The connection to a namespace and to its operator's Pod, which serves the results volume.

``OperatorLink`` is the client side of the exec protocol; ``securebench.controller.exec_io`` is the
server side. The tester trusts the operator's Pod, but a transfer can be truncated or corrupted.
Therefore everything is bounded, and digests are verified on both sides.
"""

from __future__ import annotations

import asyncio
import math
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from yaml import YAMLError

from securebench.benchmark.files.bundle import (
    LOG_LIMITS,
    BundleLimits,
    BundleReceipt,
    Content,
    require_digest,
    unpack_bundle,
    write_bundle,
)
from securebench.cluster.client import ApiCluster, connect, context_name, default_namespace
from securebench.cluster.podexec import run_exec
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import (
    ClusterError,
    ConfigError,
    DigestMismatchError,
    InvalidInputError,
    PermanentClusterError,
    SecureBenchError,
    StorageError,
    TooLargeError,
    TransientClusterError,
)
from securebench.json_values import number_at, object_at, text_at
from securebench.names import APP_NAME, COMPONENT_LABEL, NAME_LABEL, OPERATOR_LEASE, holder_pod
from securebench.protocol.exec_calls import (
    MAX_ANSWER_BYTES,
    NEAR_LIMITS,
    LaunchNumbers,
    LiveMark,
    Operation,
    OutputMark,
    PrefixMark,
)
from securebench.protocol.messages import decode_object, decode_value
from securebench.protocol.volume import AuditResult
from securebench.sizes import KIB


class FoundLaunches(NamedTuple):
    """Attempts of a run with their launches.

    Args:
        attempts: As docs/reference/protocol.md describes them.
        left_out: How many more there are, which made the answer too large.
        now: The operator's clock, seconds since the epoch; infinite if an earlier operator does
            not tell it.
    """

    attempts: tuple[Mapping[str, object], ...]
    left_out: int
    now: float = math.inf


class ActiveAttempts(NamedTuple):
    """Attempts in flight of a run.

    Args:
        attempts: As docs/reference/protocol.md describes them, in pack order.
        now: The operator's clock, seconds since the epoch.
    """

    attempts: tuple[Mapping[str, object], ...]
    now: float


class OutputPart(NamedTuple):
    """New bytes of a stream; may end in the middle of a line."""

    stream: str
    offset: int
    data: bytes


class AttemptOutput(NamedTuple):
    """What an attempt has printed since it was asked for.

    Args:
        attempt: Its number, 0 while none was begun.
        launch: Number of its last harness launch, 0 without one.
        is_finished: Whether every attempt of the task that was begun has its record.
        parts: New bytes, at most one part for each stream.
    """

    attempt: int
    launch: int
    is_finished: bool
    parts: tuple[OutputPart, ...]


class LivePart(NamedTuple):
    """New output of an agent since the last request.

    Args:
        launch: The launch that printed it.
        offset: Position in the launch's output.
        data: The bytes; may end in the middle of a line.
    """

    launch: LaunchNumbers
    offset: int
    data: bytes


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
        pack_digest: Digest of its pack.
        harness_digest: Digest of its harness.
        verifier_version: Version of its verifiers.
        outcome: How it ended; empty while it is active.
        removed_at: When its results were removed from the volume; empty while they exist.
        requester: The user who requested it.
    """

    run: str
    uid: str
    pack_digest: str
    harness_digest: str
    verifier_version: str
    outcome: str
    removed_at: str = ""
    requester: str = ""


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

    async def put_pack(self, name: str, files: Mapping[str, Content]) -> BundleReceipt:
        """Upload a pack as ``packs/<name>``; idempotent.

        Args:
            name: Folder below ``packs/``.
            files: By path in the pack.

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

    async def get_log(
        self, uid: str, task_id: str, folder: Path, attempt: int | None = None
    ) -> BundleReceipt:
        """Fetch the captured output of the last launches of an attempt into a new folder.

        Args:
            task_id: Id of the row.
            folder: Must not exist.
            attempt: Its number; None for the last one that has finished.
        """
        number = [] if attempt is None else [str(attempt)]
        reply = await self._call(Operation.GET_LOG, uid, task_id, *number)
        receipt = unpack_bundle(BytesIO(reply.stdout), folder, LOG_LIMITS)
        require_digest("the log", expected=text_at(reply.answer, "digest"), found=receipt.digest)
        return receipt

    async def get_launches(self, uid: str, task: str, *, with_noisy: bool = False) -> FoundLaunches:
        """Return attempts with their launches, as the journal has them.

        Args:
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


OPERATOR_SELECTOR = f"{COMPONENT_LABEL}=operator,{NAME_LABEL}={APP_NAME}"
OPERATOR_CONTAINER = "operator"
VIEWERS_CONTAINER = "viewers"
DEFAULT_OPERATOR_POD = "securebench-0"
"""In the release ``securebench``; for accounts that may neither list Pods nor read the Lease."""

_PIECE_BYTES = 256 * KIB

_IDLE_SECONDS = 120.0
"""Maximum time without data in either direction; a broken connection may not report an error."""


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The cluster, namespace and operator Pod that a command works on.

    Attributes:
        namespace: None for the kubeconfig's namespace.
        context: Context of the kubeconfig; None for the current one.
        operator_pod: None to find the Pod by its labels.
    """

    namespace: str | None = None
    context: str | None = None
    operator_pod: str | None = None


class Connection(NamedTuple):
    """An open connection to a namespace and its operator."""

    cluster: ApiCluster
    link: OperatorLink


class WatchedNamespace(NamedTuple):
    """An open connection to a namespace, and to its operator if that can be used."""

    cluster: Cluster
    link: OperatorLink | None


@asynccontextmanager
async def open_connection(target: ClusterTarget) -> AsyncIterator[Connection]:
    """Connect to the cluster and find the operator's Pod.

    Raises:
        ConfigError: There is no usable kubeconfig.
        ClusterError: The cluster is unreachable, or no operator runs in the namespace.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(target, stack)
        find = partial(operator_pod, cluster, cluster.namespace, target.operator_pod)
        with _explained_connection_errors(cluster, target):
            pod = await find()
        yield Connection(cluster, OperatorLink(PodExec(cluster, pod, find=find)))


@asynccontextmanager
async def open_watched(target: ClusterTarget) -> AsyncIterator[WatchedNamespace]:
    """Connect to the cluster, and to the operator's Pod if it is there and may be used.

    Raises:
        ConfigError: There is no usable kubeconfig.
        ClusterError: The cluster is unreachable.
    """
    async with open_cluster(target) as cluster:
        link = None
        find = partial(operator_pod, cluster, cluster.namespace, target.operator_pod)
        with suppress(ClusterError):
            link = OperatorLink(PodExec(cluster, await find(), find=find))
        yield WatchedNamespace(cluster, link)


@asynccontextmanager
async def open_published(target: ClusterTarget) -> AsyncIterator[Connection]:
    """Connect to the cluster and the viewers' Pod, which serves published results.

    Raises:
        ConfigError: There is no usable kubeconfig.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(target, stack)
        pod = viewers_pod(target.operator_pod or DEFAULT_OPERATOR_POD)
        yield Connection(
            cluster, OperatorLink(PodExec(cluster, pod, VIEWERS_CONTAINER), VIEWER_COMMAND)
        )


def viewers_pod(operator: str) -> str:
    """Return the name of the viewers' Pod in the same release as an operator's Pod."""
    return f"{re.sub('-[0-9]+$', '', operator)}-viewers-0"


@asynccontextmanager
async def open_cluster(target: ClusterTarget) -> AsyncIterator[ApiCluster]:
    """Connect to the cluster, for commands that do not need the operator's Pod.

    Raises:
        ConfigError: There is no usable kubeconfig.
        ClusterError: The cluster is unreachable.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(target, stack)
        with _explained_connection_errors(cluster, target):
            yield cluster


async def operator_pod(cluster: Cluster, namespace: str, name: str | None) -> str:
    """Return the name of the operator's Pod; of several the one that leads.

    Args:
        cluster: Limited to the namespace.
        namespace: Its name, for messages.
        name: Name given by the user, or None.

    Raises:
        ClusterError: There is no such Pod, or it is not running.
    """
    pods = await _operator_pods(cluster, name)
    running = [pod for pod in pods if _is_running(pod)]
    if running:
        names = [str(object_at(pod, "metadata").get("name")) for pod in running]
        leader = await _leader(cluster) if len(names) > 1 else ""
        return leader if leader in names else names[0]
    if pods:
        found = str(object_at(pods[0], "metadata").get("name"))
        phase = object_at(pods[0], "status").get("phase")
        raise ClusterError(f"the operator's Pod {found} in namespace {namespace} is {phase}")
    raise ClusterError(
        f"no SecureBench operator runs in namespace {namespace}; install the chart there, or"
        " choose another namespace with --namespace or another Pod with --operator-pod"
    )


class PodExec:
    """Executes commands in a container of the operator's Pod or the viewers' Pod.

    Args:
        find: Finds another Pod after this one did not answer; None where there is no other.
    """

    def __init__(
        self,
        cluster: ApiCluster,
        pod: str,
        container: str = OPERATOR_CONTAINER,
        find: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._container = container
        self._find = find
        self._is_doubtful = False

    async def __call__(self, command: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
        """Execute a command and wait for its end."""
        if self._is_doubtful and self._find is not None:
            self._pod = await _found(self._find)
        self._is_doubtful = False
        try:
            return await self._answered(command, stdin)
        except TransientClusterError:
            self._is_doubtful = True
            raise

    async def _answered(self, command: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
        try:
            async with asyncio.timeout(_IDLE_SECONDS) as limit:
                return await self._run(command, stdin, limit)
        except TimeoutError as error:
            raise TransientClusterError(f"the Pod {self._pod} does not respond") from error
        except PermanentClusterError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise TransientClusterError(f"the Pod {self._pod} is gone") from error

    async def _run(
        self, command: Sequence[str], stdin: IO[bytes] | None, limit: asyncio.Timeout
    ) -> ExecResult:
        output = bytearray()

        def move_limit() -> None:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + _IDLE_SECONDS)

        async def keep(piece: bytes) -> None:
            move_limit()
            output.extend(piece)
            if len(output) > 2 * MAX_ANSWER_BYTES:
                raise TooLargeError("the response of the operator's Pod is too large")

        async def pieces(source: IO[bytes]) -> AsyncIterator[bytes]:
            while piece := source.read(_PIECE_BYTES):
                yield piece
                move_limit()

        source = None if stdin is None else pieces(stdin)
        result = await run_exec(self._cluster, self._pod, self._container, command, source, keep)
        return ExecResult(result.exit_code, bytes(output), result.stderr)


async def _found(find: Callable[[], Awaitable[str]]) -> str:
    """Return the name of a Pod that was there before; that there is none now goes by."""
    try:
        return await find()
    except PermanentClusterError:
        raise
    except ClusterError as error:
        raise TransientClusterError(str(error)) from error


async def _opened(target: ClusterTarget, stack: AsyncExitStack) -> ApiCluster:
    """Connect to the cluster; an invalid kubeconfig makes the client raise many exception types."""
    try:
        namespace = target.namespace or default_namespace(target.context)
        return await stack.enter_async_context(connect(namespace, target.context))
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"the kubeconfig cannot be used: {reason}") from error


@contextmanager
def _explained_connection_errors(cluster: ApiCluster, target: ClusterTarget) -> Iterator[None]:
    """Add the cluster and the kind of failure to connection errors."""
    try:
        yield
    except TransientClusterError as error:
        context = context_name(target.context)
        where = f"{cluster.server} (context {context})" if context else cluster.server
        raise TransientClusterError(f"{_connection_problem(error, where)} ({error})") from error


def _connection_problem(error: TransientClusterError, where: str) -> str:
    if error.facts.get("status") == HTTPStatus.UNAUTHORIZED:
        return "the cluster does not accept the credentials of the kubeconfig"
    if error.facts.get("tls"):
        return (
            f"TLS error with the cluster at {where}: the server's certificate is not one that the"
            " kubeconfig trusts; check its certificate-authority and the server's name"
        )
    return f"the cluster at {where} cannot be reached; check that it is up and the address right"


async def _operator_pods(cluster: Cluster, name: str | None) -> tuple[Raw, ...]:
    if name is None:
        try:
            return (await cluster.list(ObjectKind.POD, OPERATOR_SELECTOR)).items
        except PermanentClusterError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
        name = await _leader(cluster)
    pod = await cluster.get(ObjectKind.POD, name or DEFAULT_OPERATOR_POD)
    return () if pod is None else (pod,)


async def _leader(cluster: Cluster) -> str:
    """Return the name of the Pod that holds the operators' Lease; empty if that is not known."""
    try:
        lease = await cluster.get(ObjectKind.LEASE, OPERATOR_LEASE)
    except PermanentClusterError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return ""
    return holder_pod(text_at(object_at(lease or {}, "spec"), "holderIdentity"))


def _is_running(pod: Raw) -> bool:
    leaving = "deletionTimestamp" in object_at(pod, "metadata")
    return object_at(pod, "status").get("phase") == "Running" and not leaving
