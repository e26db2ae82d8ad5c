"""CONNECT: bytes in both directions, after the TLS ClientHello named the same host."""

from __future__ import annotations

from securebench.egress.gateway.context import Gateway
from securebench.egress.gateway.launches import Launch
from securebench.egress.gateway.streams import AgentStream


async def serve_tunnel(
    agent: AgentStream, launch: Launch, gateway: Gateway, authority: str, early: bytes
) -> None:
    """Answer a CONNECT and carry its tunnel until both sides have ended.

    Every way it can go is answered and recorded here; the caller only closes the agent's stream.

    Args:
        agent: Positioned after the head of the request.
        launch: Who asks.
        gateway: What the routes share.
        authority: The request's target, as it was sent.
        early: What the agent sent behind the head already.

    Raises:
        OSError: The agent's connection broke.
    """
