"""Maps failed registry requests to errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import aiohttp

from securebench.core.errors import (
    PackError,
    PackImageMissingError,
    RegistryUnavailableError,
    SecureBenchError,
)
from securebench.http_errors import describe_connection_error

_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_REPEATED = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


def refusal(status: int, what: str, login: str) -> SecureBenchError:
    """Return the error of an answer.

    Args:
        status: HTTP status, none of success.
        what: Names registry and repository.
        login: What to do when other credentials are wanted.
    """
    if status in _REFUSED:
        return PackError(f"{what}: the registry answers {status}; {login}")
    if status == HTTPStatus.NOT_FOUND:
        return PackImageMissingError(
            f"{what}: the registry has no such content (404)",
            "push it with 'securebench pack push --image', then create a new run",
        )
    if status in _REPEATED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return RegistryUnavailableError(f"{what}: the registry answers {status}")
    return PackError(f"{what}: the registry answers {status}, which is no answer to this request")


@contextmanager
def connection_problem(what: str) -> Iterator[None]:
    """Turn what can happen to a connection into RegistryUnavailableError.

    Args:
        what: Names the registry.
    """
    try:
        yield
    except TimeoutError as error:
        raise RegistryUnavailableError(f"{what}: no answer in time") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        message = describe_connection_error(error).message
        raise RegistryUnavailableError(f"{what}: no connection: {message}") from error
