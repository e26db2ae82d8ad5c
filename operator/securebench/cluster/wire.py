"""Interpret responses of the API server; the only module that knows its status codes and texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from securebench.cluster.port import (
    AlreadyExists,
    Forbidden,
    ObjectKind,
    QuotaExceeded,
    WatchEvent,
    WatchExpired,
)
from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.json_values import text_at
from securebench.run.api.field_types import API_VERSION, PLURAL
from securebench.sizes import MIB
from securebench.suite.api.models import PLURAL as SUITES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from securebench.cluster.port import Raw

CORE = "/api/v1"

_COLLECTIONS: Mapping[ObjectKind, tuple[str, str]] = {
    ObjectKind.POD: (CORE, "pods"),
    ObjectKind.SERVICE: (CORE, "services"),
    ObjectKind.NETWORK_POLICY: ("/apis/networking.k8s.io/v1", "networkpolicies"),
    ObjectKind.CONFIG_MAP: (CORE, "configmaps"),
    ObjectKind.SECRET: (CORE, "secrets"),
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


def collection_path(kind: ObjectKind, namespace: str) -> str:
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
