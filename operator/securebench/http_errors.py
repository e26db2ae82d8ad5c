"""Describes failed connections of HTTP clients for people."""

from __future__ import annotations

import os
import socket
import ssl
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import aiohttp


class CertificateFault(Enum):
    """What is wrong with the certificate of a server."""

    AUTHORITY = "authority"
    NAME = "name"
    EXPIRED = "expired"
    EARLY = "early"


_FAULTS = MappingProxyType(
    {
        9: CertificateFault.EARLY,
        10: CertificateFault.EXPIRED,
        18: CertificateFault.AUTHORITY,
        19: CertificateFault.AUTHORITY,
        20: CertificateFault.AUTHORITY,
        21: CertificateFault.AUTHORITY,
        62: CertificateFault.NAME,
        64: CertificateFault.NAME,
    }
)
"""By the codes of OpenSSL (``X509_V_ERR_``), which the module ssl has no names for."""


class ConnectionProblem(NamedTuple):
    """Why there is no connection.

    Args:
        message: A few words.
        is_tls: Whether TLS failed, and not the network.
        certificate: What is wrong with the server's certificate; None: it is not that, or another
            fault.
    """

    message: str
    is_tls: bool
    certificate: CertificateFault | None = None


def describe_connection_error(error: Exception) -> ConnectionProblem:
    """Describe an error of aiohttp, without the addresses that the client tried."""
    inner = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        message = getattr(inner, "verify_message", None) or inner.reason or type(inner).__name__
        shown = str(message).lower().replace("_", " ").removesuffix(".")
        return ConnectionProblem(shown, is_tls=True, certificate=_certificate_fault(inner))
    if isinstance(inner, socket.gaierror):
        return ConnectionProblem("its name cannot be resolved", is_tls=False)
    if isinstance(inner, OSError) and inner.errno:
        return ConnectionProblem(os.strerror(inner.errno).lower(), is_tls=False)
    return ConnectionProblem(type(error).__name__, is_tls=False)


def _certificate_fault(error: ssl.SSLError) -> CertificateFault | None:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    return _FAULTS.get(error.verify_code)
