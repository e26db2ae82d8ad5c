"""The tool of a model provider in a run: which version, which image, which egress."""

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
"""Where a tool finds its provider: the sidecar of its own Pod."""

_NO_PROXIES: Final = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY}
"""A proxy of the image is none for the sidecar."""

Overlays = Mapping[str, Mapping[str, str]]
"""By harness type: the image of each version, and under ``LATEST`` one of these versions."""


def agent_plan(harness: ProviderHarness, overlays: Overlays, begun_with: str = "") -> AgentPlan:
    """Return how a tool runs in a task's image.

    Args:
        harness: With the version that the tester wants.
        overlays: What the administrator offers.
        begun_with: Version that this run, or the one that it continues, began with; empty: none
            was chosen yet. ``latest`` may mean another one by now.

    Raises:
        SpecError: That version is not offered.
    """
    offered = {
        version: image
        for version, image in overlays.get(harness.type, {}).items()
        if version != LATEST
    }
    version = _version(harness, overlays, begun_with)
    if version not in offered:
        raise SpecError(_not_offered(harness, version, sorted(offered)))
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


def _version(harness: ProviderHarness, overlays: Overlays, begun_with: str) -> str:
    if harness.version != LATEST:
        return harness.version
    return begun_with or overlays.get(harness.type, {}).get(LATEST, LATEST)


def _not_offered(harness: ProviderHarness, version: str, offered: list[str]) -> str:
    what = f"spec.harness.config.version: {harness.type} {version} is not installed here"
    if not offered:
        return f"{what}: the chart's value settings.overlays names no image for {harness.type}"
    return f"{what}; there is {', '.join(offered)}"
