"""``Cluster`` on top of the official client, for its configuration, credentials and connections.

This is the only module that knows status codes and texts of the API server. Which cluster is meant
comes from inside a Pod, or from the kubeconfig. Failed connections become errors that are retried.

Requests use ``ApiClient.call_api`` directly. The generated methods only wrap it; they would add a
table of methods by kind, and validation of every argument.
"""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from securebench.cluster.port import (
    WATCH_CLIENT_SECONDS,
    WATCH_SERVER_SECONDS,
    AlreadyExists,
    Forbidden,
    Listing,
    ObjectKind,
    QuotaExceeded,
    Raw,
    WatchEvent,
    WatchExpired,
    metadata,
)
from securebench.errors import (
    ClusterError,
    ConfigError,
    PermanentClusterError,
    TransientClusterError,
)
from securebench.http_errors import describe_connection_error
from securebench.json_values import object_at, text_at
from securebench.run.api.field_types import API_VERSION, PLURAL
from securebench.sizes import MIB
from securebench.suite.api import PLURAL as SUITES
from securebench.text import did_you_mean_or_known

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

_KUBECONFIG = "KUBECONFIG"


def context_name(context: str | None = None) -> str:
    """Return the name of the context in use; empty inside a Pod."""
    if context is not None:
        return context
    try:
        _, active = list_kube_config_contexts(_kubeconfig())  # type: ignore[no-untyped-call]
    except (ConfigException, ConfigError):
        return ""
    return str(active["name"])


def default_namespace(context: str | None = None) -> str:
    """Return the namespace of a context of the kubeconfig, or ``default``.

    Raises:
        ConfigError: There is no such context.
    """
    try:
        contexts, active = list_kube_config_contexts(_kubeconfig())  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
    for entry in [active] if context is None else contexts:
        if context in (None, entry["name"]):
            return str(entry["context"].get("namespace") or "default")
    names = [str(entry["name"]) for entry in contexts]
    hint = did_you_mean_or_known(str(context), names)
    raise ConfigError(f"the kubeconfig has no context {context!r}{hint}")


async def load_configuration(context: str | None) -> Configuration:
    """Return how the API server is reached and with which credentials.

    Args:
        context: Context of the kubeconfig; None takes the service account inside a Pod (unless
            KUBECONFIG is set), else the current context.

    Raises:
        ConfigError: There is no usable configuration.
    """
    configuration = Configuration()
    if context is None and _KUBECONFIG not in os.environ:
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except ConfigException:
            pass
        else:
            return configuration
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            _kubeconfig(),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
    return configuration


def _kubeconfig() -> str:
    """Return the kubeconfig paths, joined as in KUBECONFIG; at least one of them exists."""
    paths = os.environ.get(_KUBECONFIG) or "~/.kube/config"
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise ConfigError(f"no cluster: not inside a Pod, and there is no kubeconfig at {paths}")
    return paths


@contextmanager
def _connection_errors_as_transient(what: str) -> Iterator[None]:
    """Turn what can happen to a connection into TransientClusterError.

    Args:
        what: Method and path of the request.
    """
    try:
        yield
    except TimeoutError as error:
        raise TransientClusterError(f"no answer in time: {what}") from error
    except (aiohttp.ClientError, OSError) as error:
        problem = describe_connection_error(error)
        raise TransientClusterError(
            f"no connection: {what}: {problem.message}", tls=problem.is_tls
        ) from error


_CORE = "/api/v1"

_COLLECTIONS: Mapping[ObjectKind, tuple[str, str]] = {
    ObjectKind.POD: (_CORE, "pods"),
    ObjectKind.SERVICE: (_CORE, "services"),
    ObjectKind.NETWORK_POLICY: ("/apis/networking.k8s.io/v1", "networkpolicies"),
    ObjectKind.CONFIG_MAP: (_CORE, "configmaps"),
    ObjectKind.SECRET: (_CORE, "secrets"),
    ObjectKind.BENCHMARK_RUN: (f"/apis/{API_VERSION}", PLURAL),
    ObjectKind.BENCHMARK_SUITE: (f"/apis/{API_VERSION}", SUITES),
    ObjectKind.EVENT: ("/apis/events.k8s.io/v1", "events"),
    ObjectKind.LEASE: ("/apis/coordination.k8s.io/v1", "leases"),
}

