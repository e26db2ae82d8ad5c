"""What the gateway decides about a connection or a request, why, and the line that it logs.

GatewayError(reason, cause)
├── RefusedError      not allowed or malformed; carries the HTTP status
├── UnreachableError  allowed, but not reachable; answered with 502
└── CutError          allowed and begun, then cut by the gateway

Each decision is one bounded JSON line in the launch's log, never with a secret.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from securebench.clock import rfc3339
from securebench.errors import SecureBenchError
from securebench.protocol.gateway import Route


class Cause(StrEnum):
    """Reason of a decision in a launch's log."""

    BAD_REQUEST = "bad_request"
    METHOD = "method"
    PATH = "path"
    NOT_LISTED = "not_listed"
    """No entry of ``allowed_domains`` matches the host."""
    LITERAL = "address_literal"
    PORT = "port"
    HOST_MISMATCH = "host_mismatch"
    """The Host field does not name the URL's host."""
    NOT_PUBLIC = "address_not_public"
    """At least one address of the name is not public."""
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    NO_HELLO = "no_client_hello"
    NO_SERVER_NAME = "no_server_name"
    SNI_MISMATCH = "sni_mismatch"
    ENCRYPTED_HELLO = "encrypted_client_hello"
    TOO_LARGE = "too_large"
    HOSTED_TOOL = "hosted_tool"
    BUDGET = "budget"
    RUN_BUDGET = "run_budget"
    TOKEN = "token"  # noqa: S105 - a reason, not a secret
    """The token does not belong to a harness Pod of this run."""
    ADDRESS = "address"
    """The token is used from another address than before."""
    CONNECTIONS = "connections"
    """Too many open connections."""
    ROUTE = "route"
    """The run has no such egress route."""
    IDLE = "idle"
    BYTES = "byte_limit"
    CLOSED = "closed"
    """The harness has ended, or the gateway is shutting down."""
    BROKEN = "broken"
    """One side closed the connection prematurely."""


class GatewayError(SecureBenchError):
    """Base of errors that end a request or a connection.

    Args:
        reason: One plain sentence; the agent may read it.
        cause: For the log.
    """

    def __init__(self, reason: str, cause: Cause) -> None:
        super().__init__(reason, cause=cause.value)
        self.cause = cause


class RefusedError(GatewayError):
    """The request is malformed, or asks for something that is not allowed.

    Args:
        reason: One plain sentence; the agent may read it.
        cause: For the log.
        status: HTTP status of the response.
    """

    def __init__(self, reason: str, cause: Cause, status: int = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(reason, cause)
        self.status = status


class UnreachableError(GatewayError):
    """The target is allowed, but does not resolve or does not accept a connection."""

    status = HTTPStatus.BAD_GATEWAY


class CutError(GatewayError):
    """The gateway cut a connection that it had allowed."""


HOST_CHARACTERS = 253
PATH_CHARACTERS = 512
METHOD_CHARACTERS = 32
STRIPPED_KINDS = 16
"""Limits on text that comes from the agent."""


class Verdict(StrEnum):
    """The decision of the gateway."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    """Nothing that the agent sent left the gateway."""
    CUT = "cut"
    """Allowed, then cut by the gateway."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one connection or request, logged when it has ended.

    Attributes:
        method: HTTP method; ``CONNECT`` for a tunnel.
        host: As the agent wrote it.
        port: 0 if it could not be parsed.
        reason: A ``Cause``, or empty.
        path: Without the query; empty for tunnels.
        bytes_up: From the agent.
        bytes_down: To the agent.
        seconds: From the request to its end.
        status: HTTP status that the agent got, or None.
        tokens: Input and output tokens of a request to the model provider, else None.
        stripped: Kinds of tools stripped from such a request, or why it was refused.
        echoes: How often the provider's response contained the key.
    """

    route: Route
    method: str
    host: str
    port: int
    verdict: Verdict
    reason: str = ""
    path: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    status: int | None = None
    tokens: tuple[int, int] | None = None
    stripped: tuple[str, ...] = ()
    echoes: int = 0


def line_of(decision: Decision, at: float) -> bytes:
    """Encode a decision as one line; ASCII only, so that it cannot hold terminal escapes.

    Args:
        decision: To be logged.
        at: Seconds since the epoch.
    """
    entry: dict[str, object] = {
        "at": rfc3339(at),
        "route": decision.route.value,
        "method": decision.method[:METHOD_CHARACTERS],
        "host": decision.host[:HOST_CHARACTERS],
        "port": decision.port,
        "verdict": decision.verdict.value,
        "reason": decision.reason,
        "bytes_up": decision.bytes_up,
        "bytes_down": decision.bytes_down,
        "seconds": round(decision.seconds, 3),
    }
    if decision.path:
        entry["path"] = decision.path.partition("?")[0][:PATH_CHARACTERS]
    if decision.status is not None:
        entry["status"] = decision.status
    if decision.tokens is not None:
        entry["input_tokens"], entry["output_tokens"] = decision.tokens
    if decision.stripped:
        entry["stripped"] = decision.stripped[:STRIPPED_KINDS]
    if decision.echoes:
        entry["echoes"] = decision.echoes
    text = json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"
