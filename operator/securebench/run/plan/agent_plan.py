"""Plan the CLI of a model provider for a run: version, overlay image and egress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from securebench.agents.harness_config import LATEST, HarnessConfig, ProviderHarness
from securebench.agents.registry import cli_named
from securebench.core.errors import SpecError
from securebench.protocol.sidecar import NO_PROXY, PROVIDER_PORT
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.egress_plan import AgentPlan, EgressPlan, ProviderPlan

PROVIDER_URL: Final = f"http://127.0.0.1:{PROVIDER_PORT}"
"""Base URL that the CLI uses for its provider: the sidecar in its own Pod."""

_NO_PROXIES: Final = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY}
"""Keeps the CLI from sending requests for the sidecar through a proxy that the image configures."""

Overlays = Mapping[str, Mapping[str, str]]
"""By harness type: the overlay image of each version, and under ``LATEST`` one of these versions.
The administrator sets them in the chart."""


def agent_plan(harness: ProviderHarness, overlays: Overlays, bound_version: str = "") -> AgentPlan:
    """Return how a provider's CLI runs in a task's image.

    Args:
        harness: Names the requested version, or ``latest``.
        overlays: The versions that the administrator offers.
        bound_version: Version that this run, or the run that it resumes, already uses; it replaces
            ``latest``, which may have moved on since. Empty for a new run.

    Raises:
        SpecError: That version is not offered.
    """
    offered = {
        version: image
        for version, image in overlays.get(harness.type, {}).items()
        if version != LATEST
    }
    version = _version(harness, overlays, bound_version)
    if version not in offered:
        raise SpecError(_unavailable_message(harness, version, sorted(offered)))
    cli = cli_named(harness.type)
    return AgentPlan(
        overlay=offered[version],
        overlay_path=cli.overlay_path,
        home=cli.home,
        version=version,
        environment=_NO_PROXIES | dict(cli.environment(PROVIDER_URL)),
        preflight=cli.preflight,
        search=cli.search,
    )


def egress_plan(harness: HarnessConfig, spec: BenchmarkRunSpec) -> EgressPlan | None:
    """Return the egress of a run's harness Pods, or None for no network at all."""
    provider = _provider_plan(harness, spec) if isinstance(harness, ProviderHarness) else None
    if provider is None and not harness.allowed_domains:
        return None
    return EgressPlan(domains=harness.allowed_domains, provider=provider)


def _provider_plan(harness: ProviderHarness, spec: BenchmarkRunSpec) -> ProviderPlan:
    cli = cli_named(harness.type)
    if spec.provider is None:
        raise SpecError(f"spec.provider: harness type {harness.type} needs provider.secretRef")
    return ProviderPlan(
        name=cli.provider.name,
        host=cli.provider.host,
        secret=spec.provider.secret_ref.name,
        key=cli.key,
        allow_external_tools=harness.allow_external_tools,
        max_requests=harness.max_requests,
        max_tokens=harness.max_tokens,
    )


def _version(harness: ProviderHarness, overlays: Overlays, bound_version: str) -> str:
    if harness.version != LATEST:
        return harness.version
    return bound_version or overlays.get(harness.type, {}).get(LATEST, LATEST)


def _unavailable_message(harness: ProviderHarness, version: str, offered: list[str]) -> str:
    what = f"spec.harness.config.version: {harness.type} {version} is not installed here"
    if not offered:
        return f"{what}: the chart's value settings.overlays names no image for {harness.type}"
    return f"{what}; available: {', '.join(offered)}"
