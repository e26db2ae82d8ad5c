"""What a run's egress is: its gateway, the model provider behind it and the provider's tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderPlan:
    """The model provider of codex and claude_code.

    Attributes:
        name: ``openai`` or ``anthropic``.
        host: The provider's host.
        secret: Name of the Secret with its key; mounted in the gateway only.
        key: Name of the key's entry in that Secret.
        allow_external_tools: Whether the provider's own tools may be used.
        max_requests: Budget of one launch, or None.
        max_tokens: Budget of one launch, or None.
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
    """The egress of a run's harness Pods; a run without any has no network at all.

    Attributes:
        domains: Configured ``allowed_domains``; empty: the proxy route is closed.
        provider: Present for codex and claude_code.
        gateway: Cluster address of the run's gateway, known only when its Service is made.
    """

    domains: tuple[str, ...]
    provider: ProviderPlan | None
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """How the command line tool of a model provider runs in a task's image.

    Attributes:
        overlay: Image with the tool, mounted read-only at ``overlay_path``.
        overlay_path: Absolute folder.
        home: Absolute folder: an empty, writable volume.
        version: Of the tool, resolved.
        environment: Variables of its commands besides those of the proxy.
        preflight: Argv that must succeed before the tool itself is started.
        search: Folders with programs, looked into after those of the image's PATH.
    """

    overlay: str
    overlay_path: str
    home: str
    version: str
    environment: Mapping[str, str]
    preflight: tuple[str, ...]
    search: tuple[str, ...] = ()
