"""Accept connections of sidecars: preface, admission, limits, then the route's handler.

Sidecars authenticate by their service account token, verified offline. The token is a projected
one, signed by the API server and bound to its Pod and to the audience of this run's gateway.
Source: A-143 and A-178.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import jwt

from securebench.gateway.decisions import Cause, Decision, GatewayError, RefusedError, Verdict
from securebench.gateway.launches import Identity, Launches, ServedLaunch
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import AgentStream, SocketStream
from securebench.names import is_dns_label
from securebench.protocol.gateway import (
    ACCEPTED,
    MAGIC,
    PREFACE_BYTES,
    REFUSED,
    GatewayConfig,
    Route,
)
from securebench.protocol.messages import decode_object

_ALGORITHMS = frozenset({"ES256", "RS256"})
"""Signature algorithms of API servers; each key is valid only for its own."""

KEYS_SECONDS = 2.0
"""Minimum time between two reads of the key file."""
_LEEWAY_SECONDS = 10.0
"""Tolerated clock skew between two nodes."""

_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


class Admission:
    """Checks launch tokens.

    Args:
        config: Identifies the run and its service account.
        keys_file: JSON Web Key Set of the API server; read again when a token has an unknown key.
        monotonic: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        config: GatewayConfig,
        keys_file: Path,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._file = keys_file
        self._monotonic = monotonic
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None

    def identity(self, token: str) -> Identity:
        """Return the Pod that a token was issued to.

        Raises:
            RefusedError: It is not a valid token of a harness Pod of this run.
        """
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims: Mapping[str, object] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._config.audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _refused() from None
        return self._of_this_run(claims)

    def _of_this_run(self, claims: Mapping[str, object]) -> Identity:
        config = self._config
        bound = _section(claims, "kubernetes.io")
        pod = _section(bound, "pod")
        name, uid = pod.get("name"), pod.get("uid")
        conditions = (
            claims.get("aud") in (config.audience, [config.audience]),
            claims["sub"] == f"system:serviceaccount:{config.namespace}:{config.service_account}",
            bound.get("namespace") == config.namespace,
            _section(bound, "serviceaccount").get("name") == config.service_account,
        )
        if not all(conditions) or not isinstance(name, str) or not isinstance(uid, str):
            raise _refused()
        if not (name.startswith(config.pod_prefix) and is_dns_label(name)):
            raise _refused()
        if not _UID.fullmatch(uid):
            raise _refused()
        return Identity(name, uid)

    def _key(self, header: Mapping[str, object]) -> jwt.PyJWK:
        name = header.get("kid")
        if not isinstance(name, str):
            raise _refused()
        if name not in self._keys and self._may_read():
            self._keys = _read_keys(self._file) or self._keys
        key = self._keys.get(name)
        if key is None:
            raise _refused()
        return key

    def _may_read(self) -> bool:
        now = self._monotonic()
        if self._read_at is not None and now - self._read_at < KEYS_SECONDS:
            return False
        self._read_at = now
        return True


def _read_keys(path: Path) -> dict[str, jwt.PyJWK]:
    """Return the usable keys by key id; none while the file is missing or unreadable."""
    try:
        entries = decode_object(path.read_bytes()).get("keys")
    except (OSError, ValueError):
        return {}
    keys = [_signing_key(entry) for entry in entries] if isinstance(entries, list) else []
    return {key.key_id: key for key in keys if key is not None and key.key_id is not None}


def _signing_key(entry: object) -> jwt.PyJWK | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(entry)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return key if key.algorithm_name in _ALGORITHMS else None


