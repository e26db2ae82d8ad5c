"""The cluster through the official client: its configuration, credentials and connections.

Requests go through ``ApiClient.call_api``, which is what the generated methods themselves call;
these would only add a table of methods by kind and the validation of every argument.
"""

from __future__ import annotations

import copy
import os
import socket
import ssl
from collections import Counter
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
    is_precondition_conflict,
    split_lines,
    watch_event,
)
from securebench.core.errors import ConfigError, TransientClusterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence

_PAGE_ITEMS = 500
_REQUEST_TIMEOUT_SECONDS = 30.0
_LIST_TIMEOUT_SECONDS = 60.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_WATCH_SERVER_SECONDS = 300
_WATCH_CLIENT_SECONDS = 330.0
"""Above the server's: only a dead connection ever reaches it."""

_NO_LIMIT = 0
"""aiohttp's word for it. The number of watches has its own bound: ``settings.maxActiveRuns``."""

_MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"
_ANY = "*/*"
_NAMES_ONLY = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""An answer about many objects without their content, where the server can."""
_SIGNING_KEYS = "/openid/v1/jwks"
"""Answered as ``application/jwk-set+json`` only; every service account may read it."""
_KUBECONFIG = "KUBECONFIG"


class _Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Raw | None = None
    content_type: str = _JSON
    accept: str = _JSON
    timeout_seconds: float = _REQUEST_TIMEOUT_SECONDS


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None

    def json(self) -> Raw:
        """Return the object, or raise what the refusal means."""
        if self.status >= HTTPStatus.BAD_REQUEST:
            raise classify(self.status, self.body, self.retry_after)
        return decode(self.body)


class ApiCluster:
    """Implements ``securebench.cluster.port.Cluster``; made by ``connect``.

    Args:
        api: Open client; its owner closes it.
        namespace: The one namespace that is spoken to.
        watches: Open client of the watches, which hold their connections for minutes; None takes
            ``api``, whose connections they then use up.
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
        """Return all objects that match, read in pages of one snapshot."""
        try:
            return await self._list_pages(kind, selector, {"limit": str(_PAGE_ITEMS)})
        except WatchExpired:  # the snapshot went away between two pages
            return await self._list_pages(kind, selector, {})

    async def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version, bookmarks included."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SERVER_SECONDS),
            "resourceVersion": resource_version,
            "labelSelector": selector,
        }
        request = _Request("GET", self._path(kind), query, timeout_seconds=_WATCH_CLIENT_SECONDS)
        self.requests["watch", kind] += 1
        with _connection_troubles(request):
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

        Admission comes before storage: a full quota also refuses the repeated creation of what
        is there already, perhaps because of this very object. The answer must be AlreadyExists.
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
        """Return the object, or None when there is none."""
        answer = await self._exchange("get", kind, _Request("GET", self._path(kind, name)))
        return None if answer.status == HTTPStatus.NOT_FOUND else answer.json()

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Begin the deletion of an object; its dependents go in the background."""
        options = _delete_options(uid, grace_seconds)
        request = _Request("DELETE", self._path(kind, name), body=options)
        answer = await self._exchange("delete", kind, request)
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        if is_precondition_conflict(answer.status, answer.body):
            return False
        answer.json()
        return True

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

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to the status subresource; False when the object is gone."""
        path = f"{self._path(kind, name)}/status"
        request = _Request("PATCH", path, body=body, content_type=_MERGE_PATCH)
        return await self._patched("patch_status", kind, request)

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to an object; False when the object is gone.

        Testers change their own objects; the operator has the right to for Events only.
        """
        request = _Request("PATCH", self._path(kind, name), body=body, content_type=_MERGE_PATCH)
        return await self._patched("patch", kind, request)

    async def signing_keys(self) -> bytes:
        """Return the keys with which the cluster signs tokens of service accounts."""
        answer = await self._answered(_Request("GET", _SIGNING_KEYS, accept=_ANY))
        answer.json()
        return answer.body

    @asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket of this namespace with the client's credentials.

        Args:
            path: Below the namespace, e.g. ``pods/name/exec``.
            query: Query parameters in order.
            protocol: The one subprotocol that is offered.

        Yields:
            The websocket; it is closed at the end.

        Raises:
            TransientClusterError: No connection.
            PermanentClusterError: The server refused.
        """
        request = _Request("GET", f"{CORE}/namespaces/{self.namespace}/{path}")
        _, url, headers, *_ = await self._api.param_serialize(
            "GET", request.path, query_params=list(query), auth_settings=["BearerToken"]
        )
        settings = self._api.configuration
        with _connection_troubles(request):
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

    async def _patched(self, verb: str, kind: ObjectKind, request: _Request) -> bool:
        answer = await self._exchange(verb, kind, request)
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        answer.json()
        return True

    async def _exchange(self, verb: str, kind: ObjectKind, request: _Request) -> _Answer:
        """Send a request and read the whole answer, whatever its status."""
        self.requests[verb, kind] += 1
        return await self._answered(request)

    async def _answered(self, request: _Request) -> _Answer:
        with _connection_troubles(request):
            response = await self._send(request, self._api)
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
        """Return the client's session, which it opens with its first request only."""
        rest = self._api.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as its own WsApiClient
        return rest.pool_manager


