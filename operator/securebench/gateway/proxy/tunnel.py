"""CONNECT tunnels: copy bytes once the TLS ClientHello has named the same host."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from securebench.gateway.net.causes import Cause, CutError, RefusedError, UnreachableError
from securebench.gateway.net.http1 import refusal
from securebench.gateway.net.streams import AgentStream, Stream, pump
from securebench.gateway.proxy.authority import Target, connect_target
from securebench.gateway.proxy.client_hello import ClientHelloParser
from securebench.gateway.server.context import RunGateway
from securebench.gateway.server.decisions import Decision, Verdict
from securebench.gateway.server.launch import ServedLaunch
from securebench.protocol.sidecar import Route

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def serve_tunnel(
    agent: AgentStream, launch: ServedLaunch, gateway: RunGateway, authority: str, early: bytes
) -> None:
    """Answer a CONNECT and carry its tunnel until both sides have ended.

    Every outcome is answered and logged here; the caller only closes the agent's stream, which is
    positioned after the head of the request. ``authority`` is the request's target as sent, and
    ``early`` what the agent sent right after the head.

    Raises:
        OSError: The agent's connection broke before the tunnel was established.
    """
    tunnel = _Tunnel(agent, launch, gateway, authority)
    agent.unread(early)
    try:
        await tunnel.serve()
    finally:
        tunnel.record(len(early))


class _Tunnel:
    """One CONNECT request and its outcome."""

    def __init__(
        self, agent: AgentStream, launch: ServedLaunch, gateway: RunGateway, authority: str
    ) -> None:
        self._agent = agent
        self._launch = launch
        self._gateway = gateway
        self._authority = authority
        self._target = Target(authority, 0)
        self._begun = gateway.monotonic()
        self._bytes = (agent.bytes_up, agent.bytes_down)
        self._status: int | None = None
        # The default outcome: the end of the launch can cancel the task at any point.
        self._verdict = Verdict.CUT
        self._cause: Cause | None = Cause.CLOSED

    async def serve(self) -> None:
        try:
            outside = await self._open()
        except (RefusedError, UnreachableError) as error:
            self._decide(Verdict.REFUSED, error.cause, error.status)
            await self._agent.write(refusal(error.status, error.reason))
            return
        try:
            await self._carry(outside)
        except RefusedError as error:
            self._decide(Verdict.REFUSED, error.cause, HTTPStatus.OK)
        except CutError as error:
            self._decide(Verdict.CUT, error.cause, HTTPStatus.OK)
        except OSError:
            self._decide(Verdict.ALLOWED, Cause.BROKEN, HTTPStatus.OK)
        else:
            self._decide(Verdict.ALLOWED, None, HTTPStatus.OK)
        finally:
            await outside.close()

    async def _open(self) -> Stream:
        target = self._target = connect_target(self._authority)
        if not self._gateway.is_listed(target.host):
            raise RefusedError(
                f"{target.host} is not one of the allowed domains.", Cause.NOT_LISTED
            )
        return await self._gateway.dial(self._launch, target.host, target.port)

    async def _carry(self, outside: Stream) -> None:
        self._status = HTTPStatus.OK
        await self._agent.write(ESTABLISHED)
        hello = await self._hello()
        await outside.write(hello)
        await pump(self._agent, outside, self._gateway.config.limits.idle_seconds)

    async def _hello(self) -> bytes:
        """Return the agent's first bytes, which contain a whole ClientHello for the target."""
        reader, received, name = ClientHelloParser(), b"", None
        try:
            async with asyncio.timeout(self._gateway.config.limits.connect_seconds):
                while name is None:
                    data = await self._agent.read()
                    if not data:
                        raise RefusedError("There was no ClientHello.", Cause.NO_HELLO)
                    received += data
                    name = reader.feed(data)
        except TimeoutError:
            raise RefusedError("There was no ClientHello in time.", Cause.NO_HELLO) from None
        if name != self._target.host:
            raise RefusedError("The ClientHello names another host.", Cause.SNI_MISMATCH)
        return received

    def _decide(self, verdict: Verdict, cause: Cause | None, status: int) -> None:
        self._verdict, self._cause, self._status = verdict, cause, status

    def record(self, early_bytes: int) -> None:
        """Log the decision; called once, at the end."""
        bytes_up, bytes_down = self._bytes
        self._launch.record(
            Decision(
                Route.PROXY,
                "CONNECT",
                self._target.host,
                self._target.port,
                self._verdict,
                self._cause or "",
                bytes_up=self._agent.bytes_up - bytes_up + early_bytes,
                bytes_down=self._agent.bytes_down - bytes_down,
                seconds=self._gateway.monotonic() - self._begun,
                status=self._status,
            )
        )