def _section(claims: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = claims.get(name)
    return value if isinstance(value, dict) else {}


def _refused() -> RefusedError:
    return RefusedError("The token does not belong to a harness Pod of this run.", Cause.TOKEN)


Handler = Callable[[AgentStream, ServedLaunch, RunGateway], Awaitable[None]]
"""Serves one connection of a route."""

PREFACE_SECONDS = 5.0
"""Time limit for the sidecar's first line."""
REFUSAL_SECONDS = 0.5
"""Delay before a refusal is sent, so that clients do not retry in a tight loop."""
UNAUTHENTICATED_CONNECTIONS = 64
"""Maximum unauthenticated connections of one address."""


class Server:
    """Serves the connections of a run.

    Args:
        admission: Authenticates connections.
        launches: All launches of the run.
        routes: Handlers of the routes that the run has.
    """

    def __init__(
        self,
        gateway: RunGateway,
        admission: Admission,
        launches: Launches,
        routes: Mapping[Route, Handler],
    ) -> None:
        self._gateway = gateway
        self._admission = admission
        self._launches = launches
        self._routes = routes
        self._open: set[asyncio.Task[None]] = set()
        self._unauthenticated: Counter[str] = Counter()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end and close it; for ``asyncio.start_server``."""
        if len(self._open) >= self._gateway.config.limits.all_connections:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._connected(reader, writer))
        self._open.add(task)
        task.add_done_callback(partial(self._connection_done, writer))

    async def end(self) -> None:
        """Close all connections and return once each is logged."""
        await _cut(self._open)

    def _connection_done(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        writer.close()  # a task that was cancelled before it started did not

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = SocketStream(reader, writer)
        try:
            address = _peer(writer)
            if self._unauthenticated[address] < UNAUTHENTICATED_CONNECTIONS:
                await self._serve(reader, stream, address)
        except (GatewayError, OSError):
            pass  # already logged where it was decided, or the connection is gone
        finally:
            await stream.close()

    async def _serve(
        self, reader: asyncio.StreamReader, stream: SocketStream, address: str
    ) -> None:
        # A connection counts as unauthenticated until it is served or its refusal was sent, so that
        # one Pod cannot use up the connections of the others.
        self._unauthenticated[address] += 1
        try:
            route, launch = await self._admitted(reader, address)
        except RefusedError as error:
            await _refuse(stream, error.cause)
            return
        finally:
            self._unauthenticated -= Counter([address])
        if route is Route.CLOSE:
            await self._close(launch, stream)
            return
        launch.connections.add(_this_task())
        try:
            await self._carry(route, launch, stream)
        finally:
            launch.connections.discard(_this_task())

    async def _admitted(
        self, reader: asyncio.StreamReader, address: str
    ) -> tuple[Route, ServedLaunch]:
        async with asyncio.timeout(PREFACE_SECONDS):
            route, token = await _preface(reader)
        launch = self._launches.of(self._admission.identity(token))
        launch.admit(address)
        if route is not Route.CLOSE:
            self._require_room(route, launch)
        return route, launch

    def _require_room(self, route: Route, launch: ServedLaunch) -> None:
        """Refuse a connection beyond the launch's limits; log it unless the report is final."""
        cause = self._problem(route, launch)
        if cause is None:
            return
        if cause is not Cause.CLOSED:
            launch.record(Decision(route, "", "", 0, Verdict.REFUSED, cause))
        raise RefusedError(f"Pod {launch.identity.pod} may not open another connection.", cause)

    def _problem(self, route: Route, launch: ServedLaunch) -> Cause | None:
        if launch.is_closing:
            return Cause.CLOSED
        if route not in self._routes:
            return Cause.ROUTE
        if len(launch.connections) >= self._gateway.config.limits.connections:
            return Cause.CONNECTIONS
        return None if launch.bytes_left else Cause.BYTES

    async def _carry(self, route: Route, launch: ServedLaunch, stream: SocketStream) -> None:
        await asyncio.sleep(launch.bucket.reserve())
        await stream.write(ACCEPTED)
        await self._routes[route](AgentStream(stream, launch), launch, self._gateway)

    async def _close(self, launch: ServedLaunch, stream: SocketStream) -> None:
        """End a launch: close its connections, flush, answer; idempotent."""
        launch.is_closing = True
        await _cut(launch.connections)
        launch.end()
        await self._launches.flush(launch)
        await stream.write(ACCEPTED)


async def _preface(reader: asyncio.StreamReader) -> tuple[Route, str]:
    """Return route and token of the sidecar's first line."""
    try:
        line = await reader.readuntil(b"\n")
        magic, route, token = line[:-1].decode("ascii").split(" ")
        if magic == MAGIC and len(line) <= PREFACE_BYTES:
            return Route(route), token
    except (ValueError, EOFError, asyncio.LimitOverrunError):
        pass
    raise RefusedError("The connection does not begin with a sidecar's preface.", Cause.BAD_REQUEST)


async def _refuse(stream: SocketStream, cause: Cause) -> None:
    await asyncio.sleep(REFUSAL_SECONDS)
    await stream.write(REFUSED + cause.encode() + b"\n")


async def _cut(tasks: set[asyncio.Task[None]]) -> None:
    while open_tasks := [task for task in tasks if not task.done()]:
        for task in open_tasks:
            task.cancel()
        await asyncio.wait(open_tasks)


def _peer(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    if name is None:
        raise ConnectionResetError("the peer is gone")
    return str(name[0])


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - only coroutines come here
    return task
