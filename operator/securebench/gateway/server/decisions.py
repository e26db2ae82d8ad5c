"""The log of a launch's decisions: one bounded JSON line each, never with a secret."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from securebench.clock import rfc3339
from securebench.protocol.sidecar import Route

HOST_CHARACTERS = 253
PATH_CHARACTERS = 512
METHOD_CHARACTERS = 32
STRIPPED_KINDS = 16
"""Limits on text that comes from the agent."""


class Verdict(StrEnum):
    """The decision of the gateway."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    """Nothing that the agent sent left the gateway."""
    CUT = "cut"
    """Allowed, then cut by the gateway."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one connection or request, logged when it has ended.

    Attributes:
        method: HTTP method; ``CONNECT`` for a tunnel.
        host: As the agent wrote it.
        port: 0 if it could not be parsed.
        reason: A ``Cause``, or empty.
        path: Without the query; empty for tunnels.
        bytes_up: From the agent.
        bytes_down: To the agent.
        seconds: From the request to its end.
        status: HTTP status that the agent got, or None.
        tokens: Input and output tokens of a request to the model provider, else None.
        stripped: Kinds of tools stripped from such a request, or why it was refused.
        echoes: How often the provider's response contained the key.
    """

    route: Route
    method: str
    host: str
    port: int
    verdict: Verdict
    reason: str = ""
    path: str = ""
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    status: int | None = None
    tokens: tuple[int, int] | None = None
    stripped: tuple[str, ...] = ()
    echoes: int = 0


def line_of(decision: Decision, at: float) -> bytes:
    """Encode a decision as one line; ASCII only, so that it cannot hold terminal escapes.

    Args:
        decision: To be logged.
        at: Seconds since the epoch.
    """
    entry: dict[str, object] = {
        "at": rfc3339(at),
        "route": decision.route.value,
        "method": decision.method[:METHOD_CHARACTERS],
        "host": decision.host[:HOST_CHARACTERS],
        "port": decision.port,
        "verdict": decision.verdict.value,
        "reason": decision.reason,
        "bytes_up": decision.bytes_up,
        "bytes_down": decision.bytes_down,
        "seconds": round(decision.seconds, 3),
    }
    if decision.path:
        entry["path"] = decision.path.partition("?")[0][:PATH_CHARACTERS]
    if decision.status is not None:
        entry["status"] = decision.status
    if decision.tokens is not None:
        entry["input_tokens"], entry["output_tokens"] = decision.tokens
    if decision.stripped:
        entry["stripped"] = decision.stripped[:STRIPPED_KINDS]
    if decision.echoes:
        entry["echoes"] = decision.echoes
    text = json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii") + b"\n"
