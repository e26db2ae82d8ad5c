"""``harness.config``: what there is in it, and how it is read (contract 3.1, 21.7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from securebench.agents.allowed_domains import normalize_domains
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.paths import PathError, author_path
from securebench.benchmark.resources import Component
from securebench.core.errors import ConfigError
from securebench.core.spelling import meant

NOP: Final = "nop"
ORACLE: Final = "oracle"
SHELL = ("sh", "-lc")
STDOUT: Final = "stdout"
GIT_DIFF: Final = "git_diff"
EXTRACTIONS: Final = (STDOUT, GIT_DIFF)
"""Of a command on a repo_patch task; the first is the default (decision 0027)."""
ORACLE_FOLDER = "/opt/securebench/oracle"
"""In the harness container of an oracle: the task's reference answer as one file, named by form."""
AUDIT_KEYS: Final = ("task_file", "timeout_seconds")
COMMON_KEYS: Final = (*AUDIT_KEYS, "allowed_domains")
"""Of ``harness.config``: those of an audit's harness, and those of every other."""
_BUDGET_KEYS: Final = ("requests", "tokens")
_NAME = re.compile(r"[A-Za-z0-9._+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessConfig:
    """What all harness types have.

    Args:
        type: Name of an agent of ``registry.AGENTS``.
        task_file: Workspace-relative path of the task file.
        timeout_seconds: Limit of the tester or the type's default; None for none.
        is_default_timeout: Whether the tester left the limit to the type.
        allowed_domains: Normalized, in order, without duplicates.
        provider_host: Host of its model provider, or empty.
    """

    type: str
    task_file: str = TASK_FILE
    timeout_seconds: float | None = None
    is_default_timeout: bool = True
    allowed_domains: tuple[str, ...] = ()
    provider_host: str = ""

    @property
    def effective_domains(self) -> tuple[str, ...]:
        """Return the provider's host and the configured domains, without duplicates."""
        hosts = (self.provider_host, *self.allowed_domains)
        return tuple(dict.fromkeys(host for host in hosts if host))

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in."""
        return {
            "task_file": self.task_file,
            "timeout_seconds": self.timeout_seconds,
            "allowed_domains": list(self.allowed_domains),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHarness(HarnessConfig):
    """A command in the task image.

    Args:
        command: A string for the shell, or an argv.
        artifact_path: Workspace-relative file that is the candidate, or None.
        extraction: What is the candidate of a repo_patch task: what the command prints, or
            ``git_diff``, what it changed in the checkout.
    """

    type: str = "command"
    command: str | tuple[str, ...]
    artifact_path: str | None = None
    extraction: str = STDOUT

    @property
    def argv(self) -> tuple[str, ...]:
        """Return what is executed: a string runs as ``sh -lc``."""
        return (*SHELL, self.command) if isinstance(self.command, str) else self.command

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in.

        ``extraction`` stands there only where it is not the default: digests of harnesses that do
        not know it stay.
        """
        command = self.command if isinstance(self.command, str) else list(self.command)
        extraction = {} if self.extraction == STDOUT else {"extraction": self.extraction}
        return {
            **HarnessConfig.filled_config(self),
            "command": command,
            "artifact_path": self.artifact_path,
            **extraction,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHarness(CommandHarness):
    """What stands in for an agent while a pack is examined; its command is ours.

    ``nop`` ends at once with success and leaves nothing. ``oracle`` hands in the reference answer
    that lies as a file in ``ORACLE_FOLDER``; nothing of its text is in the Pod object.
    """

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in."""
        config = HarnessConfig.filled_config(self)
        return {key: config[key] for key in AUDIT_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderHarness(HarnessConfig):
    """The command line tool of a model provider.

    Args:
        model: Name of the model.
        version: Version of the tool, or ``latest``.
        max_requests: Budget of model calls for one launch, or None.
        max_tokens: Budget of tokens for one launch, or None.
        allow_external_tools: Whether the provider's own tools may be used.
    """

    model: str
    version: str = "latest"
    max_requests: int | None = None
    max_tokens: int | None = None
    allow_external_tools: bool = False

    def filled_config(self) -> dict[str, object]:
        """Return the configuration as JSON with every default filled in."""
        return {
            **HarnessConfig.filled_config(self),
            "model": self.model,
            "version": self.version,
            "budget": {"requests": self.max_requests, "tokens": self.max_tokens},
            "allow_external_tools": self.allow_external_tools,
        }


class ConfigReader:
    """Reads one ``harness.config`` and collects its defects.

    Each method returns what a key holds; where it does not hold, its defect is noted and a
    harmless value comes back.

    Args:
        config: As written.

    Attributes:
        errors: In the order in which the keys were read; each fact ``key`` is the path of a key.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config
        self.errors: list[ConfigError] = []

    def fail(self, message: str, key: tuple[str, ...]) -> None:
        """Add an error to those that are reported together."""
        self.errors.append(ConfigError(message, key=key))

    def fail_at(self, name: str, problem: str) -> None:
        """Note a defect of one key."""
        self.fail(f"harness.config.{name} {problem}", ("harness", "config", *name.split(".")))

    def has(self, name: str) -> bool:
        """Tell whether a key is there."""
        return name in self._config

    def only(self, keys: tuple[str, ...]) -> None:
        """Note every key that is not listed."""
        unknown = sorted(str(key) for key in self._config if key not in keys)
        if unknown:
            names = f"{', '.join(unknown)}{meant(unknown, keys)}"
            message = f"harness.config contains unsupported field(s): {names}"
            self.fail(message, ("harness", "config", unknown[0]))

    def command(self) -> str | tuple[str, ...] | None:
        """Return the command, None where there is none."""
        value = self._config.get("command")
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list | tuple) and value and all(map(_is_text, value)):
            return tuple(value)
        wanted = "must be a non-empty string or a non-empty list of non-empty strings"
        self.fail_at("command", wanted if self.has("command") else "is required")
        return None

    def path(self, name: str) -> str | None:
        """Return a workspace-relative path, or None."""
        value = self._config.get(name)
        if value is None:
            return None
        try:
            return author_path(value, Component.AGENT, f"harness.config.{name}")
        except PathError as error:
            self.fail(error.reason, ("harness", "config", name))
            return None

    def timeout(self, *, default: float | None) -> float | None:
        """Return seconds, None for no limit."""
        value = self._config.get("timeout_seconds", default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail_at("timeout_seconds", "must be a positive number")
            return None
        if not isfinite(value) or value <= 0:
            self.fail_at("timeout_seconds", "must be a positive number")
            return None
        return float(value)

    def domains(self) -> tuple[str, ...]:
        """Return the normalized domains."""
        value = self._config.get("allowed_domains", [])
        if not isinstance(value, list | tuple):
            self.fail_at("allowed_domains", "must be a list of strings")
            return ()
        try:
            return normalize_domains(value)
        except ConfigError as error:
            self.fail(f"harness.config.{error.reason}", ("harness", "config", "allowed_domains"))
            return ()

    def name(self, key: str, *, default: str | None) -> str:
        """Return the name of a model or a version."""
        value = self._config.get(key, default)
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
        if not self.has(key):
            self.fail_at(key, "is required")
        else:
            self.fail_at(key, "must hold only letters, digits, '.', '_', '+' and '-'")
        return ""

    def word(self, name: str, known: tuple[str, ...]) -> str:
        """Return one of some words; the first is the default."""
        value = self._config.get(name, known[0])
        if isinstance(value, str) and value in known:
            return value
        self.fail_at(name, f"must be one of {', '.join(known)}")
        return known[0]

    def flag(self, name: str) -> bool:
        """Return a switch; off by default."""
        value = self._config.get(name, False)
        if not isinstance(value, bool):
            self.fail_at(name, "must be a boolean")
        return value is True

    def budget(self) -> tuple[int | None, int | None]:
        """Return the most requests and tokens of one launch, None for no bound."""
        value = self._config.get("budget", {})
        if not isinstance(value, Mapping):
            self.fail_at("budget", "must be an object")
            return None, None
        unknown = sorted(str(key) for key in value if key not in _BUDGET_KEYS)
        if unknown:
            names = f"{', '.join(unknown)}{meant(unknown, _BUDGET_KEYS)}"
            self.fail_at("budget", f"contains unsupported field(s): {names}")
        requests, tokens = (self._count(value, name) for name in _BUDGET_KEYS)
        return requests, tokens

    def _count(self, budget: Mapping[str, object], name: str) -> int | None:
        value = budget.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.fail_at(f"budget.{name}", "must be a positive whole number")
            return None
        return value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
