"""What a run may reach, as its plan fixes it: listed domains and a model provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from securebench.protocol.sidecar import PROVIDER_PORT

PROVIDER_URL: Final = f"http://127.0.0.1:{PROVIDER_PORT}"
"""Where a tool finds its provider: the sidecar of its own Pod."""


@dataclass(frozen=True, slots=True)
class ClusterProvider:
    """A model provider inside the cluster that the administrator lists.

    Attributes:
        host: DNS name of its Service.
        port: Port of the Service, as in the tester's URL.
        namespace: Namespace of its Pods.
        pod_port: Port of its Pods, which network policies are about.
    """

    host: str
    port: int
    namespace: str
    pod_port: int


@dataclass(frozen=True, slots=True)
class ProviderPlan:
    """The model provider of a run.

    Attributes:
        name: Name of its API: ``openai``, ``openai_chat`` or ``anthropic``.
        host: The provider's host.
        secret: Name of the Secret with its API key, mounted in the gateway only; empty: no key.
        key: Key of the API key in that Secret; empty: no key.
        allow_external_tools: Whether tools hosted by the provider may be used.
        max_requests: Budget per launch, or None.
        max_tokens: Budget per launch, or None.
        port: Port of the host.
        base: Path of its base URL; None for the vendor's own.
        is_plain: Whether it is reached by HTTP without TLS.
        ca: Certificates that are trusted instead of the public authorities, or empty.
        inside: Present if it is inside the cluster.
        title: What messages call it; empty: its name.
        run_tokens: Budget of all launches together, or None.
        model: The model that the tester names, or empty.
    """

    name: str
    host: str
    secret: str
    key: str
    allow_external_tools: bool = False
    max_requests: int | None = None
    max_tokens: int | None = None
    port: int = 443
    base: str | None = None
    is_plain: bool = False
    ca: str = ""
    inside: ClusterProvider | None = None
    title: str = ""
    run_tokens: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class EgressPlan:
    """The egress of a run's harness Pods; without a plan they have no network at all.

    Attributes:
        domains: Configured ``allowed_domains``; the proxy route is closed when empty.
        provider: Present if the harness works with a model.
    """

    domains: tuple[str, ...]
    provider: ProviderPlan | None
