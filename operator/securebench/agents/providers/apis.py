"""The APIs of model providers that a tester may choose by name for a provider's URL."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.anthropic import ANTHROPIC
from securebench.agents.providers.openai import OPENAI
from securebench.agents.providers.openai_chat import OPENAI_CHAT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.providers.provider import ProviderRules

APIS: Final[Mapping[str, ProviderRules]] = MappingProxyType(
    {rules.api: rules for rules in (OPENAI_CHAT, OPENAI, ANTHROPIC)}
)
"""By ``harness.config.provider.api``; the first is the default of command harnesses."""