_TRANSIENT_STATUSES = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""401 is transient because tokens rotate and authenticators time out; 409 is a write conflict."""

_QUOTA_WORDINGS = ("exceeded quota: ", "status unknown for quota: ")
"""From ResourceQuota admission; "failed quota: …: must specify …" does not mean it is exhausted."""

_DENIAL_WORDING = " denied the request"
"""Of an admission webhook, whose code is 400 where it names none."""

_MAX_EVENT_BYTES = 8 * MIB
"""Maximum watch line; etcd limits objects to 1.5 MiB, but JSON escapes may multiply that."""

_MESSAGE_LIMIT = 2048
"""Characters kept of the server's message; admission webhooks can return any amount."""


def _collection_path(kind: ObjectKind, namespace: str) -> str:
    """Return the URL path of the objects of a kind."""
    group, plural = _COLLECTIONS[kind]
    return f"{group}/namespaces/{namespace}/{plural}"


def classify(status: int, body: bytes | str | Raw, retry_after: str | None = None) -> ClusterError:
    """Return the error for a failed request.

    Args:
        status: HTTP status, or the code of a Status object in a watch; at least 400.
        body: Response body; usually a Status object, but proxies may return anything.
        retry_after: Value of the header Retry-After.

    Returns:
        AlreadyExists, WatchExpired, QuotaExceeded, another TransientClusterError, Forbidden or
        another PermanentClusterError. Quota wordings count only in a 403, where admission puts
        them. A 401 is transient: it speaks of the operator, never of what was asked.
    """
    answer = _status_object(body)
    reason, message = text_at(answer, "reason"), text_at(answer, "message")[:_MESSAGE_LIMIT]
    details = answer.get("details")
    details = details if isinstance(details, Mapping) else {}
    description = f"API server answered {status}" + (f" {reason}" if reason else "")
    description += f": {message}" if message else ""
    if status == HTTPStatus.GONE:
        return WatchExpired(description)
    if status == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return AlreadyExists(text_at(details, "name"))
    if status == HTTPStatus.FORBIDDEN and any(wording in message for wording in _QUOTA_WORDINGS):
        return QuotaExceeded(description)
    if status in _TRANSIENT_STATUSES:
        seconds = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds"))
        return TransientClusterError(description, retry_after_seconds=seconds, status=status)
    is_forbidden = status == HTTPStatus.FORBIDDEN or _DENIAL_WORDING in message
    kind = Forbidden if is_forbidden else PermanentClusterError
    return kind(description, status=status, server_reason=reason)


def is_uid_conflict(status: int, body: bytes | str | Raw) -> bool:
    """Return whether a request failed because the object of that name has another uid."""
    message = text_at(_status_object(body), "message").lower()
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return "metadata.uid: invalid value" in message and "field is immutable" in message
    return status == HTTPStatus.CONFLICT and "uid in " in message and "precondition" in message


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without line ends; an unfinished last line is dropped.

    Raises:
        TransientClusterError: A line is longer than any API object can be.
    """
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                if line:
                    yield line
        if len(rest) > _MAX_EVENT_BYTES:
            raise TransientClusterError("a watch event is too long", bytes=len(rest))


def watch_event(line: bytes) -> WatchEvent:
    """Parse one line of a watch.

    Raises:
        WatchExpired: Or another ClusterError, if the line is an ERROR event.
        TransientClusterError: The line is not JSON.
    """
    event = decode(line)
    item = cast("Raw", event.get("object", {}))
    if event.get("type") == "ERROR":
        code = item.get("code")
        raise classify(code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR, item)
    return WatchEvent(str(event.get("type")), item)


def decode(body: bytes) -> Raw:
    """Parse a response body.

    Raises:
        TransientClusterError: It is not a JSON object, for instance from a proxy or truncated.
    """
    try:
        decoded = json.loads(body)
    except ValueError as error:
        raise TransientClusterError("the API server's response is not JSON") from error
    if not isinstance(decoded, dict):
        raise TransientClusterError("the API server's response is not a JSON object")
    return cast("Raw", decoded)


def _status_object(body: bytes | str | Raw) -> Raw:
    """Return the Status object, or an empty one for anything else, such as a proxy's error page."""
    if isinstance(body, Mapping):
        return body
    try:
        decoded = json.loads(body)
    except ValueError:
        return {}
    return cast("Raw", decoded) if isinstance(decoded, dict) else {}


