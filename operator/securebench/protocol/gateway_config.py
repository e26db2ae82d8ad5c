"""What the operator tells a run's gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONFIG_FILE: Final = "config.json"
"""In the run's gateway folder; written by the operator before the gateway starts."""
KEYS_FILE: Final = "keys.json"
"""In the same folder: the JSON Web Key Set of the API server; written anew when the keys change."""


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Bounds of what a launch may do through the gateway.

    Attributes:
        idle_seconds: A tunnel or an answer without a byte for so long is cut.
        connect_seconds: For resolving and connecting.
        connections: Open at once, of one launch.
        all_connections: Open at once, of the run.
        connections_per_second: New ones of one launch, sustained; four times as many in a burst.
        bytes: Of one launch, both ways together.
        request_bytes: Body of one request to the provider.
        log_lines: Kept of one launch; more are counted, not written.
    """

    idle_seconds: float = 600.0
    connect_seconds: float = 10.0
    connections: int = 64
    all_connections: int = 2048
    connections_per_second: float = 50.0
    bytes: int = 2 * 1024**3
    request_bytes: int = 16 * 1024**2
    log_lines: int = 10_000


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The model provider of a run.

    Attributes:
        name: ``openai`` or ``anthropic``.
        host: The only host that requests are sent to, over TLS, on port 443.
        key_file: Absolute path of the file with the key.
        allow_external_tools: Whether hosted tools are let through.
        max_requests: Budget of one launch, or None.
        max_tokens: Budget of one launch, input and output together, or None.
    """

    name: str
    host: str
    key_file: str
    allow_external_tools: bool = False
    max_requests: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Everything that a gateway is told.

    Attributes:
        pod_prefix: Names of the run's harness Pods begin with it.
        namespace: Of the run.
        service_account: Of the harness Pods.
        audience: Of the launch tokens.
        domains: Configured ``allowed_domains``, normalized; empty: the proxy route is closed.
        provider: Present for codex and claude_code.
        limits: Bounds.
        authorities: Absolute path of a file with further certificate authorities, or empty.
    """

    pod_prefix: str
    namespace: str
    service_account: str
    audience: str
    domains: tuple[str, ...]
    provider: ProviderConfig | None
    limits: GatewayLimits = GatewayLimits()
    authorities: str = ""
