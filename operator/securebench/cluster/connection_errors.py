"""Failed connections to the API server, as errors that are retried."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import aiohttp

from securebench.errors import TransientClusterError
from securebench.http_errors import describe_connection_error

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