def _seconds(value: object) -> float | None:
    """Parse a positive number of seconds; Retry-After with a date is rare and ignored."""
    try:
        seconds = float(cast("str", value))
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < float("inf") else None


_PAGE_ITEMS = 500
_REQUEST_TIMEOUT_SECONDS = 30.0
_LIST_TIMEOUT_SECONDS = 60.0
_CONNECT_TIMEOUT_SECONDS = 10.0

_CONNECTIONS = 32
"""For requests. Each takes 0.3 MiB, of which asyncio's buffer for TLS is 256 KiB; further requests
wait for one that is free. The client's own default is 100."""

_NO_LIMIT = 0
"""Means unlimited in aiohttp. ``settings.maxActiveRuns`` bounds the number of watches."""

_MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"
_ANY = "*/*"
_NAMES_ONLY = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""An answer about many objects without their content, where the server can."""
_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_SIGNING_KEYS = "/openid/v1/jwks"
"""Served only as ``application/jwk-set+json``; every service account may read it."""


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Raw | None = None
    content_type: str = _JSON
    accept: str = _JSON
    timeout_seconds: float = _REQUEST_TIMEOUT_SECONDS

    @property
    def label(self) -> str:
        """Method and path, for messages."""
        return f"{self.method} {self.path}"


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None

    def json(self) -> Raw:
        """Return the object, or raise the error that the response stands for."""
        if self.status >= HTTPStatus.BAD_REQUEST:
            raise classify(self.status, self.body, self.retry_after)
        return decode(self.body)


class ApiCluster:
    """Implements ``securebench.cluster.port.Cluster``; created by ``connect``.

    Args:
        api: Open client; the caller closes it.
        namespace: The namespace that all requests go to.
        watches: Open client for watches, which occupy their connections for minutes, and for
            Leases, which must not wait for other requests; by default they share the connection
            pool of ``api``.
    """

    def __init__(self, api: ApiClient, namespace: str, watches: ApiClient | None = None) -> None:
        self.namespace = namespace
        self.requests: Counter[tuple[str, ObjectKind]] = Counter()
        """Requests sent, by verb (list, watch, create, …) and kind; every page counts."""
        self._api = api
        self._watches = watches or api

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(self._api.configuration.host)

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        """Return all matching objects, read in pages of one snapshot."""
        try:
            return await self._list_pages(kind, selector, {"limit": str(_PAGE_ITEMS)})
        except WatchExpired:  # the snapshot expired between two pages
            return await self._list_pages(kind, selector, {})

    async def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version, including bookmarks."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SERVER_SECONDS),
            "resourceVersion": resource_version,
            "labelSelector": selector,
        }
        request = _Request("GET", self._path(kind), query, timeout_seconds=WATCH_CLIENT_SECONDS)
        self.requests["watch", kind] += 1
        with _connection_errors_as_transient(request.label):
            response = await self._send(request, self._watches)
            try:
                if response.status != HTTPStatus.OK:
                    raise classify(
                        response.status,
                        await response.read(),
                        response.headers.get("Retry-After"),
                    )
                async for line in split_lines(response.content.iter_any()):
                    yield watch_event(line)
            finally:
                response.close()

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        """Create an object and return it as the server stored it.

        Admission runs before storage, so a full quota also rejects the repeated creation of an
        existing object, which may itself fill the quota. That case must be AlreadyExists.
        """
        request = _Request("POST", self._path(kind), body=manifest)
        try:
            return (await self._exchange("create", kind, request)).json()
        except QuotaExceeded:
            name = str(metadata(manifest)["name"])
            if await self.get(kind, name) is not None:
                raise AlreadyExists(name) from None
            raise

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        """Return the object, or None if it does not exist."""
        answer = await self._exchange("get", kind, _Request("GET", self._path(kind, name)))
        return None if answer.status == HTTPStatus.NOT_FOUND else answer.json()

    async def replace(self, kind: ObjectKind, manifest: Raw) -> Raw | None:
        """Replace an object as it was read; None if it was changed since, or is gone."""
        path = self._path(kind, str(metadata(manifest)["name"]))
        answer = await self._exchange("replace", kind, _Request("PUT", path, body=manifest))
        is_outdated = answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        return None if is_outdated else answer.json()

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Start the deletion of an object; dependents are deleted in the background."""
        options = _delete_options(uid, grace_seconds)
        request = _Request("DELETE", self._path(kind, name), body=options)
        return _had_object(await self._exchange("delete", kind, request))

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        """Begin the deletion of all objects that matched at one moment; later ones stay."""
        query = {
            "labelSelector": selector,
            "fieldSelector": fields,
            "resourceVersion": resource_version,
            "resourceVersionMatch": "Exact",
        }
        options = _delete_options(None, None)
        request = _Request("DELETE", self._path(kind), query, options, accept=_NAMES_ONLY)
        (await self._exchange("delete_collection", kind, request)).json()

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        """Apply a merge patch to the status subresource and return the object, None if gone."""
        path = f"{self._path(kind, name)}/status"
        request = _Request("PATCH", path, body=body, content_type=_MERGE_PATCH)
        answer = await self._exchange("patch_status", kind, request)
        return None if answer.status == HTTPStatus.NOT_FOUND else answer.json()

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to an object; False if it is gone, or has another uid than that."""
        request = _Request("PATCH", self._path(kind, name), body=body, content_type=_MERGE_PATCH)
        return _had_object(await self._exchange("patch", kind, request))

    async def signing_keys(self) -> bytes:
        """Return the keys with which the cluster signs service account tokens."""
        answer = await self._answered(_Request("GET", _SIGNING_KEYS, accept=_ANY))
        answer.json()
        return answer.body

    async def user_name(self) -> str:
        """Return the caller's name, as the API server knows it.

        Raises:
            TransientClusterError: No connection.
            PermanentClusterError: The server rejected the request.
        """
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status = object_at(await self.ask("POST", _SELF_REVIEWS, review), "status")
        return text_at(object_at(status, "userInfo"), "username")

    async def ask(self, method: str, path: str, body: Raw | None = None) -> Raw:
        """Send a request that concerns no object of the namespace: versions, schemas, reviews.

        Raises:
            TransientClusterError: No connection.
            PermanentClusterError: The server rejected the request.
        """
        return (await self._answered(_Request(method, path, body=body))).json()

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket in this namespace with the client's credentials; closed on exit.

        Args:
            path: Relative to the namespace, e.g. ``pods/name/exec``.
            protocol: The only subprotocol offered.

        Raises:
            TransientClusterError: No connection.
            PermanentClusterError: The server rejected the request.
        """
        request = _Request("GET", f"{_CORE}/namespaces/{self.namespace}/{path}")
        _, url, headers, *_ = await self._api.param_serialize(
            "GET", request.path, query_params=list(query), auth_settings=["BearerToken"]
        )
        settings = self._api.configuration
        with _connection_errors_as_transient(request.label):
            try:
                socket = await self._session().ws_connect(
                    url,
                    headers=headers,
                    protocols=[protocol],
                    proxy=settings.proxy,
                    proxy_headers=settings.proxy_headers,
                    server_hostname=settings.tls_server_name,
                    max_msg_size=0,
                )
            except aiohttp.WSServerHandshakeError as error:
                refusal = {"message": f"websocket to {request.path} refused"}
                raise classify(error.status, refusal) from error
        async with socket:
            yield socket

    async def _list_pages(
        self, kind: ObjectKind, selector: str, paging: Mapping[str, str]
    ) -> Listing:
        items: tuple[Raw, ...] = ()
        position = ""
        while True:
            query = {"labelSelector": selector, "continue": position, **paging}
            request = _Request(
                "GET", self._path(kind), query, timeout_seconds=_LIST_TIMEOUT_SECONDS
            )
            page = (await self._exchange("list", kind, request)).json()
            items += tuple(cast("Iterable[Raw]", page.get("items") or ()))
            meta = cast("Mapping[str, str]", page.get("metadata", {}))
            position = meta.get("continue", "")
            if not position:
                return Listing(items, meta.get("resourceVersion", ""))

    async def _exchange(self, verb: str, kind: ObjectKind, request: _Request) -> _Answer:
        """Send a request and read the whole response, whatever its status."""
        self.requests[verb, kind] += 1
        api = self._watches if kind is ObjectKind.LEASE else self._api
        return await self._answered(request, api)

    async def _answered(self, request: _Request, api: ApiClient | None = None) -> _Answer:
        with _connection_errors_as_transient(request.label):
            response = await self._send(request, api or self._api)
            async with response:
                body = await response.read()
            return _Answer(response.status, body, response.headers.get("Retry-After"))

    async def _send(self, request: _Request, api: ApiClient) -> aiohttp.ClientResponse:
        parts = await api.param_serialize(
            request.method,
            request.path,
            query_params=[(key, value) for key, value in request.query.items() if value],
            header_params={"Accept": request.accept, "Content-Type": request.content_type},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        timeout = aiohttp.ClientTimeout(
            total=request.timeout_seconds, sock_connect=_CONNECT_TIMEOUT_SECONDS
        )
        wrapped = await api.call_api(*parts, _request_timeout=timeout)
        return cast("aiohttp.ClientResponse", wrapped.response)

    def _path(self, kind: ObjectKind, name: str = "") -> str:
        path = _collection_path(kind, self.namespace)
        return f"{path}/{name}" if name else path

    def _session(self) -> aiohttp.ClientSession:
        """Return the client's session, which it creates lazily."""
        rest = self._api.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as its own WsApiClient
        return rest.pool_manager


@asynccontextmanager
async def connect(namespace: str, context: str | None = None) -> AsyncIterator[ApiCluster]:
    """Connect to the cluster that this process runs in, or to that of the kubeconfig.

    Args:
        namespace: The namespace that all requests go to.
        context: Context of the kubeconfig; None uses the service account inside a Pod (unless
            KUBECONFIG is set), else the current context.

    Yields:
        The cluster; its connections are closed on exit.

    Raises:
        ConfigError: There is no usable configuration.
    """
    configuration = await load_configuration(context)
    requests, unbounded = _pooled(configuration, _CONNECTIONS), _pooled(configuration, _NO_LIMIT)
    async with ApiClient(requests) as api, ApiClient(unbounded) as watches:
        yield ApiCluster(api, namespace, watches)


def _pooled(configuration: Configuration, connections: int) -> Configuration:
    """Return the same configuration with a connection pool of that size."""
    result = copy.copy(configuration)
    result.connection_pool_maxsize = connections
    return result


def _had_object(answer: _Answer) -> bool:
    """Return whether an object of that name and uid was there; raise what else went wrong."""
    if answer.status == HTTPStatus.NOT_FOUND or is_uid_conflict(answer.status, answer.body):
        return False
    answer.json()
    return True


def _delete_options(uid: str | None, grace_seconds: int | None) -> Raw:
    options: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options
