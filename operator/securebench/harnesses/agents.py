"""How codex and Claude Code are started: command lines and variables, no files.

Source: providers 3 and 4, measured with the versions that ``images/overlays/packages.lock`` pins. A
pack, a prompt and a budget say what an agent does; nothing here does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from securebench.egress.protocol import NO_PROXY
from securebench.harnesses.config import PROVIDER_HOSTS, CodexHarness, ProviderHarness

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DUMMY_KEY: Final = "securebench-holds-the-key"
"""What the tools take for their key. It opens nothing: the gateway puts the real one in."""

OPENAI_KEY: Final = "OPENAI_API_KEY"
CODEX_KEY: Final = "CODEX_API_KEY"
ANTHROPIC_KEY: Final = "ANTHROPIC_API_KEY"
PROVIDER_KEYS: Final = (ANTHROPIC_KEY, CODEX_KEY, OPENAI_KEY)
"""Variables whose values never enter a harness Pod with a provider (contract 12.4)."""

_CODEX: Final = "/opt/securebench/codex"
_CODEX_HOME: Final = "/opt/securebench/codex-home"
_CLAUDE: Final = "/opt/securebench/claude-code"
_CLAUDE_HOME: Final = "/opt/securebench/claude-home"
_CLAUDE_LOADER: Final = (
    f"{_CLAUDE}/lib/ld-musl.so.1",
    "--library-path",
    f"{_CLAUDE}/lib",
    f"{_CLAUDE}/claude",
)
"""The vendor's file unchanged, started in any image, also one without a libc."""

_CONNECT_RETRIES: Final = 4
_STREAM_RETRIES: Final = 5
"""Of codex: with a provider that answers nothing but 500 it ends after 30 s, 27 s without one."""

_CLAUDE_RETRIES: Final = 4
"""Of Claude Code: about 10 s; its default keeps trying for three minutes."""


def forwarded(harness_type: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the variables of ``harness.env`` that may enter a harness Pod (contract 12.4).

    Args:
        harness_type: A provider's key goes to its gateway only; a command may have any.
        names: As the tester lists them.
    """
    hidden = PROVIDER_KEYS if harness_type in PROVIDER_HOSTS else ()
    return tuple(name for name in names if name not in hidden)


@dataclass(frozen=True, slots=True)
class AgentTool:
    """What is fixed about a tool.

    Attributes:
        name: As versions of overlays are listed under: ``codex`` or ``claude_code``.
        provider: ``openai`` or ``anthropic``.
        key: Variable of the provider's key, also the entry of the Secret with it.
        overlay_path: Where the tool's image is mounted, an absolute folder.
        home: Its home, an absolute folder.
        search: Folders with programs for its commands, looked into after the image's own.
    """

    name: str
    provider: str
    key: str
    overlay_path: str
    home: str
    search: tuple[str, ...]


_CODEX_TOOL: Final = AgentTool(
    "codex", "openai", OPENAI_KEY, _CODEX, _CODEX_HOME, (f"{_CODEX}/codex-path",)
)
_CLAUDE_TOOL: Final = AgentTool(
    "claude_code", "anthropic", ANTHROPIC_KEY, _CLAUDE, _CLAUDE_HOME, (f"{_CLAUDE}/bin",)
)
AGENT_TOOLS: Final[Mapping[str, AgentTool]] = {
    tool.name: tool for tool in (_CODEX_TOOL, _CLAUDE_TOOL)
}
"""By harness type."""


def agent_command(harness: ProviderHarness, prompt: str, base_url: str) -> tuple[str, ...]:
    """Return the argv of one turn; no shell is needed for it.

    Standard input must be closed: codex waits for the end of an open one.

    Args:
        harness: Model and switches.
        prompt: What the agent is asked.
        base_url: Of the provider as the agent reaches it, without a path.
    """
    if isinstance(harness, CodexHarness):
        return _codex_command(harness, prompt, base_url)
    return _claude_command(harness, prompt)


def agent_preflight(harness: ProviderHarness) -> tuple[str, ...]:
    """Return the argv that must succeed before the tool is started (contract 12.3)."""
    program = (f"{_CODEX}/bin/codex",) if isinstance(harness, CodexHarness) else _CLAUDE_LOADER
    return (*program, "--version")


def agent_environment(harness: ProviderHarness, base_url: str) -> dict[str, str]:
    """Return the variables of the tool; they win over those of the image and of the tester.

    Args:
        harness: Which tool.
        base_url: As for ``agent_command``.
    """
    own = (
        _codex_environment() if isinstance(harness, CodexHarness) else _claude_environment(base_url)
    )
    return {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY, **own}


def _codex_command(harness: CodexHarness, prompt: str, base_url: str) -> tuple[str, ...]:
    flags = (word for setting in _codex_settings(harness, base_url) for word in ("-c", setting))
    return (
        f"{_CODEX}/bin/codex",
        "exec",
        "--model",
        harness.model,
        "--json",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--ephemeral",
        *flags,
        prompt,
    )


def _codex_settings(harness: CodexHarness, base_url: str) -> tuple[str, ...]:
    """Return its configuration as TOML; the entry of the custom provider keeps it off websockets.

    A basic string of TOML with printable ASCII is written like one of JSON.
    """
    provider = ",".join(
        (
            'name="securebench"',
            f"base_url={json.dumps(f'{base_url}/v1')}",
            f"env_key={json.dumps(OPENAI_KEY)}",
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


def _codex_environment() -> dict[str, str]:
    return {
        "HOME": _CODEX_HOME,
        "CODEX_HOME": _CODEX_HOME,
        OPENAI_KEY: DUMMY_KEY,
        CODEX_KEY: DUMMY_KEY,
    }


def _claude_command(harness: ProviderHarness, prompt: str) -> tuple[str, ...]:
    """Return its argv; list options swallow the words after them, so the prompt comes first."""
    refused = "WebFetch" if harness.allow_external_tools else "WebSearch,WebFetch"
    return (
        *_CLAUDE_LOADER,
        "-p",
        prompt,
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
    )


def _claude_environment(base_url: str) -> dict[str, str]:
    """Return its variables; started by a loader, it does not find its own ripgrep."""
    return {
        "HOME": _CLAUDE_HOME,
        "ANTHROPIC_BASE_URL": base_url,
        ANTHROPIC_KEY: DUMMY_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(_CLAUDE_RETRIES),
        "CLAUDE_CODE_SHELL": f"{_CLAUDE}/bin/bash",
        "CLAUDE_CODE_TMPDIR": _CLAUDE_HOME,
        "IS_SANDBOX": "1",
        "USE_BUILTIN_RIPGREP": "0",
    }
