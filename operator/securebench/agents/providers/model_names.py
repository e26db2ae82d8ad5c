"""Which model names switch on tools of the provider.

Vendors and routers sell some models that search or run code by themselves, and take endings of a
name (``model:online``) as switches. Only whole names and whole endings count: a part of a word says
nothing about a model. Endings have no common grammar, so one that is neither a version of weights
nor a known variant is refused, unless the tester names exactly this model.

Source: contract 11.4; decision 0109.
"""

from __future__ import annotations

import re
from typing import Final

HOSTED_MODELS: Final = frozenset(
    {
        "compound",
        "compound-beta",
        "compound-beta-mini",
        "compound-mini",
        "gpt-4o-mini-search-preview",
        "gpt-4o-search-preview",
        "gpt-5-search-api",
        "o3-deep-research",
        "o4-mini-deep-research",
        "sonar",
        "sonar-deep-research",
        "sonar-pro",
        "sonar-reasoning",
        "sonar-reasoning-pro",
    }
)
"""Models of OpenAI, Perplexity and Groq that search or run code by themselves."""
HOSTED_ENDINGS: Final = frozenset(
    {
        "browse",
        "browser",
        "code-interpreter",
        "deep-research",
        "grounded",
        "grounding",
        "memory",
        "online",
        "plugins",
        "research",
        "search",
        "tools",
        "web",
        "web-search",
        "websearch",
    }
)
"""Endings by which routers add a search, a memory or other tools."""
_VARIANTS: Final = frozenset(
    {
        *("alpha", "base", "beta", "cerebras", "chat", "cheapest", "cloud", "code", "cohere"),
        *("deepinfra", "default", "exacto", "extended", "fast", "fastest", "featherless-ai"),
        *("fireworks-ai", "floor", "free", "groq", "hf-inference", "high", "hyperbolic"),
        *("instruct", "it", "large", "latest", "low", "max", "medium", "micro", "mini", "nano"),
        *("nebius", "nitro", "novita", "nscale", "nvidia", "ovhcloud", "preferred", "preview"),
        *("pro", "python", "quality", "sambanova", "scaleway", "small", "stable", "standard"),
        *("tee", "text", "think", "thinking", "tiny", "together", "ud", "vision", "xl"),
        "zai-org",
    }
)
"""Endings that choose weights, speed, price or a server, of Ollama and of routers."""
_VERSION: Final = re.compile(
    r"(?:[aev]|i?q|b?f|fp|int|mx?fp|nvfp|w|ud-i?q|rev)?[0-9][a-z0-9._]*(?:-[a-z0-9._]+)*"
)
"""Sizes, quantisations, versions and dates: ``8b``, ``32b-instruct-q4_K_M``, ``v1.5``, ``0``."""
_DATE: Final = re.compile(r"-[0-9]{4}-?[0-9]{2}-?[0-9]{2}")
_OWNERS: Final = frozenset({"arn", "ft"})
"""Beginnings of names whose further parts are ids."""
_SERVERS: Final = frozenset(
    {
        *("anthropic", "azure", "bedrock", "cerebras", "deepseek", "fireworks", "gemini"),
        *("google", "groq", "hf", "huggingface", "mistral", "ollama", "openai", "openrouter"),
        *("together", "vertex_ai", "vllm", "xai"),
    }
)
"""Beginnings that name a server; the model's name follows."""

_ADVICE: Final = "the tester may allow it by harness.config.allow_external_tools"


def model_problem(name: str, named: str = "") -> str:
    """Return why a model is not allowed without tools of the provider, or an empty text.

    Args:
        name: The model.
        named: The model that the tester names, or empty; its ending may be any that is not hosted.
    """
    first, *endings = name.lower().split(":")
    if endings and first in _SERVERS:
        first, *endings = endings
    if _DATE.sub("", first.rpartition("/")[2]) in HOSTED_MODELS:
        return f"models that use tools of their provider by themselves are not allowed; {_ADVICE}"
    hosted = [ending for ending in endings if _is_hosted(ending)]
    if hosted:
        return f"the ending :{_word(hosted[0])} adds tools of the provider; {_ADVICE}"
    known = first.rpartition("/")[2] in _OWNERS or name == named
    strange = [] if known else [ending for ending in endings if not _is_known(ending)]
    if strange:
        return (
            f"the ending :{_word(strange[0])} of the model's name is not known; the tester may name"
            " the model in harness.config.model, or set harness.config.allow_external_tools"
        )
    return ""


def _is_hosted(ending: str) -> bool:
    words = re.split("[/+,&=]", ending.strip())
    first = words[0].strip()
    return first in HOSTED_ENDINGS or _DATE.sub("", words[-1]) in HOSTED_MODELS


def _is_known(ending: str) -> bool:
    # A port of a registry, or a server, comes before a folder.
    tag = ending.partition("/")[0] if re.match("[0-9]{1,5}/", ending) else ending
    return not ending or tag in _VARIANTS or _VERSION.fullmatch(tag) is not None


def _word(ending: str) -> str:
    return ending if re.fullmatch("[a-z0-9_.-]{1,32}", ending) else "(unnamed)"
