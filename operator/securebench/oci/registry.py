"""A registry of packs by the OCI distribution API: bounded, verified, to listed hosts alone.

A registry may ask for a token of its token service, redirect to other hosts, and refuse; each
failed request becomes an error with what to do about it. Credentials go to the registry only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.request import parse_http_list, parse_keqv_list

import aiohttp
import certifi
from yarl import URL

from securebench.digests import PREFIX, content_digest
from securebench.errors import (
    PackError,
    PackImageMissingError,
    RegistryUnavailableError,
    SecureBenchError,
)
from securebench.http_errors import CertificateFault, ConnectionProblem, describe_connection_error
from securebench.json_values import object_in, text_at
from securebench.oci.access import RegistryAccess, RegistryLogin
from securebench.oci.artifact import MANIFEST_TYPE, MAX_MANIFEST_BYTES, Descriptor
from securebench.sizes import MIB

_BEARER = "bearer "
"""Beginning of a challenge for a token, in lower case."""


def token_url(challenge: str) -> URL:
    """Return the URL of the token service named in a challenge.

    Args:
        challenge: Value of the header WWW-Authenticate, which begins with Bearer.

    Raises:
        PackError: It names no place.
    """
    try:
        wanted = parse_keqv_list(parse_http_list(challenge[len(_BEARER) :]))
        url = URL(wanted.get("realm", ""))
    except ValueError:
        url, wanted = URL(), {}
    if not url.absolute:
        raise PackError("the registry asks for a token and does not name its token service")
    return url.update_query({key: wanted[key] for key in ("service", "scope") if key in wanted})


def token_from(content: bytes) -> str:
    """Return the token of an answer.

    Raises:
        PackError: It has none.
    """
    try:
        answer = object_in(json.loads(content))
    except (ValueError, RecursionError):
        answer = {}
    token = text_at(answer, "token") or text_at(answer, "access_token")
    if not token or not token.isascii() or not token.isprintable():
        raise PackError("the registry's token service answered without a token")
    return token


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
def _connection_problem(access: RegistryAccess) -> Iterator[None]:
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


_CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
"""Without a byte from the registry; the whole transfer is bounded by its caller."""

CHUNK_BYTES = MIB
_MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class _Request(NamedTuple):
    method: str
    url: URL
    headers: Mapping[str, str] = {}
    body: Path | bytes | None = None


class Registry:
    """One repository of a registry.

    Args:
        session: From ``registry_session``.
        access: How the registry is asked, and where it may send us.
        repository: Path in the registry.
        credentials: For the registry; None: anonymous.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: RegistryAccess,
        repository: str,
        credentials: RegistryLogin | None,
    ) -> None:
        self._session = session
        self._access = access
        self._repository = repository
        self._credentials = credentials
        self._authorization = ""
        self._base = URL(f"{access.scheme}://{access.host}/v2/{repository}/")

    async def manifest(self, reference: str) -> bytes:
        """Return a manifest; if it was asked for by its digest, it has that digest.

        Args:
            reference: Digest or tag.

        Raises:
            PackError: There is none, or another one.
            RegistryUnavailableError: Transient; may be retried.
        """
        request = _Request("GET", self._base / "manifests" / reference, {"Accept": MANIFEST_TYPE})
        async with self._ask(request) as response:
            content = await _bounded(response, MAX_MANIFEST_BYTES, f"{self} {reference}")
        if reference.startswith(PREFIX) and content_digest(content) != reference:
            raise PackError(
                f"{self} sent another manifest than {reference}: its digest is"
                f" {content_digest(content)}; nothing of it was read"
            )
        return content

    async def fetch(self, blob: Descriptor, target: Path) -> None:
        """Write a blob to a new file, which is complete and verified on return.

        Raises:
            PackError: There is none, or it is another one.
            RegistryUnavailableError: Transient; may be retried.
            OSError: The disk did not take it.
        """
        total, size_bytes = hashlib.sha256(), 0
        request = _Request("GET", self._base / "blobs" / blob.digest)
        with target.open("xb") as sink:
            async with self._ask(request) as response:
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    size_bytes += len(chunk)
                    if size_bytes > blob.size_bytes:
                        break
                    total.update(chunk)
                    await asyncio.to_thread(sink.write, chunk)
        if size_bytes < blob.size_bytes:
            raise RegistryUnavailableError(
                f"{self} sent {size_bytes} of {blob.size_bytes} bytes of layer {blob.digest}"
            )
        if size_bytes > blob.size_bytes or f"{PREFIX}{total.hexdigest()}" != blob.digest:
            raise PackError(
                f"{self} sent other content than layer {blob.digest}; nothing of it was unpacked"
            )

    async def has(self, blob: Descriptor) -> bool:
        """Return whether the repository has a blob."""
        request = _Request("HEAD", self._base / "blobs" / blob.digest)
        async with self._ask(request, accepted=(HTTPStatus.OK, HTTPStatus.NOT_FOUND)) as response:
            return response.status == HTTPStatus.OK

    async def upload(self, blob: Descriptor, content: Path | bytes) -> None:
        """Put a blob into the repository.

        Raises:
            PackError: The registry refuses it.
            RegistryUnavailableError: Transient; may be retried.
        """
        begin = _Request("POST", self._base / "blobs" / "uploads" / "")
        async with self._ask(begin, accepted=(HTTPStatus.ACCEPTED,)) as response:
            place = self._redirect_target(response)
        headers = {"Content-Type": "application/octet-stream"}
        put = _Request("PUT", place.update_query(digest=blob.digest), headers, content)
        async with self._ask(put, accepted=(HTTPStatus.CREATED,)):
            pass

    async def put_manifest(self, content: bytes, reference: str) -> None:
        """Put a manifest into the repository, under a tag or its digest."""
        headers = {"Content-Type": MANIFEST_TYPE}
        put = _Request("PUT", self._base / "manifests" / reference, headers, content)
        async with self._ask(put, accepted=(HTTPStatus.CREATED,)):
            pass

    def __str__(self) -> str:
        """Name the repository in messages."""
        return f"registry {self._access.host}, repository {self._repository}"

    @asynccontextmanager
    async def _ask(
        self, request: _Request, accepted: tuple[HTTPStatus, ...] = (HTTPStatus.OK,)
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; authenticate on the registry's 401, and follow allowed redirects."""
        what, is_first = f"{self} {request.method}", True
        with _connection_problem(self._access):
            for _ in range(_MAX_REDIRECTS + 2):
                async with self._send(request) as response:
                    is_refused = response.status == HTTPStatus.UNAUTHORIZED
                    if is_refused and is_first and self._is_own(request.url):
                        is_first = False
                        await self._authorize(response)
                    elif response.status in _REDIRECTS and request.method in {"GET", "HEAD"}:
                        request = request._replace(url=self._redirect_target(response))
                    elif response.status in accepted:
                        yield response
                        return
                    else:
                        raise refusal(response.status, str(self), self._access)
        raise PackError(f"{what}: more than {_MAX_REDIRECTS} redirects")

    @asynccontextmanager
    async def _send(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept-Encoding": "identity", **request.headers}
        if self._authorization and self._is_own(request.url):
            headers["Authorization"] = self._authorization
        with ExitStack() as files:
            body: BinaryIO | bytes | None = (
                files.enter_context(request.body.open("rb"))
                if isinstance(request.body, Path)
                else request.body
            )
            async with self._session.request(
                request.method, request.url, headers=headers, data=body, allow_redirects=False
            ) as response:
                yield response

    async def _authorize(self, response: aiohttp.ClientResponse) -> None:
        """Take the credentials that a refusal asks for; without any, the next answer says so."""
        challenge = response.headers.get("WWW-Authenticate", "")
        basic = self._credentials.basic if self._credentials is not None else ""
        if not challenge.lower().startswith(_BEARER):
            self._authorization = basic
            return
        url = self._allowed_url(token_url(challenge))
        headers = {"Authorization": basic} if basic else {}
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            if answer.status != HTTPStatus.OK:
                raise refusal(answer.status, str(self), self._access)
            content = await _bounded(answer, MAX_MANIFEST_BYTES, str(self))
        self._authorization = f"Bearer {token_from(content)}"

    def _is_own(self, url: URL) -> bool:
        """Whether a URL is the registry's own; nobody else is given credentials."""
        return url.origin() == self._base.origin()

    def _redirect_target(self, response: aiohttp.ClientResponse) -> URL:
        try:
            place = response.url.join(URL(response.headers.get("Location", "")))
        except ValueError:
            raise PackError(f"{self} leads to a place that is no URL") from None
        return self._allowed_url(place)

    def _allowed_url(self, url: URL) -> URL:
        """Return where the registry sends us, if that is allowed."""
        place = _authority(url)
        is_own = url.absolute and self._is_own(url)
        if "@" not in url.raw_authority and (
            is_own or self._access.allows_redirect_to(url.scheme, place)
        ):
            return url
        raise PackError(
            f"{self} leads to {url.scheme}://{place}, which is not among its otherHosts"
            " (the chart's settings.packRegistries.registries); ask the administrator"
        )


@asynccontextmanager
async def registry_session(access: RegistryAccess) -> AsyncIterator[aiohttp.ClientSession]:
    """Open the connections to one registry: no proxy, no cookies, nothing is unpacked on the way.

    Raises:
        RegistryUnavailableError: The registry's certificate authority is none.
    """
    tls = _tls(access)
    limits = aiohttp.ClientTimeout(
        total=None, sock_connect=_CONNECT_SECONDS, sock_read=SILENCE_SECONDS
    )
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        timeout=limits,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session


def _tls(access: RegistryAccess) -> ssl.SSLContext:
    """Trust the public authorities, those of this machine, and the registry's own."""
    tls = ssl.create_default_context(cafile=certifi.where())
    tls.load_default_certs()
    if access.authority:
        try:
            # Comments between certificates may be in any script.
            ascii_alone = access.authority.encode("ascii", "replace").decode("ascii")
            tls.load_verify_locations(cadata=ascii_alone)
        except (ssl.SSLError, ValueError):
            raise RegistryUnavailableError(
                f"registry {access.host}: the certificate authority that is given for it is no"
                f" certificate in PEM; {access.advice.authority}"
            ) from None
    return tls


async def _bounded(response: aiohttp.ClientResponse, limit: int, what: str) -> bytes:
    content = b""
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        content += chunk
        if len(content) > limit:
            raise PackError(f"{what}: the answer has more than {limit} bytes")
    return content


def _authority(url: URL) -> str:
    """Return host and port as references name them."""
    return f"{url.host}" if url.is_default_port() else f"{url.host}:{url.port}"