@asynccontextmanager
async def connect(namespace: str, context: str | None = None) -> AsyncIterator[ApiCluster]:
    """Open the cluster that this process runs in, or that the kubeconfig names.

    Args:
        namespace: The one namespace that is spoken to.
        context: Context of the kubeconfig; None takes the service account inside a Pod (unless
            KUBECONFIG is set), else the current context.

    Yields:
        The cluster; its connections are closed at the end.

    Raises:
        ConfigError: There is no usable configuration.
    """
    configuration = await _configuration(context)
    async with ApiClient(configuration) as api, ApiClient(_unbounded(configuration)) as watches:
        yield ApiCluster(api, namespace, watches)


def _unbounded(configuration: Configuration) -> Configuration:
    """Return the same configuration for a client whose requests never wait for a connection."""
    result = copy.copy(configuration)
    result.connection_pool_maxsize = _NO_LIMIT
    return result


def context_name(context: str | None = None) -> str:
    """Return the name of the context that is used; empty inside a Pod."""
    if context is not None:
        return context
    try:
        _, active = list_kube_config_contexts(_kubeconfig())  # type: ignore[no-untyped-call]
    except (ConfigException, ConfigError):
        return ""
    return str(active["name"])


def default_namespace(context: str | None = None) -> str:
    """Return the namespace that a context of the kubeconfig names, or ``default``.

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
    raise ConfigError(f"the kubeconfig has no context {context!r}")


async def _configuration(context: str | None) -> Configuration:
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
    """Return the kubeconfig files, joined as in the environment variable; one of them exists."""
    paths = os.environ.get(_KUBECONFIG) or "~/.kube/config"
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise ConfigError(f"no cluster: not inside a Pod, and there is no kubeconfig at {paths}")
    return paths


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


@contextmanager
def _connection_troubles(request: _Request) -> Iterator[None]:
    """Turn what can happen to a connection into TransientClusterError."""
    what = f"{request.method} {request.path}"
    try:
        yield
    except TimeoutError as error:
        raise TransientClusterError(f"no answer in time: {what}") from error
    except (aiohttp.ClientError, OSError) as error:
        trouble = _trouble(error)
        raise TransientClusterError(
            f"no connection: {what}: {trouble.said}", tls=trouble.is_tls
        ) from error


class _Trouble(NamedTuple):
    said: str
    is_tls: bool


def _trouble(error: Exception) -> _Trouble:
    """Return what an error says of the connection, without addresses that the client tried."""
    inner = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        said = getattr(inner, "verify_message", None) or inner.reason or type(inner).__name__
        return _Trouble(str(said).lower().replace("_", " "), is_tls=True)
    if isinstance(inner, socket.gaierror):
        return _Trouble("its name cannot be resolved", is_tls=False)
    if isinstance(inner, OSError) and inner.errno:
        return _Trouble(os.strerror(inner.errno).lower(), is_tls=False)
    return _Trouble(type(error).__name__, is_tls=False)
