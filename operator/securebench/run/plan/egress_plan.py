"""The egress of a run: allowed domains, model provider, and the CLI that uses the provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderPlan:
    """The model provider of codex and claude_code.

    Attributes:
        name: ``openai`` or ``anthropic``.
        host: The provider's host.
        secret: Name of the Secret with its API key; mounted in the gateway only.
        key: Key of the API key in that Secret.
        allow_external_tools: Whether tools hosted by the provider may be used.
        max_requests: Budget per launch, or None.
        max_tokens: Budget per launch, or None.
    """

    name: str
    host: str
    secret: str
    key: str
    allow_external_tools: bool = False
    max_requests: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EgressPlan:
    """The egress of a run's harness Pods; without a plan they have no network at all.

    Attributes:
        domains: Configured ``allowed_domains``; the proxy route is closed when empty.
        provider: Present for codex and claude_code.
        gateway: Cluster address of the run's gateway, known once its Service exists.
    """

    domains: tuple[str, ...]
    provider: ProviderPlan | None
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """How a provider's CLI runs in a task's image.

    Attributes:
        overlay: Image with the CLI, mounted read-only at ``overlay_path``.
        overlay_path: Absolute folder.
        home: Absolute folder; an empty, writable volume.
        version: Resolved version of the CLI.
        environment: Variables for the CLI, besides those of the proxy.
        preflight: Argv that must succeed before the agent's turn.
        search: Folders appended to the image's PATH.
    """

    overlay: str
    overlay_path: str
    home: str
    version: str
    environment: Mapping[str, str]
    preflight: tuple[str, ...]
    search: tuple[str, ...] = ()
