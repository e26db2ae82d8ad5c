"""Interface of an agent: how its configuration is parsed and its CLI is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from securebench.agents.harness_config import (
    COMMON_KEYS,
    LATEST,
    PROVIDER_KEYS,
    HarnessConfig,
    ProviderHarness,
    common_fields,
    provider_fields,
)
from securebench.agents.providers.endpoint import provider_schema
from securebench.agents.providers.provider import ProviderRules
from securebench.benchmark.reading.shape import Shape
from securebench.json_values import Schema, object_of

DUMMY_KEY: Final = "securebench-holds-the-key"
"""API key that a CLI is given. It is worthless: the gateway replaces it with the real one."""

TIMEOUT_SECONDS: Final = 900.0
"""Default time limit of an agent CLI."""

_NAME: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9._+-]+$(?!\n)",
    "description": "a word of letters, digits, '.', '_', '+' and '-' only",
}
_KEYS: Final[Mapping[str, Schema]] = {
    **COMMON_KEYS,
    **PROVIDER_KEYS,
    "version": _NAME,
    "provider": provider_schema(has_choice=False),
}


class EventKind(StrEnum):
    """Kinds of events that an agent reports while it works."""

    SAID = "said"
    STARTED = "started"
    """A command or a tool."""
    ENDED = "ended"
    COMPLETED = "completed"
    """Its turn."""
    FAILED = "failed"
    """Its turn."""


class AgentEvent(NamedTuple):
    """One thing that an agent reports; its values are untrusted.

    Attributes:
        text: A message, a command, or why the turn failed.
        exit_code: Exit code of an ended command, as the agent reports it.
    """

    kind: EventKind
    text: str = ""
    exit_code: object = None


class AgentEventReader(Protocol):
    """Reads the events of one launch, in order."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object of stdout; most have none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCli:
    """The CLI of an agent that works with a model provider.

    Attributes:
        title: Prefix of lines about the agent.
        provider: The API that it uses.
        key: Environment variable of the provider's key, and its entry in the Secret.
        key_aliases: Other variables from which the CLI reads a key.
        overlay_path: Absolute path at which the overlay image is mounted.
        home: Absolute path of its home folder.
        search: Folders appended to the image's PATH.
        command: Returns the argv of one turn from the harness, the prompt and the provider's base
            URL as seen by the agent, without a path. Standard input is closed.
        preflight: Argv that must succeed before the agent's turn (contract 12.3).
        environment: Returns variables from the harness and that base URL; they override those of
            the image and of the tester.
        events: Creates a reader for the stdout of one launch.
        invocation: Substring by which a command harness is recognised as starting this CLI; may be
            empty.
    """

    title: str
    provider: ProviderRules
    key: str
    key_aliases: tuple[str, ...] = ()
    overlay_path: str
    home: str
    search: tuple[str, ...] = ()
    command: Callable[[ProviderHarness, str, str], tuple[str, ...]]
    preflight: tuple[str, ...]
    environment: Callable[[ProviderHarness, str], Mapping[str, str]]
    events: Callable[[], AgentEventReader]
    invocation: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Variables that may hold the provider's key, the Secret's entry first."""
        return (self.key, *self.key_aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One harness type.

    Attributes:
        name: Value of ``harness.type``; overlay versions are listed under it.
        config: Schema of ``harness.config``.
        read: Builds the harness from a normalised configuration; raises ConfigErrors if keys
            contradict each other.
        is_audit: Whether it audits a pack instead of being evaluated itself.
        cli: Present if a provider's CLI runs in the task's image.
    """

    name: str
    config: Shape
    read: Callable[[Mapping[str, Any]], HarnessConfig]
    is_audit: bool = False
    cli: AgentCli | None = None


def cli_agent(name: str, cli: AgentCli, default_model: str | None = None) -> Agent:
    """Return an agent with the configuration common to all CLIs.

    Args:
        name: Harness type.
        cli: The CLI.
        default_model: Default of ``model``; None makes ``model`` required.
    """

    def read(config: Mapping[str, Any]) -> HarnessConfig:
        vendor = {"provider_host": cli.provider.host}
        return ProviderHarness(
            type=name,
            model=config.get("model", default_model),
            version=config.get("version", LATEST),
            **vendor | provider_fields(config, cli.provider.api),
            **common_fields(config, timeout=TIMEOUT_SECONDS),
        )

    return Agent(name=name, config=_shape(default_model), read=read, cli=cli)


def _shape(default_model: str | None) -> Shape:
    if default_model is None:
        return Shape(object_of(_KEYS, "model"))
    return Shape(object_of({**_KEYS, "model": {**_KEYS["model"], "default": default_model}}))
