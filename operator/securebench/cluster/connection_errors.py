"""Describes failed connections to the API server for people."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from securebench.core.errors import TransientClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def connection_errors_as_transient(what: str) -> Iterator[None]:
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


class ConnectionProblem(NamedTuple):
    """Why there is no connection.

    Args:
        message: A few words.
        is_tls: Whether TLS failed, and not the network.
    """

    message: str
    is_tls: bool


def describe_connection_error(error: Exception) -> ConnectionProblem:
    """Describe an error of aiohttp, without the addresses that the client tried."""
    inner = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        message = getattr(inner, "verify_message", None) or inner.reason or type(inner).__name__
        return ConnectionProblem(str(message).lower().replace("_", " "), is_tls=True)
    if isinstance(inner, socket.gaierror):
        return ConnectionProblem("its name cannot be resolved", is_tls=False)
    if isinstance(inner, OSError) and inner.errno:
        return ConnectionProblem(os.strerror(inner.errno).lower(), is_tls=False)
    return ConnectionProblem(type(error).__name__, is_tls=False)
