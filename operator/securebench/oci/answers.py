"""Maps failed registry requests to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import aiohttp

from securebench.errors import (
    PackError,
    PackImageMissingError,
    RegistryUnavailableError,
    SecureBenchError,
)
from securebench.http_errors import (
    CertificateFault,
    ConnectionProblem,
    describe_connection_error,
)
from securebench.oci.access import RegistryAccess

_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_REPEATED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


def refusal(status: int, what: str, access: RegistryAccess) -> SecureBenchError:
    """Return the error of an answer.

    Args:
        status: HTTP status, none of success.
        what: Names registry and repository.
        access: How the registry was asked.
    """
    if status in _REFUSED:
        return PackError(f"{what}: the registry answers {status}; {access.advice.login}")
    if status == HTTPStatus.NOT_FOUND:
        return PackImageMissingError(
            f"{what}: the registry has no such content (404)",
            "push it with 'securebench pack push --image', then create a new run",
        )
    if status in _REPEATED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RegistryUnavailableError(f"{what}: the registry answers {status}")
    how = " without TLS" if access.plain_http else ""
    return PackError(
        f"{what}: the registry answers {status}, which is no answer to this request{how}"
    )


@contextmanager
def connection_problem(access: RegistryAccess) -> Iterator[None]:
    """Turn what can happen to a connection into RegistryUnavailableError."""
    what = f"registry {access.host}"
    try:
        yield
    except TimeoutError as error:
        raise RegistryUnavailableError(f"{what}: no answer in time") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        message = _explanation(describe_connection_error(error), access)
        where = f"{what}{_other_host(error, access)}"
        raise RegistryUnavailableError(f"{where}: {message}") from error


def _other_host(error: Exception, access: RegistryAccess) -> str:
    """Name the host that the registry sent us to, if it is that one which cannot be reached."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return ""
    place = f"{error.host}:{error.port}"
    return "" if access.host in {place, error.host} else f", which leads to {place}"


def _explanation(problem: ConnectionProblem, access: RegistryAccess) -> str:
    """Say why there is no connection and, where somebody has to act, what to do."""
    match problem.certificate:
        case CertificateFault.AUTHORITY:
            return (
                f"its certificate is from an authority that is not trusted ({problem.message});"
                f" {access.advice.authority}"
            )
        case CertificateFault.NAME:
            return (
                f"its certificate is for another name ({problem.message}); name the registry as its"
                " certificate does, or give it a certificate with this name"
            )
        case CertificateFault.EXPIRED:
            return "its certificate has expired; renew it on the registry"
        case CertificateFault.EARLY:
            return "its certificate is not valid yet; compare the clocks of both machines"
        case None if problem.is_tls:
            return f"TLS fails: {problem.message}; {access.advice.plain_http}"
        case None:
            return f"no connection: {problem.message}"
