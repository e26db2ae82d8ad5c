"""OpenAI's codex, configured by argv and environment variables only.

Source: providers 3, measured with the version that ``images/overlays/packages.lock`` pins.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from securebench.agents.harness import (
    DUMMY_KEY,
    AgentCli,
    AgentEvent,
    EventKind,
    cli_agent,
    positional,
)
from securebench.agents.providers.openai import OPENAI
from securebench.json_values import object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.agents.harness import ProviderHarness

_OVERLAY: Final = "/opt/securebench/codex"
_HOME: Final = "/opt/securebench/codex-home"
_PROGRAM: Final = f"{_OVERLAY}/bin/codex"
_KEY: Final = "OPENAI_API_KEY"
_OWN_KEY: Final = "CODEX_API_KEY"

_CONNECT_RETRIES: Final = 4
_STREAM_RETRIES: Final = 5
"""With these it gives up after 30 s if the provider only answers 500, after 27 s if unreachable."""


def _command(harness: ProviderHarness, prompt: str, base_url: str) -> tuple[str, ...]:
    flags = (word for setting in _settings(harness, base_url) for word in ("-c", setting))
    return (
        _PROGRAM,
        "exec",
        "--model",
        harness.model,
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--ephemeral",
        *flags,
        *positional(prompt),
    )


def _settings(harness: ProviderHarness, base_url: str) -> tuple[str, ...]:
    """Return its configuration as TOML; defining a custom provider disables websockets.

    A TOML basic string of printable ASCII has the same syntax as a JSON string.
    """
    provider = ",".join(
        (
            'name="securebench"',
            f"base_url={json.dumps(f'{base_url}/v1')}",
            f"env_key={json.dumps(_KEY)}",
            'wire_api="responses"',
            f"request_max_retries={_CONNECT_RETRIES}",
            f"stream_max_retries={_STREAM_RETRIES}",
        )
    )
    hosted = () if harness.allow_external_tools else ('web_search="disabled"',)
    return (
        f"model_providers.securebench={{{provider}}}",
        'model_provider="securebench"',
        *hosted,
        "check_for_update_on_startup=false",
        "analytics.enabled=false",
        "features.plugins=false",
        "features.apps=false",
        "features.goals=false",
        "features.unbounded_connection_retries=false",
        "agents.enabled=false",
        "shell_environment_policy.ignore_default_excludes=false",
    )


def _environment(_harness: ProviderHarness, _base_url: str) -> Mapping[str, str]:
    return {"HOME": _HOME, "CODEX_HOME": _HOME, _KEY: DUMMY_KEY, _OWN_KEY: DUMMY_KEY}


class _CodexEvents:
    """Events of ``codex exec --json``."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object."""
        item = object_in(event.get("item"))
        command = text_in(item.get("command"))
        match event.get("type"), item.get("type"):
            case "turn.completed", _:
                yield AgentEvent(EventKind.COMPLETED)
            case "turn.failed", _:
                message = text_in(object_in(event.get("error")).get("message"))
                yield AgentEvent(EventKind.FAILED, message)
            case "item.started", "command_execution":
                yield AgentEvent(EventKind.STARTED, command)
            case "item.completed", "command_execution":
                yield AgentEvent(EventKind.ENDED, command, item.get("exit_code"))
            case "item.completed", "agent_message":
                yield AgentEvent(EventKind.SAID, text_in(item.get("text")))


AGENT: Final = cli_agent(
    "codex",
    AgentCli(
        title="codex",
        provider=OPENAI,
        key=_KEY,
        key_aliases=(_OWN_KEY,),
        overlay_path=_OVERLAY,
        home=_HOME,
        search=(f"{_OVERLAY}/codex-path",),
        command=_command,
        preflight=(_PROGRAM, "--version"),
        environment=_environment,
        events=_CodexEvents,
        invocation="codex exec",
    ),
)
