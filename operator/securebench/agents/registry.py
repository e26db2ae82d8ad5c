"""All agents by harness type. An unknown name is an error, never a default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.agents import claude_code, codex, command
from securebench.agents.harness_config import normal_config
from securebench.core.digests import json_digest
from securebench.core.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from securebench.agents.agent import Agent, AgentCli
    from securebench.agents.harness_config import HarnessConfig
    from securebench.agents.providers.provider import ProviderRules

AGENTS: Final[dict[str, Agent]] = {
    agent.name: agent
    for agent in (
        command.AGENT,
        codex.AGENT,
        claude_code.AGENT,
        command.NOP_AGENT,
        command.ORACLE_AGENT,
    )
}
"""The one registry; everything that depends on a harness type asks here."""


def wrong_type() -> str:
    """Return what is said of a harness type that nobody knows."""
    return f"harness.type must be one of {', '.join(sorted(AGENTS))}"


def agent_named(name: str) -> Agent:
    """Return an agent.

    Raises:
        ConfigErrors: There is none of that name.
    """
    if name not in AGENTS:
        raise ConfigErrors([ConfigError(wrong_type(), key=("harness", "type"))])
    return AGENTS[name]


def cli_named(name: str) -> AgentCli:
    """Return the CLI of an agent that has one.

    Raises:
        ConfigErrors: There is no agent of that name.
        ConfigError: It has no CLI.
    """
    cli = agent_named(name).cli
    if cli is None:
        raise ConfigError(f"harness type {name} has no command line tool", key=("harness", "type"))
    return cli


def cli_agents() -> Iterator[tuple[str, AgentCli]]:
    """Yield the agents with a CLI and a model provider by name, in the order of the registry."""
    for name, agent in AGENTS.items():
        if agent.cli is not None:
            yield name, agent.cli


def provider_named(name: str) -> ProviderRules:
    """Return the API of a model provider.

    Raises:
        ConfigError: No agent speaks it.
    """
    for _, cli in cli_agents():
        if cli.provider.name == name:
            return cli.provider
    raise ConfigError(f"no agent works with a model provider {name!r}")


def harness_config(type: str, config: Mapping[str, object]) -> HarnessConfig:  # noqa: A002 - API name
    """Check the configuration of a harness.

    Returns:
        The harness of that type with its defaults.

    Raises:
        ConfigErrors: Every defect; each error's fact ``key`` is the path of its key.
    """
    agent = agent_named(type)
    return agent.read(normal_config(config, agent.config))


def forwarded(harness_type: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the variables of ``harness.env`` that may enter a harness Pod (contract 12.4).

    Args:
        harness_type: A provider's key goes to its gateway only; a command may have any.
        names: As the tester lists them.

    Raises:
        ConfigErrors: There is no agent of that name.
    """
    if agent_named(harness_type).cli is None:
        return tuple(names)
    hidden = {key for _, cli in cli_agents() for key in cli.keys}
    return tuple(name for name in names if name not in hidden)


def key_variables(name: str) -> tuple[str, ...]:
    """Return a variable and those that stand for it where it is empty (contract 12.3)."""
    for _, cli in cli_agents():
        if name in cli.keys:
            return (name, *(other for other in cli.keys if other != name))
    return (name,)


def harness_digest(
    harness: HarnessConfig, env: Iterable[str] = (), *, audit: bool = False, answers: str = ""
) -> str:
    """Return ``sha256:`` and the hex digest over type, variable names, config and domains.

    Results of an audit differ from all others, so that no resume joins them.

    Args:
        harness: With its defaults filled in, so that a spelled-out default changes nothing.
        env: Names of ``harness.env``; order and repetitions do not matter, values are not read
            and keys of a provider that its gateway keeps do not count.
        audit: Whether the run examines a pack.
        answers: Digest of the reference answers that an oracle hands in, or empty.
    """
    content: dict[str, object] = {
        "type": harness.type,
        "env": sorted(set(forwarded(harness.type, env))),
        "config": harness.filled_config(),
        "domains": list(harness.effective_domains),
    }
    if audit:
        content |= {"audit": True, "answers": answers}
    return json_digest(content)
