"""Agents by harness type, ours and those of other packages. An unknown name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from securebench.agents import claude_code, codex, command, mini_swe_agent, opencode
from securebench.agents.harness import normal_config
from securebench.digests import json_digest
from securebench.errors import ConfigError, ConfigErrors
from securebench.json_values import text_in
from securebench.plugins import PluginRegistry
from securebench.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.agents.harness import Agent, AgentCli, HarnessConfig

AGENTS: Final[PluginRegistry[Agent]] = PluginRegistry(
    "securebench.agents",
    {
        agent.name: agent
        for agent in (
            command.AGENT,
            codex.AGENT,
            claude_code.AGENT,
            mini_swe_agent.AGENT,
            opencode.AGENT,
            command.NOP_AGENT,
            command.ORACLE_AGENT,
        )
    },
)
"""The only registry; everything that depends on the harness type looks it up here."""


def unknown_type_message(name: object) -> str:
    """Return the error message for an unknown harness type."""
    hint = did_you_mean([name], AGENTS) if isinstance(name, str) else ""
    own = "; for another agent write command, with harness.config.command and provider"
    return f"harness.type must be one of {', '.join(sorted(AGENTS))}{hint or own}"


def agent_named(name: str) -> Agent:
    """Return the agent with that harness type.

    Raises:
        ConfigErrors: There is none.
    """
    if name not in AGENTS:
        raise ConfigErrors([ConfigError(unknown_type_message(name), key=("harness", "type"))])
    return AGENTS[name]


def cli_named(name: str) -> AgentCli:
    """Return the CLI of an agent.

    Raises:
        ConfigErrors: There is no agent of that name.
        ConfigError: The agent has no CLI.
    """
    cli = agent_named(name).cli
    if cli is None:
        raise ConfigError(f"harness type {name} has no command line tool", key=("harness", "type"))
    return cli


def cli_agents() -> Iterator[tuple[str, AgentCli]]:
    """Yield the agents that have a CLI, with their names, in registry order."""
    for name, agent in AGENTS.items():
        if agent.cli is not None:
            yield name, agent.cli


def harness_config(type: str, config: Mapping[str, object]) -> HarnessConfig:  # noqa: A002 - API name
    """Validate the configuration of a harness and fill in defaults.

    Args:
        config: ``harness.config`` as written.

    Raises:
        ConfigErrors: Lists all defects; each error's fact ``key`` is the path of its key.
    """
    agent = agent_named(type)
    return agent.read(normal_config(config, agent.config))


def provider_key(harness_type: str, config: Mapping[str, object]) -> str:
    """Return the variable with the provider's key, which is its entry in the run's Secret.

    Args:
        config: ``harness.config`` as written.

    Returns:
        Empty for a harness without a provider, and for a provider that needs no key.

    Raises:
        ConfigErrors: There is no agent of that name.
    """
    given, cli = config.get("provider"), agent_named(harness_type).cli
    if isinstance(given, Mapping):
        return text_in(given.get("key"))
    return "" if cli is None else cli.key


def forwarded_env(
    harness_type: str, names: Iterable[str], config: Mapping[str, object]
) -> tuple[str, ...]:
    """Return the variables of ``harness.env`` that are passed to harness Pods (contract 12.4).

    The key of the run's provider is not among them: it goes only to the gateway.

    Args:
        names: Variables in ``harness.env``.
        config: ``harness.config``.

    Raises:
        ConfigErrors: There is no agent of that name.
    """
    hidden = {provider_key(harness_type, config)}
    if agent_named(harness_type).cli is not None:
        hidden |= {key for _, cli in cli_agents() for key in cli.keys}
    return tuple(name for name in names if name not in hidden)


def key_variables(name: str, config: Mapping[str, object]) -> tuple[str, ...]:
    """Return a key's variable and the aliases that are used if it is empty (contract 12.3).

    The key of a provider that is named by its URL has no alias: another one's key would go there.
    """
    if "provider" in config:
        return (name,)
    for _, cli in cli_agents():
        if name in cli.keys:
            return (name, *(other for other in cli.keys if other != name))
    return (name,)


def harness_digest(
    harness: HarnessConfig, env: Iterable[str] = (), *, audit: bool = False, answers: str = ""
) -> str:
    """Return ``sha256:`` and the hex digest over type, variable names, config and domains.

    Audits have different digests from other runs, so that neither can resume the other.

    Args:
        harness: Digested with defaults filled in, so that spelling out a default changes nothing.
        env: Names in ``harness.env``; order and duplicates do not matter, values are not read, and
            the provider's key does not count.
        audit: Whether the run audits a pack.
        answers: Digest of the reference answers that an oracle hands in, or empty.
    """
    config = harness.filled_config()
    content: dict[str, object] = {
        "type": harness.type,
        "env": sorted(set(forwarded_env(harness.type, env, config))),
        "config": config,
        "domains": list(harness.effective_domains),
    }
    if audit:
        content |= {"audit": True, "answers": answers}
    return json_digest(content)
