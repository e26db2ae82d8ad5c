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
        problem = _connection_problem(error)
        raise TransientClusterError(
            f"no connection: {what}: {problem.message}", tls=problem.is_tls
        ) from error


class _ConnectionProblem(NamedTuple):
    message: str
    is_tls: bool


def _connection_problem(error: Exception) -> _ConnectionProblem:
    """Describe a connection error, without the addresses that the client tried."""
    inner = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        message = getattr(inner, "verify_message", None) or inner.reason or type(inner).__name__
        return _ConnectionProblem(str(message).lower().replace("_", " "), is_tls=True)
    if isinstance(inner, socket.gaierror):
        return _ConnectionProblem("its name cannot be resolved", is_tls=False)
    if isinstance(inner, OSError) and inner.errno:
        return _ConnectionProblem(os.strerror(inner.errno).lower(), is_tls=False)
    return _ConnectionProblem(type(error).__name__, is_tls=False)
