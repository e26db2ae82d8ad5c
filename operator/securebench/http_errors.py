"""Describes failed connections of HTTP clients for people."""

from __future__ import annotations

import os
import socket
import ssl
from typing import NamedTuple

import aiohttp


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
