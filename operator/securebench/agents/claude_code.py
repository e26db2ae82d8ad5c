"""Anthropic's Claude Code, configured by argv and environment variables only.

Source: providers 4, measured with the version that ``images/overlays/packages.lock`` pins.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from securebench.agents.harness import (
    DUMMY_KEY,
    AgentCli,
    AgentEvent,
    EventKind,
    cli_agent,
    positional,
)
from securebench.agents.providers.anthropic import ANTHROPIC
from securebench.json_values import object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.agents.harness import ProviderHarness

_OVERLAY: Final = "/opt/securebench/claude-code"
_HOME: Final = "/opt/securebench/claude-home"
_PROGRAM: Final = (
    f"{_OVERLAY}/lib/ld-musl.so.1",
    "--library-path",
    f"{_OVERLAY}/lib",
    f"{_OVERLAY}/claude",
)
"""The vendor's unmodified binary; the loader lets it run in any image, even without a libc."""
_KEY: Final = "ANTHROPIC_API_KEY"

_RETRIES: Final = 4
"""About 10 s of retries; the CLI's default would retry for three minutes."""

_REMEMBERED: Final = 1000
"""Maximum number of started commands to remember until they end."""

_EXIT_CODE: Final = re.compile(r"Exit code (\d{1,3})\b")


def _command(harness: ProviderHarness, prompt: str, _base_url: str) -> tuple[str, ...]:
    """Return its argv; the prompt comes first, because list options consume what follows them.

    A prompt that looks like an option comes last, behind the sign that ends the options.
    """
    last = positional(prompt)
    first, last = ((), last) if len(last) > 1 else (last, ())
    refused = "WebFetch" if harness.allow_external_tools else "WebSearch,WebFetch"
    return (
        *_PROGRAM,
        "-p",
        *first,
        "--model",
        harness.model,
        "--output-format",
        "stream-json",
        "--verbose",
        "--dangerously-skip-permissions",
        "--no-session-persistence",
        "--strict-mcp-config",
        "--setting-sources",
        "",
        "--disallowedTools",
        refused,
        *last,
    )


def _environment(_harness: ProviderHarness, base_url: str) -> Mapping[str, str]:
    """Return its variables; started by the loader, the CLI cannot find its bundled ripgrep."""
    return {
        "HOME": _HOME,
        "ANTHROPIC_BASE_URL": base_url,
        _KEY: DUMMY_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(_RETRIES),
        "CLAUDE_CODE_SHELL": f"{_OVERLAY}/bin/bash",
        "CLAUDE_CODE_TMPDIR": _HOME,
        "IS_SANDBOX": "1",
        "USE_BUILTIN_RIPGREP": "0",
    }


class _ClaudeEvents:
    """Events of ``claude --output-format stream-json``: a command ends with its tool's result."""

    def __init__(self) -> None:
        self._commands: dict[str, str] = {}

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object."""
        if event.get("type") == "result":
            is_failed = event.get("is_error") is not False
            message = text_in(event.get("result"))
            yield AgentEvent(EventKind.FAILED, message) if is_failed else _COMPLETED
            return
        content = object_in(event.get("message")).get("content")
        for block in content if isinstance(content, list) else []:
            yield from self._block(event.get("type"), object_in(block))

    def _block(self, speaker: object, block: Mapping[str, object]) -> Iterator[AgentEvent]:
        match speaker, block.get("type"):
            case "assistant", "text":
                yield AgentEvent(EventKind.SAID, text_in(block.get("text")))
            case "assistant", "tool_use":
                command = _tool_call(block)
                if len(self._commands) < _REMEMBERED:
                    self._commands[text_in(block.get("id"))] = command
                yield AgentEvent(EventKind.STARTED, command)
            case "user", "tool_result":
                command = self._commands.pop(text_in(block.get("tool_use_id")), "")
                yield AgentEvent(EventKind.ENDED, command, _exit_code(block))


_COMPLETED: Final = AgentEvent(EventKind.COMPLETED)


def _tool_call(block: Mapping[str, object]) -> str:
    given = object_in(block.get("input"))
    command = given.get("command")
    if isinstance(command, str):
        return command
    return f"{text_in(block.get('name'))} {json.dumps(given, sort_keys=True)}"


def _exit_code(block: Mapping[str, object]) -> int:
    """Return the exit code in a tool result; without one, 1 for an error and else 0."""
    named = _EXIT_CODE.match(text_in(block.get("content")))
    if named is not None:
        return int(named.group(1))
    return 1 if block.get("is_error") is True else 0


AGENT: Final = cli_agent(
    "claude_code",
    AgentCli(
        title="claude",
        provider=ANTHROPIC,
        key=_KEY,
        overlay_path=_OVERLAY,
        home=_HOME,
        search=(f"{_OVERLAY}/bin",),
        command=_command,
        preflight=(*_PROGRAM, "--version"),
        environment=_environment,
        events=_ClaudeEvents,
    ),
    default_model="sonnet",
)
