"""Secrets of a run: values for its harness Pods, and the provider key for its gateway; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securebench.agents.registry import agent_named, forwarded_env, key_variables, provider_key
from securebench.client.submit.tester_config import HarnessSection
from securebench.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SecretNames:
    """Names of a run's Secrets; empty if not needed.

    Attributes:
        harness: Holds the values of ``harness.env``, which harness Pods receive.
        provider: Holds the model provider's key; only the gateway mounts it.
    """

    harness: str
    provider: str


def secret_names(run: str, harness: HarnessSection) -> SecretNames:
    """Return the names of a run's Secrets, derived from the run's name."""
    return SecretNames(
        harness=run if _forwarded(harness) else "",
        provider=f"{run}-provider" if provider_key(harness.type, harness.config) else "",
    )


def secret_values(
    run: str, harness: HarnessSection, environ: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the content of a run's Secrets by Secret name.

    Args:
        run: Name of the run.
        harness: Names the variables.
        environ: Environment of this process, including the env file.

    Raises:
        ConfigError: Variables of an agent are not set; lists all of them. A command harness runs
            without variables that are not set (contract 12.2, 12.4).
    """
    names = secret_names(run, harness)
    found: dict[str, dict[str, str]] = {}
    _require(harness, environ)
    if names.provider:
        key = provider_key(harness.type, harness.config)
        found[names.provider] = {key: _value(key, harness, environ)}
    if names.harness:
        variables = _forwarded(harness)
        found[names.harness] = {name: environ[name] for name in variables if environ.get(name)}
    return found


def without_value(harness: HarnessSection, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in ``harness.env`` that are not set, without duplicates, in order."""
    return tuple(dict.fromkeys(name for name in harness.env if not environ.get(name)))


def _require(harness: HarnessSection, environ: Mapping[str, str]) -> None:
    key = provider_key(harness.type, harness.config)
    own = () if agent_named(harness.type).cli is None else harness.env
    needed = dict.fromkeys((*own, *([key] if key else [])))
    missing: Sequence[str] = [name for name in needed if not _value(name, harness, environ)]
    if missing:
        raise ConfigError(
            f"harness type {harness.type} needs {', '.join(missing)}: set it in the environment"
            " or in the env file",
            key=("harness", "env"),
        )


def _forwarded(harness: HarnessSection) -> tuple[str, ...]:
    return forwarded_env(harness.type, harness.env, harness.config)


def _value(name: str, harness: HarnessSection, environ: Mapping[str, str]) -> str:
    names = key_variables(name, harness.config)
    return next(filter(None, (environ.get(each) for each in names)), "")
