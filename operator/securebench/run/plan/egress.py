"""Plan the egress of a run: its domains and its model provider within the administrator's list.

Source: contract 11 and 12.7; decision 0075.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from securebench.agents.agent import DUMMY_KEY
from securebench.agents.harness_config import HarnessConfig, ProviderHarness
from securebench.agents.providers.apis import APIS
from securebench.agents.providers.endpoint import ProviderEndpoint
from securebench.agents.registry import cli_named
from securebench.errors import SpecError
from securebench.protocol.sidecar import NO_PROXY
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.egress_plan import PROVIDER_URL, ClusterProvider, EgressPlan, ProviderPlan

INSIDE: Final = (".svc", ".cluster.local", ".local", ".internal")
"""Endings of names that never have a public address."""

_PLACE: Final = "spec.harness.config.provider.url"
_ADVICE: Final = "ask the administrator to list it in the chart's value settings.gateway.providers"


def egress_plan(
    harness: HarnessConfig, spec: BenchmarkRunSpec, listed: Sequence[ClusterProvider] = ()
) -> EgressPlan | None:
    """Return the egress of a run's harness Pods, or None for no network at all.

    Args:
        harness: Harness of the run.
        spec: Names the Secret with the provider's key.
        listed: Providers inside the cluster that the administrator allows.

    Raises:
        SpecError: The provider needs a key that is not there, or is not public and not listed; or
            there is a budget without a provider.
    """
    provider = _provider_plan(harness, spec, listed)
    if provider is None and spec.budget is not None:
        raise SpecError(
            "spec.budget: the harness has no model provider whose tokens the gateway counts; set"
            " harness.config.provider, or remove the budget"
        )
    if provider is None and not harness.allowed_domains:
        return None
    return EgressPlan(domains=harness.allowed_domains, provider=provider)


def provider_environment(harness: HarnessConfig) -> dict[str, str]:
    """Return the variables by which a command finds its provider; they hold no secret."""
    endpoint = harness.endpoint
    if endpoint is None:
        return {}
    url = f"{PROVIDER_URL}{APIS[endpoint.api].base}"
    vendor = "ANTHROPIC" if APIS[endpoint.api].name == "anthropic" else "OPENAI"
    model = {f"{vendor}_MODEL": harness.model} if harness.model else {}
    return {
        f"{vendor}_BASE_URL": url,
        f"{vendor}_API_KEY": DUMMY_KEY,
        **model,
        "NO_PROXY": NO_PROXY,
        "no_proxy": NO_PROXY,
    }


def _provider_plan(
    harness: HarnessConfig, spec: BenchmarkRunSpec, listed: Sequence[ClusterProvider]
) -> ProviderPlan | None:
    endpoint = harness.endpoint
    if isinstance(harness, ProviderHarness):
        cli = cli_named(harness.type)
        rules, key = cli.provider, cli.key if endpoint is None else endpoint.key
    elif endpoint is not None:
        rules, key = APIS[endpoint.api], endpoint.key
    else:
        return None
    if key and spec.provider is None:
        raise SpecError(f"spec.provider: harness type {harness.type} needs provider.secretRef")
    vendor = ProviderPlan(
        name=rules.name,
        host=rules.host,
        secret="" if spec.provider is None or not key else spec.provider.secret_ref.name,
        key=key,
        allow_external_tools=harness.allow_external_tools,
        max_requests=harness.max_requests,
        max_tokens=harness.max_tokens,
        run_tokens=None if spec.budget is None else spec.budget.tokens,
        model=harness.model,
    )
    return vendor if endpoint is None else _elsewhere(vendor, endpoint, listed)


def _elsewhere(
    vendor: ProviderPlan, endpoint: ProviderEndpoint, listed: Sequence[ClusterProvider]
) -> ProviderPlan:
    """Return the plan for a provider that the tester names by its URL.

    Raises:
        SpecError: Only the administrator may allow it.
    """
    place = endpoint.host, endpoint.port
    inside = next((each for each in listed if (each.host, each.port) == place), None)
    if inside is None and endpoint.is_plain:
        raise SpecError(f"{_PLACE}: {endpoint.url} has no TLS; write https://, or {_ADVICE}")
    if inside is None and endpoint.host.endswith(INSIDE):
        raise SpecError(f"{_PLACE}: {endpoint.host} is not public; {_ADVICE}")
    return replace(
        vendor,
        host=endpoint.host,
        port=endpoint.port,
        base=endpoint.base,
        is_plain=endpoint.is_plain,
        ca=endpoint.ca,
        inside=inside,
        title=endpoint.host,
    )
