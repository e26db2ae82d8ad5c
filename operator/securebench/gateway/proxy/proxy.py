"""The proxy route: serve requests in sequence, each checked separately (contract 11.3)."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from securebench.gateway.net.causes import Cause, CutError, RefusedError
from securebench.gateway.net.heads import RequestHead
from securebench.gateway.net.http1 import receive_exchange, refuse
from securebench.gateway.net.ports import HTTPS_PORT
from securebench.gateway.net.streams import AgentStream, linger
from securebench.gateway.proxy.authority import connect_target, host_target
from securebench.gateway.proxy.forward import Forward
from securebench.gateway.proxy.request_log import RequestEntry
from securebench.gateway.proxy.tunnel import serve_tunnel
from securebench.gateway.server.context import RunGateway
from securebench.gateway.server.launch import ServedLaunch


async def serve_proxy(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> None:
    """Serve an agent's connection until it ends; every decision is logged.

    The stream is positioned after the preface; the caller closes it.

    Raises:
        OSError: The agent's connection broke.
    """
    while await _serve_next(agent, launch, gateway):
        pass
    await linger(agent)


async def _serve_next(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> bool:
    """Serve one request; return whether another may follow."""
    entry = RequestEntry(agent, launch, gateway.monotonic)
    exchange = await receive_exchange(
        agent, gateway.config.limits.idle_seconds, partial(_record_failure, entry)
    )
    if exchange is None:
        return False
    if exchange.head.method != "CONNECT":
        await Forward(exchange, agent, launch, gateway, entry).serve()
        return exchange.is_reusable()
    entry.ask(exchange.head)
    try:
        require_plain_connect(exchange.head)
    except RefusedError as error:
        _record_failure(entry, error)
        await refuse(agent, error)
        return False
    await serve_tunnel(agent, launch, gateway, exchange.head.target, exchange.rest)
    return False


def _record_failure(entry: RequestEntry, error: RefusedError | CutError) -> None:
    if error.cause is not Cause.IDLE:
        entry.fail(error)
        entry.record(error.status if isinstance(error, RefusedError) else None)


def require_plain_connect(head: RequestHead) -> None:
    """Require that a CONNECT has no body, and no Host header that names another host.

    HTTP/1.0 clients send no Host header; some clients omit its port.

    Raises:
        RefusedError: 400, or the error of the target itself.
    """
    if head.has_body:
        raise RefusedError(
            "A CONNECT request must not have a body.", Cause.BAD_REQUEST, HTTPStatus.BAD_REQUEST
        )
    target = connect_target(head.target)
    for field in head.values(b"host"):
        if host_target(field.decode("latin-1"), HTTPS_PORT).host != target.host:
            raise RefusedError(
                f"The Host header of the request does not name {target.host}.",
                Cause.HOST_MISMATCH,
                HTTPStatus.BAD_REQUEST,
            )
