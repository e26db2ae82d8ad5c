"""``Cluster`` on top of the official client, for its configuration, credentials and connections.

Requests use ``ApiClient.call_api`` directly. The generated methods only wrap it; they would add a
table of methods by kind, and validation of every argument.
"""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, cast

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration

from securebench.cluster.connection_errors import connection_errors_as_transient
from securebench.cluster.kubeconfig import load_configuration
from securebench.cluster.port import (
    WATCH_CLIENT_SECONDS,
    WATCH_SERVER_SECONDS,
    AlreadyExists,
    Listing,
    ObjectKind,
    QuotaExceeded,
    Raw,
    WatchEvent,
    WatchExpired,
    metadata,
)
from securebench.cluster.wire import (
    CORE,
    classify,
    collection_path,
    decode,
    is_uid_conflict,
    split_lines,
    watch_event,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence

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
        with connection_errors_as_transient(request.label):
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
            query: Query parameters in order.
            protocol: The only subprotocol offered.

        Raises:
            TransientClusterError: No connection.
            PermanentClusterError: The server rejected the request.
        """
        request = _Request("GET", f"{CORE}/namespaces/{self.namespace}/{path}")
        _, url, headers, *_ = await self._api.param_serialize(
            "GET", request.path, query_params=list(query), auth_settings=["BearerToken"]
        )
        settings = self._api.configuration
        with connection_errors_as_transient(request.label):
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
        with connection_errors_as_transient(request.label):
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
        path = collection_path(kind, self.namespace)
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
