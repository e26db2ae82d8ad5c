"""What the API server says on the wire: the only home of its status codes and wordings."""

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
from securebench.core.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.core.json_values import text_at
from securebench.run.api.base import API_VERSION, PLURAL

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
    ObjectKind.EVENT: ("/apis/events.k8s.io/v1", "events"),
}

_TRANSIENT_STATUSES = frozenset({401, 408, 409, 425, 429, 500, 502, 503, 504})
"""401 is transient because tokens rotate and authenticators time out; 409 is a lost write race."""

_QUOTA_WORDINGS = ("exceeded quota: ", "status unknown for quota: ")
"""Of the ResourceQuota admission; "failed quota: …: must specify …" is no lack of room."""

_DENIAL_WORDING = " denied the request"
"""Of an admission webhook, whose code is 400 where it names none."""

_MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Of one watch line; etcd holds objects of 1.5 MiB at most, escapes in JSON may multiply that."""

_MESSAGE_LIMIT = 2048
"""Characters of the server's message that are kept: admission webhooks may write any amount."""


def collection_path(kind: ObjectKind, namespace: str) -> str:
    """Return where the objects of a kind are."""
    group, plural = _COLLECTIONS[kind]
    return f"{group}/namespaces/{namespace}/{plural}"


def classify(status: int, body: bytes | str | Raw, retry_after: str | None = None) -> ClusterError:
    """Return the error that a refusal of the API server is.

    Args:
        status: HTTP status, or the code of a Status object in a watch; at least 400.
        body: The answer; usually a Status object, but proxies answer with anything.
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
    said = f"API server answered {status}" + (f" {reason}" if reason else "")
    said += f": {message}" if message else ""
    if status == HTTPStatus.GONE:
        return WatchExpired(said)
    if status == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return AlreadyExists(text_at(details, "name"))
    if status == HTTPStatus.FORBIDDEN and any(wording in message for wording in _QUOTA_WORDINGS):
        return QuotaExceeded(said)
    if status in _TRANSIENT_STATUSES:
        seconds = _seconds(retry_after) or _seconds(details.get("retryAfterSeconds"))
        return TransientClusterError(said, retry_after_seconds=seconds, status=status)
    is_forbidden = status == HTTPStatus.FORBIDDEN or _DENIAL_WORDING in message
    kind = Forbidden if is_forbidden else PermanentClusterError
    return kind(said, status=status, server_reason=reason)


def is_precondition_conflict(status: int, body: bytes | str | Raw) -> bool:
    """Tell whether a deletion was refused because the object is not the one that was meant."""
    message = text_at(_status_object(body), "message").lower()
    return status == HTTPStatus.CONFLICT and "uid in " in message and "precondition" in message


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without their ends; an unfinished last line is dropped.

    Raises:
        TransientClusterError: A line exceeds every object that the API can hold.
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
    """Return the event of one line of a watch.

    Raises:
        WatchExpired: The line says so, or another ClusterError that it carries.
        TransientClusterError: It is not JSON.
    """
    event = decode(line)
    item = cast("Raw", event.get("object", {}))
    if event.get("type") == "ERROR":
        code = item.get("code")
        raise classify(code if isinstance(code, int) else HTTPStatus.INTERNAL_SERVER_ERROR, item)
    return WatchEvent(str(event.get("type")), item)


def decode(body: bytes) -> Raw:
    """Return the object of an answer.

    Raises:
        TransientClusterError: It is not a JSON object, as when a proxy answered or it was cut.
    """
    try:
        decoded = json.loads(body)
    except ValueError as error:
        raise TransientClusterError("the API server's answer is not JSON") from error
    if not isinstance(decoded, dict):
        raise TransientClusterError("the API server's answer is not an object")
    return cast("Raw", decoded)


def _status_object(body: bytes | str | Raw) -> Raw:
    """Return the Status object, or an empty one for anything else, such as a proxy's page."""
    if isinstance(body, Mapping):
        return body
    try:
        decoded = json.loads(body)
    except ValueError:
        return {}
    return cast("Raw", decoded) if isinstance(decoded, dict) else {}


def _seconds(value: object) -> float | None:
    """Return a positive number of seconds; Retry-After as a date is rare and left out."""
    try:
        seconds = float(cast("str", value))
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < float("inf") else None
