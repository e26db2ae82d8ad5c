"""Secret values of a run: what its harness Pods get, and the key that its gateway keeps; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securebench.agents.registry import agent_named, cli_named, forwarded, key_variables
from securebench.client.submit.tester_config import HarnessSection
from securebench.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SecretNames:
    """Names of a run's Secrets, empty for one that it does not need.

    Attributes:
        harness: Values of ``harness.env``; they enter the harness Pods.
        provider: Key of the model provider; only the gateway mounts it.
    """

    harness: str
    provider: str


def secret_names(run: str, harness: HarnessSection) -> SecretNames:
    """Return the names of the Secrets of a run with this name."""
    return SecretNames(
        harness=run if forwarded(harness.type, harness.env) else "",
        provider=f"{run}-provider" if agent_named(harness.type).cli is not None else "",
    )


def secret_values(
    run: str, harness: HarnessSection, environ: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the content of every Secret of a run by the Secret's name.

    Args:
        run: Its name.
        harness: Which variables are needed.
        environ: Variables of this process, the env file's among them.

    Raises:
        ConfigError: An agent misses variables; one message lists them all. A command
            goes without those that are not set (contract 12.2, 12.4).
    """
    names = secret_names(run, harness)
    found: dict[str, dict[str, str]] = {}
    if names.provider:
        _require(harness, environ)
        key = cli_named(harness.type).key
        found[names.provider] = {key: _value(key, environ)}
    if names.harness:
        variables = forwarded(harness.type, harness.env)
        found[names.harness] = {name: environ[name] for name in variables if environ.get(name)}
    return found


def without_value(harness: HarnessSection, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of ``harness.env`` that have no value, each once, in order.

    Args:
        harness: Which variables are named.
        environ: Variables of this process, the env file's among them.
    """
    return tuple(dict.fromkeys(name for name in harness.env if not environ.get(name)))


def _require(harness: HarnessSection, environ: Mapping[str, str]) -> None:
    needed = dict.fromkeys((*harness.env, cli_named(harness.type).key))
    missing: Sequence[str] = [name for name in needed if not _value(name, environ)]
    if missing:
        raise ConfigError(
            f"harness type {harness.type} needs {', '.join(missing)}: set it in the environment"
            " or in the env file",
            key=("harness", "env"),
        )


def _value(name: str, environ: Mapping[str, str]) -> str:
    return next(filter(None, (environ.get(each) for each in key_variables(name))), "")
