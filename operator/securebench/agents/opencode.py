"""opencode, with any provider of Chat Completions, configured by argv and environment variables.

Its glibc comes with it and the loader starts it, so it runs in any image with a shell. Source:
providers 12.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from securebench.agents.harness import DUMMY_KEY, AgentCli, AgentEvent, EventKind, cli_agent
from securebench.agents.providers.openai_chat import OPENAI_CHAT
from securebench.json_values import object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.agents.harness import ProviderHarness

_OVERLAY: Final = "/opt/securebench/opencode"
_HOME: Final = "/opt/securebench/opencode-home"
_PROGRAM: Final = (
    f"{_OVERLAY}/lib/ld-linux.so",
    "--library-path",
    f"{_OVERLAY}/lib",
    f"{_OVERLAY}/opencode",
)
_KEY: Final = "OPENAI_API_KEY"
_PROVIDER: Final = "securebench"
"""Name of the only provider in its configuration."""

_SHELL: Final = "bash"
"""Its tool for commands, whatever the shell is."""


def _command(harness: ProviderHarness, prompt: str, _base_url: str) -> tuple[str, ...]:
    """Return its argv; a title of ours saves the request by which it would make one."""
    return (
        *_PROGRAM,
        "run",
        "--model",
        f"{_PROVIDER}/{harness.model}",
        "--format",
        "json",
        "--title",
        _PROVIDER,
        "--",
        prompt,
    )


def _configuration(harness: ProviderHarness, base_url: str) -> Mapping[str, object]:
    """Return its configuration: one model, no question to anybody, no copy of the checkout."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{base_url}/v1", "apiKey": DUMMY_KEY},
        "models": {harness.model: {}},
    }
    return {
        "enabled_providers": [_PROVIDER],
        "provider": {_PROVIDER: provider},
        "permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"},
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
    }


def _environment(harness: ProviderHarness, base_url: str) -> Mapping[str, str]:
    """Return its variables.

    It installs a package from npm into every folder of its configuration that it may write to, so
    that folder is the overlay's. It would unpack its index of files into each launch's home; the
    overlay's ripgrep searches instead, which it would otherwise download.
    """
    return {
        "HOME": _HOME,
        "TMPDIR": _HOME,
        "XDG_CONFIG_HOME": f"{_OVERLAY}/config",
        _KEY: DUMMY_KEY,
        "OPENCODE_CONFIG_CONTENT": json.dumps(_configuration(harness, base_url)),
        "OPENCODE_DISABLE_FFF": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    }


class _OpencodeEvents:
    """Events of ``opencode run --format json``: a command is reported once it has ended."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object."""
        part = object_in(event.get("part"))
        match event.get("type"):
            case "text":
                yield AgentEvent(EventKind.SAID, text_in(part.get("text")))
            case "tool_use":
                command, exit_code = _tool_call(part), _exit_code(part)
                yield AgentEvent(EventKind.STARTED, command)
                yield AgentEvent(EventKind.ENDED, command, exit_code)
            case "step_finish" if part.get("reason") != "tool-calls":
                yield AgentEvent(EventKind.COMPLETED)
            case "error":
                error = object_in(event.get("error"))
                message = text_in(object_in(error.get("data")).get("message"))
                yield AgentEvent(EventKind.FAILED, message or text_in(error.get("name")))


def _tool_call(part: Mapping[str, object]) -> str:
    given = object_in(object_in(part.get("state")).get("input"))
    command = given.get("command")
    if part.get("tool") == _SHELL and isinstance(command, str):
        return command
    return f"{text_in(part.get('tool'))} {json.dumps(given, sort_keys=True)}"


def _exit_code(part: Mapping[str, object]) -> object:
    """Return the exit code of a command; of another tool 0, or 1 where it failed."""
    state = object_in(part.get("state"))
    told = object_in(state.get("metadata")).get("exit")
    return told if isinstance(told, int) else int(state.get("status") != "completed")


AGENT: Final = cli_agent(
    "opencode",
    AgentCli(
        title="opencode",
        provider=OPENAI_CHAT,
        key=_KEY,
        overlay_path=_OVERLAY,
        home=_HOME,
        search=(f"{_OVERLAY}/bin",),
        command=_command,
        preflight=(*_PROGRAM, "--version"),
        environment=_environment,
        events=_OpencodeEvents,
    ),
)
