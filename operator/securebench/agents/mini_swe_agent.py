"""mini-swe-agent, with any provider of Chat Completions.

Its interpreter comes with it and is started by its own loader, so it runs in any image with a
shell. Source: providers 11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.agents.harness import DUMMY_KEY, AgentCli, AgentEvent, EventKind, cli_agent
from securebench.agents.providers.openai_chat import OPENAI_CHAT
from securebench.json_values import text_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.agents.harness import ProviderHarness

_OVERLAY: Final = "/opt/securebench/mini-swe-agent"
_HOME: Final = "/opt/securebench/mini-swe-agent-home"
_PROGRAM: Final = (
    f"{_OVERLAY}/lib/ld-linux.so",
    "--library-path",
    f"{_OVERLAY}/lib",
    f"{_OVERLAY}/bin/python3",
    *("-I", "-B", "-X", "utf8"),
    f"{_OVERLAY}/run.py",
)
_KEY: Final = "OPENAI_API_KEY"

_REQUESTS: Final = 4
"""Tries of one request, 4 s apart; its default is ten, for minutes."""

_SUBMITTED: Final = "Submitted"


def _command(harness: ProviderHarness, prompt: str, _base_url: str) -> tuple[str, ...]:
    return (*_PROGRAM, "--model", harness.model, "--", prompt)


def _environment(_harness: ProviderHarness, base_url: str) -> Mapping[str, str]:
    """Return its variables; it writes a configuration file into its home."""
    return {
        "HOME": _HOME,
        "OPENAI_BASE_URL": f"{base_url}/v1",
        _KEY: DUMMY_KEY,
        "MSWEA_GLOBAL_CONFIG_DIR": _HOME,
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": str(_REQUESTS),
        "MSWEA_SILENT_STARTUP": "1",
    }


class _MiniEvents:
    """Events of ``images/overlays/mini-swe-agent/run.py``."""

    def events(self, event: Mapping[str, object]) -> Iterator[AgentEvent]:
        """Yield the events in one JSON object."""
        match event.get("type"):
            case "assistant":
                text, commands = text_in(event.get("text")), event.get("commands")
                if text:
                    yield AgentEvent(EventKind.SAID, text)
                for command in commands if isinstance(commands, list) else []:
                    yield AgentEvent(EventKind.STARTED, text_in(command))
            case "result":
                command = text_in(event.get("command"))
                yield AgentEvent(EventKind.ENDED, command, event.get("exit_code"))
            case "exit" if event.get("status") == _SUBMITTED:
                yield AgentEvent(EventKind.COMPLETED)
            case "exit":
                words = (text_in(event.get("status")), text_in(event.get("text")))
                yield AgentEvent(EventKind.FAILED, ": ".join(filter(None, dict.fromkeys(words))))


AGENT: Final = cli_agent(
    "mini_swe_agent",
    AgentCli(
        title="mini",
        provider=OPENAI_CHAT,
        key=_KEY,
        overlay_path=_OVERLAY,
        home=_HOME,
        command=_command,
        preflight=(*_PROGRAM, "--version"),
        environment=_environment,
        events=_MiniEvents,
    ),
)
