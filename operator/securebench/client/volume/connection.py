"""From the command line to the operator's Pod of a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO, NamedTuple

from yaml import YAMLError

from securebench.client.volume.link import VIEWER_COMMAND, ExecResult, OperatorLink
from securebench.cluster.client import ApiCluster, connect
from securebench.cluster.kubeconfig import context_name, default_namespace
from securebench.cluster.podexec import run_exec
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.core.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    TooLargeError,
    TransientClusterError,
)
from securebench.core.json_values import object_at
from securebench.core.names import APP_NAME, COMPONENT_LABEL, NAME_LABEL
from securebench.protocol.volume import MAX_ANSWER_BYTES

OPERATOR_SELECTOR = f"{COMPONENT_LABEL}=operator,{NAME_LABEL}={APP_NAME}"
OPERATOR_CONTAINER = "operator"
VIEWERS_CONTAINER = "viewers"
DEFAULT_OPERATOR_POD = "securebench-0"
"""Of the release ``securebench``; for accounts that may not list Pods, as the role tester."""

_PIECE_BYTES = 256 * 1024
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404

_IDLE_SECONDS = 120.0
"""Without a byte in either direction; a broken connection may never say that it is broken."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command works; None leaves it to the kubeconfig and the cluster.

    Attributes:
        namespace: Namespace.
        context: Context of the kubeconfig.
        operator_pod: Name of the operator's Pod.
    """

    namespace: str | None = None
    context: str | None = None
    operator_pod: str | None = None


class Connection(NamedTuple):
    """An open way to a namespace and its operator."""

    cluster: ApiCluster
    link: OperatorLink


@asynccontextmanager
async def open_connection(place: Place) -> AsyncIterator[Connection]:
    """Open the cluster and find the operator's Pod.

    Raises:
        ConfigError: There is no usable kubeconfig.
        ClusterError: The cluster cannot be reached, or no operator runs in the namespace.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(place, stack)
        with _reaching(cluster, place):
            pod = await operator_pod(cluster, cluster.namespace, place.operator_pod)
        yield Connection(cluster, OperatorLink(PodExec(cluster, pod)))


@asynccontextmanager
async def open_published(place: Place) -> AsyncIterator[Connection]:
    """Open the cluster and the Pod for viewers, from which ended runs can be fetched.

    Raises:
        ConfigError: There is no usable kubeconfig.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(place, stack)
        pod = viewers_pod(place.operator_pod or DEFAULT_OPERATOR_POD)
        yield Connection(
            cluster, OperatorLink(PodExec(cluster, pod, VIEWERS_CONTAINER), VIEWER_COMMAND)
        )


def viewers_pod(operator: str) -> str:
    """Return the name of the Pod for viewers of the release of an operator's Pod."""
    return f"{operator.removesuffix('-0')}-viewers-0"


@asynccontextmanager
async def open_cluster(place: Place) -> AsyncIterator[ApiCluster]:
    """Open the cluster alone, for what needs no operator.

    Raises:
        ConfigError: There is no usable kubeconfig.
        ClusterError: The cluster cannot be reached.
    """
    async with AsyncExitStack() as stack:
        cluster = await _opened(place, stack)
        with _reaching(cluster, place):
            yield cluster


async def operator_pod(cluster: Cluster, namespace: str, name: str | None) -> str:
    """Return the name of the operator's Pod.

    Args:
        cluster: The namespace.
        namespace: Its name, for messages.
        name: The Pod that the user named, or None.

    Raises:
        ClusterError: There is none, or it does not run.
    """
    pods = await _candidates(cluster, name)
    running = [pod for pod in pods if _is_running(pod)]
    if running:
        return str(object_at(running[0], "metadata").get("name"))
    if pods:
        found = str(object_at(pods[0], "metadata").get("name"))
        phase = object_at(pods[0], "status").get("phase")
        raise ClusterError(f"the operator's Pod {found} in namespace {namespace} is {phase}")
    raise ClusterError(
        f"no SecureBench operator runs in namespace {namespace}; install the chart there, or"
        " choose another namespace with --namespace or another Pod with --operator-pod"
    )


class PodExec:
    """Runs commands in the operator's container.

    Args:
        cluster: The namespace.
        pod: Name of the operator's Pod.
        container: Its container.
    """

    def __init__(self, cluster: ApiCluster, pod: str, container: str = OPERATOR_CONTAINER) -> None:
        self._cluster = cluster
        self._pod = pod
        self._container = container

    async def __call__(self, command: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
        """Run it to its end."""
        try:
            async with asyncio.timeout(_IDLE_SECONDS) as limit:
                return await self._run(command, stdin, limit)
        except TimeoutError as error:
            raise TransientClusterError(f"the Pod {self._pod} is silent") from error
        except PermanentClusterError as error:
            if error.status != _NOT_FOUND:
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
                raise TooLargeError("the operator's Pod answered with more than it may")

        async def pieces(source: IO[bytes]) -> AsyncIterator[bytes]:
            while piece := source.read(_PIECE_BYTES):
                yield piece
                move_limit()

        source = None if stdin is None else pieces(stdin)
        result = await run_exec(self._cluster, self._pod, self._container, command, source, keep)
        return ExecResult(result.exit_code, bytes(output), result.stderr)


async def _opened(place: Place, stack: AsyncExitStack) -> ApiCluster:
    """Open the cluster; the client stumbles over a damaged kubeconfig in many ways."""
    try:
        namespace = place.namespace or default_namespace(place.context)
        return await stack.enter_async_context(connect(namespace, place.context))
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"the kubeconfig cannot be used: {reason}") from error


@contextmanager
def _reaching(cluster: ApiCluster, place: Place) -> Iterator[None]:
    """Say which cluster it is that cannot be reached, and in which way."""
    try:
        yield
    except TransientClusterError as error:
        context = context_name(place.context)
        where = f"{cluster.server} (context {context})" if context else cluster.server
        raise TransientClusterError(f"{_unreachable(error, where)} ({error})") from error


def _unreachable(error: TransientClusterError, where: str) -> str:
    if error.facts.get("status") == _UNAUTHORIZED:
        return "the cluster does not accept the credentials of the kubeconfig"
    if error.facts.get("tls"):
        return (
            f"TLS error with the cluster at {where}: something answers, but not with a certificate"
            " that the kubeconfig trusts; check its certificate-authority and the server's name"
        )
    return f"the cluster at {where} cannot be reached; is it up, is its address right?"


async def _candidates(cluster: Cluster, name: str | None) -> tuple[Raw, ...]:
    if name is None:
        try:
            return (await cluster.list(ObjectKind.POD, OPERATOR_SELECTOR)).items
        except PermanentClusterError as error:
            if error.status != _FORBIDDEN:
                raise
    pod = await cluster.get(ObjectKind.POD, name or DEFAULT_OPERATOR_POD)
    return () if pod is None else (pod,)


def _is_running(pod: Raw) -> bool:
    leaving = "deletionTimestamp" in object_at(pod, "metadata")
    return object_at(pod, "status").get("phase") == "Running" and not leaving
