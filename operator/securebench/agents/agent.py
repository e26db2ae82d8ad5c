"""What an agent is to SecureBench: how its configuration is read and how its CLI is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from securebench.agents.harness_config import (
    COMMON_KEYS,
    LATEST,
    HarnessConfig,
    ProviderHarness,
    common_fields,
)
from securebench.agents.providers.provider import ProviderRules
from securebench.benchmark.families.fields import BOOLEAN, Schema, object_of
from securebench.benchmark.reading.shape import Shape

DUMMY_KEY: Final = "securebench-holds-the-key"
"""What a CLI takes for its key. It opens nothing: the gateway puts the real one in."""

TIMEOUT_SECONDS: Final = 900.0
"""Time limit of an agent with a CLI where neither task nor tester gives one."""

_NAME: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9._+-]+$(?!\n)",
    "description": "a word of letters, digits, '.', '_', '+' and '-' only",
}
_COUNT: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 1,
    "description": "a positive whole number",
}
_KEYS: Final[Mapping[str, Schema]] = {
    **COMMON_KEYS,
    "model": _NAME,
    "version": _NAME,
    "budget": object_of({"requests": _COUNT, "tokens": _COUNT}),
    "allow_external_tools": BOOLEAN,
}


class EventKind(StrEnum):
    """What an agent reports while it works."""

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
        text: What was said, the command, or why the turn failed.
        exit_code: Of what ended, as the agent has it.
    """

    kind: EventKind
    text: str = ""
    exit_code: object = None


class AgentEventReader(Protocol):
    """Reads the events of one launch, in their order."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield what one JSON object of stdout reports; most report nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCli:
    """The command line tool of an agent that works with a model provider.

    Attributes:
        title: What lines about the agent begin with.
        key: Variable of the provider's key, also the entry of the Secret with it.
        key_aliases: Other variables that the tool takes a key from.
        overlay_path: Where the tool's image is mounted, an absolute folder.
        home: Its home, an absolute folder.
        search: Folders with programs for its commands, looked into after the image's own.
        command: Returns the argv of one turn from the harness, the prompt and the base URL of the
            provider as the agent reaches it, without a path. Standard input is closed.
        preflight: Argv that must succeed before the tool is started (contract 12.3).
        environment: Returns its variables from that base URL; they win over those of the image and
            of the tester.
        events: Makes what reads the stdout of one launch.
        invocation: Text of a command harness's command that tells that it starts this tool; empty
            where nobody does.
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
    environment: Callable[[str], Mapping[str, str]]
    events: Callable[[], AgentEventReader]
    invocation: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Variables that may hold the provider's key; the Secret's entry is the first."""
        return (self.key, *self.key_aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One harness type.

    Attributes:
        name: As ``harness.type``; versions of overlays are listed under it.
        config: Shape of ``harness.config``.
        read: Returns the harness of a configuration in normal form; raises ConfigErrors where keys
            do not go together.
        is_audit: Whether it examines a pack instead of being examined.
        cli: Present where a CLI of ours runs in the task's image.
    """

    name: str
    config: Shape
    read: Callable[[Mapping[str, Any]], HarnessConfig]
    is_audit: bool = False
    cli: AgentCli | None = None


def cli_agent(name: str, cli: AgentCli, default_model: str | None = None) -> Agent:
    """Return an agent whose configuration is that of every CLI.

    Args:
        name: Harness type.
        cli: Its tool.
        default_model: Used where the tester names none; None: the tester must.
    """

    def read(config: Mapping[str, Any]) -> HarnessConfig:
        budget = config.get("budget", {})
        return ProviderHarness(
            type=name,
            provider_host=cli.provider.host,
            model=config.get("model", default_model),
            version=config.get("version", LATEST),
            max_requests=budget.get("requests"),
            max_tokens=budget.get("tokens"),
            allow_external_tools=config.get("allow_external_tools", False),
            **common_fields(config, timeout=TIMEOUT_SECONDS),
        )

    shape = Shape(object_of(_KEYS, *(("model",) if default_model is None else ())))
    return Agent(name=name, config=shape, read=read, cli=cli)
