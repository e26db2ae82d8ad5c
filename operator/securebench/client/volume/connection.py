"""Connect the command line to a namespace and its operator's Pod."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import IO, NamedTuple

from yaml import YAMLError

from securebench.client.volume.link import VIEWER_COMMAND, ExecResult, OperatorLink
from securebench.cluster.client import ApiCluster, connect, context_name, default_namespace
from securebench.cluster.podexec import run_exec
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    TooLargeError,
    TransientClusterError,
)
from securebench.json_values import object_at, text_at
from securebench.names import (
    APP_NAME,
    COMPONENT_LABEL,
    NAME_LABEL,
    OPERATOR_LEASE,
    holder_pod,
)
from securebench.protocol.exec_calls import MAX_ANSWER_BYTES
from securebench.sizes import KIB

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
        cluster: The namespace.
        pod: Name of the Pod.
        container: Name of the container.
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
