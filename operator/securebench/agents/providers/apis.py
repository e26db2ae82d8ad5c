"""The APIs of model providers: what the gateway serves, and what a provider's URL may speak."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.anthropic import ANTHROPIC
from securebench.agents.providers.openai import OPENAI
from securebench.agents.providers.openai_chat import OPENAI_CHAT
from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.providers.provider import ProviderRules

APIS: Final[Mapping[str, ProviderRules]] = MappingProxyType(
    {rules.api: rules for rules in (OPENAI_CHAT, OPENAI, ANTHROPIC)}
)
"""By ``harness.config.provider.api``; the first is the default of command harnesses."""

PROVIDERS: Final[dict[str, ProviderRules]] = {rules.name: rules for rules in APIS.values()}
"""By the name under which the gateway serves them; those of agents' own are added here."""


def provider_named(name: str) -> ProviderRules:
    """Return the API of a model provider.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in PROVIDERS:
        raise ConfigError(f"no agent works with a model provider {name!r}")
    return PROVIDERS[name]
