"""Why the gateway refused or cut something.

GatewayError(reason, cause)
├── RefusedError      not allowed or malformed; carries the HTTP status
├── UnreachableError  allowed, but not reachable; answered with 502
└── CutError          allowed and begun, then cut by the gateway
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from securebench.errors import SecureBenchError


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
