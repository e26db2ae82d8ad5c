"""How the tools are started: one test for each trap of providers 3 and 4 that a flag avoids."""

import json
import tomllib

import pytest

from securebench.agents.harness import DUMMY_KEY, EventKind
from securebench.agents.providers.endpoint import PROVIDERS
from securebench.agents.registry import cli_agents, cli_named, harness_config
from securebench.run.plan.build import agent_image, agent_plan

URL = "http://127.0.0.1:8081"
CODEX = harness_config("codex", {"model": "gpt-5.5"})
CLAUDE = harness_config("claude_code", {"model": "sonnet"})
MINI = harness_config("mini_swe_agent", {"model": "Qwen/Qwen3-8B"})
OPENCODE = harness_config("opencode", {"model": "Qwen/Qwen3-8B"})
BOTH = {"codex": CODEX, "claude_code": CLAUDE, "mini_swe_agent": MINI, "opencode": OPENCODE}


def agent_command(harness, prompt, url):
    return cli_named(harness.type).command(harness, prompt, url)


def agent_environment(harness, url):
    return cli_named(harness.type).environment(harness, url)


def settings(harness=CODEX):
    """Return what codex reads from its -c flags, as one configuration."""
    argv = agent_command(harness, "Do it.", URL)
    values = [argv[place + 1] for place, word in enumerate(argv) if word == "-c"]
    return tomllib.loads("\n".join(values))


def words_after(argv, flag):
    return argv[argv.index(flag) + 1]


def test_the_tools_are_those_with_a_provider():
    assert {name: cli.provider.host for name, cli in cli_agents()} == {
        "codex": "api.openai.com",
        "claude_code": "api.anthropic.com",
        "mini_swe_agent": "api.openai.com",
        "opencode": "api.openai.com",
    }


@pytest.mark.parametrize("kind", BOTH)
def test_everything_lies_in_the_overlay_and_its_home(kind):
    tool, harness = cli_named(kind), BOTH[kind]
    for argv in (agent_command(harness, "p", URL), tool.preflight):
        assert argv[0].startswith(f"{tool.overlay_path}/")
    assert tool.preflight[-1] == "--version"
    assert agent_environment(harness, URL)["HOME"] == tool.home
    assert all(folder.startswith(f"{tool.overlay_path}/") for folder in tool.search)


@pytest.mark.parametrize("kind", BOTH)
def test_a_proxy_of_the_image_is_none_for_the_sidecar(kind):
    offered = {kind: {"latest": "1", "1": "overlay:1"}}
    environment = agent_plan(BOTH[kind], *agent_image(BOTH[kind], offered)).environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == "localhost,127.0.0.1,::1"
    assert not {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} & set(environment)


@pytest.mark.parametrize("kind", BOTH)
def test_every_key_that_a_tool_is_given_is_worthless(kind):
    environment = agent_environment(BOTH[kind], URL)
    words = ("KEY", "TOKEN", "SECRET", "PASSWORD")
    keys = {name for name in environment if any(word in name for word in words)}
    assert cli_named(kind).key in keys
    assert {environment[name] for name in keys} == {"securebench-holds-the-key"}


@pytest.mark.parametrize("kind", BOTH)
def test_nothing_for_the_kubelet_to_expand(kind):
    words = (*agent_command(BOTH[kind], "p", URL), *agent_environment(BOTH[kind], URL).values())
    assert not [word for word in words if "$" in word]


# Codex


def test_codex_is_asked_once_and_keeps_no_session():
    argv = agent_command(CODEX, "Do it.", URL)
    assert argv[1] == "exec"
    assert argv[-1] == "Do it."
    assert words_after(argv, "--model") == "gpt-5.5"
    assert {
        "--json",
        "--ephemeral",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
    } <= set(argv)


def test_codex_has_both_key_variables_and_a_home_that_exists():
    environment = agent_environment(CODEX, URL)
    assert environment["OPENAI_API_KEY"] == environment["CODEX_API_KEY"] == DUMMY_KEY
    assert environment["CODEX_HOME"] == environment["HOME"] == "/opt/securebench/codex-home"


def test_codex_uses_a_provider_of_its_own_and_no_websocket():
    read = settings()
    provider = read["model_providers"][read["model_provider"]]
    assert (provider["base_url"], provider["wire_api"], provider["env_key"]) == (
        "http://127.0.0.1:8081/v1",
        "responses",
        "OPENAI_API_KEY",
    )
    assert "openai_base_url" not in read


def test_codex_gives_up_within_a_minute():
    read = settings()
    provider = read["model_providers"]["securebench"]
    assert read["features"]["unbounded_connection_retries"] is False
    tries = (1 + provider["stream_max_retries"]) * (1 + provider["request_max_retries"])
    assert tries <= 30, "each is a second apart"


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("analytics", "enabled"),
        ("features", "plugins"),
        ("features", "apps"),
        ("features", "goals"),
        ("agents", "enabled"),
    ],
)
def test_codex_talks_to_nobody_else_and_starts_no_further_agents(section, name):
    assert settings()[section][name] is False
    assert settings()["check_for_update_on_startup"] is False


def test_codex_hides_its_key_from_commands():
    assert settings()["shell_environment_policy"] == {"ignore_default_excludes": False}


def test_codex_searches_the_web_only_where_the_tester_allows_it():
    assert settings()["web_search"] == "disabled"
    assert "web_search" not in settings(
        harness_config("codex", {"model": "m", "allow_external_tools": True})
    )


# Claude Code


def test_claude_takes_its_prompt_before_lists_can_swallow_it():
    argv = agent_command(CLAUDE, "Do it.", URL)
    assert words_after(argv, "-p") == "Do it."
    assert argv.index("-p") < min(argv.index("--disallowedTools"), argv.index("--model"))
    assert words_after(argv, "--setting-sources") == ""
    assert words_after(argv, "--output-format") == "stream-json"
    assert {
        "--verbose",
        "--dangerously-skip-permissions",
        "--no-session-persistence",
        "--strict-mcp-config",
    } <= set(argv)


def test_claude_runs_in_an_image_without_a_libc_and_without_a_shell():
    argv = agent_command(CLAUDE, "p", URL)
    assert argv[:4] == (
        "/opt/securebench/claude-code/lib/ld-musl.so.1",
        "--library-path",
        "/opt/securebench/claude-code/lib",
        "/opt/securebench/claude-code/claude",
    )
    environment = agent_environment(CLAUDE, URL)
    assert environment["CLAUDE_CODE_SHELL"] == "/opt/securebench/claude-code/bin/bash"


def test_claude_finds_a_ripgrep_although_a_loader_started_it():
    assert agent_environment(CLAUDE, URL)["USE_BUILTIN_RIPGREP"] == "0"
    assert cli_named("claude_code").search == ("/opt/securebench/claude-code/bin",)


def test_claude_as_root_with_a_read_only_tmp_talks_to_the_sidecar_alone():
    environment = agent_environment(CLAUDE, URL)
    assert environment["ANTHROPIC_BASE_URL"] == URL
    assert environment["IS_SANDBOX"] == "1"
    assert environment["CLAUDE_CODE_TMPDIR"] == environment["HOME"]
    assert environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"


def test_claude_does_not_try_again_for_minutes():
    assert environment_number("CLAUDE_CODE_MAX_RETRIES") <= 4


def environment_number(name):
    return int(agent_environment(CLAUDE, URL)[name])


@pytest.mark.parametrize(("allowed", "want"), [(False, "WebSearch,WebFetch"), (True, "WebFetch")])
def test_claude_searches_the_web_only_where_the_tester_allows_it(allowed, want):
    harness = harness_config("claude_code", {"allow_external_tools": allowed})
    assert words_after(agent_command(harness, "p", URL), "--disallowedTools") == want


# mini-swe-agent


def test_mini_has_an_interpreter_of_its_own_that_the_image_does_not_change():
    argv = agent_command(MINI, "Do it.", URL)
    assert argv[0].endswith("/lib/ld-linux.so")
    assert {"-I", "-B"} <= set(argv)
    assert not {name for name in agent_environment(MINI, URL) if name.startswith("PYTHON")}


def test_mini_takes_a_prompt_that_looks_like_a_flag():
    assert agent_command(MINI, "--model x", URL)[-4:] == (
        "--model", "Qwen/Qwen3-8B", "--", "--model x",
    )  # fmt: skip


def test_mini_gives_up_soon_and_asks_the_sidecar():
    environment = agent_environment(MINI, URL)
    assert environment["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert environment["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] == "4"


def seen(event, kind="mini_swe_agent"):
    return list(cli_named(kind).events().events(event))


MINI_EVENTS = {
    "words and commands": (
        {"type": "assistant", "text": "I look.", "commands": ["ls", "cat x"]},
        [(EventKind.SAID, "I look."), (EventKind.STARTED, "ls"), (EventKind.STARTED, "cat x")],
    ),
    "a command alone": (
        {"type": "assistant", "text": "", "commands": ["ls"]},
        [(EventKind.STARTED, "ls")],
    ),
    "a result": ({"type": "result", "command": "ls", "exit_code": 2}, [(EventKind.ENDED, "ls")]),
    "handed in": ({"type": "exit", "status": "Submitted"}, [(EventKind.COMPLETED, "")]),
    "refused": (
        {"type": "exit", "status": "RefusedError", "text": "HTTP 400"},
        [(EventKind.FAILED, "RefusedError: HTTP 400")],
    ),
    "a reason told twice": (
        {"type": "exit", "status": "LimitsExceeded", "text": "LimitsExceeded"},
        [(EventKind.FAILED, "LimitsExceeded")],
    ),
    "hostile": ({"type": "assistant", "text": 1, "commands": "ls"}, []),
    "another": ({"type": ["exit"]}, []),
}


@pytest.mark.parametrize("name", MINI_EVENTS)
def test_mini_says_what_it_does(name):
    event, want = MINI_EVENTS[name]
    assert [(item.kind, item.text) for item in seen(event)] == want


def test_mini_reports_how_a_command_ended():
    (ended,) = seen({"type": "result", "command": "ls", "exit_code": 2, "output": "no"})
    assert ended.exit_code == 2


# opencode


def opencode_configuration():
    return json.loads(agent_environment(OPENCODE, URL)["OPENCODE_CONFIG_CONTENT"])


def test_opencode_brings_its_loader_and_takes_a_prompt_that_looks_like_a_flag():
    argv = agent_command(OPENCODE, "--share", URL)
    assert argv[:4] == (
        "/opt/securebench/opencode/lib/ld-linux.so",
        "--library-path",
        "/opt/securebench/opencode/lib",
        "/opt/securebench/opencode/opencode",
    )
    assert argv[-2:] == ("--", "--share")


def test_opencode_knows_one_model_behind_the_sidecar():
    read = opencode_configuration()
    provider, model = words_after(agent_command(OPENCODE, "p", URL), "--model").split("/", 1)
    assert read["enabled_providers"] == list(read["provider"]) == [provider]
    assert read["provider"][provider] == {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{URL}/v1", "apiKey": DUMMY_KEY},
        "models": {model: {}},
    }
    assert model == "Qwen/Qwen3-8B"


def test_opencode_asks_nobody():
    """A question has no answer here: the turn would go on without what it was for."""
    permission = opencode_configuration()["permission"]
    assert permission == {"*": "allow", "webfetch": "deny", "websearch": "deny"}


def test_opencode_talks_to_nobody_else_and_makes_no_title():
    read, environment = opencode_configuration(), agent_environment(OPENCODE, URL)
    assert (read["share"], read["autoupdate"]) == ("disabled", False)
    assert environment["OPENCODE_DISABLE_MODELS_FETCH"] == "1"
    assert words_after(agent_command(OPENCODE, "p", URL), "--title")


def test_opencode_installs_nothing_and_reads_no_configuration_of_the_checkout():
    environment = agent_environment(OPENCODE, URL)
    assert environment["XDG_CONFIG_HOME"].startswith("/opt/securebench/opencode/")
    assert environment["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"


def test_opencode_copies_no_checkout_into_its_home():
    assert opencode_configuration()["snapshot"] is False


def test_opencode_finds_a_ripgrep_and_a_writable_folder():
    environment = agent_environment(OPENCODE, URL)
    assert cli_named("opencode").search == ("/opt/securebench/opencode/bin",)
    assert environment["OPENCODE_DISABLE_FFF"] == "1"
    assert environment["TMPDIR"] == environment["HOME"]


def used(tool, status="completed", **given):
    metadata = {"exit": given.pop("exit")} if "exit" in given else {}
    state = {"status": status, "input": given, "metadata": metadata}
    return {"type": "tool_use", "part": {"tool": tool, "state": state}}


OPENCODE_EVENTS = {
    "words": ({"type": "text", "part": {"text": "I look."}}, [(EventKind.SAID, "I look.", None)]),
    "a command": (
        used("bash", command="ls", exit=3),
        [(EventKind.STARTED, "ls", None), (EventKind.ENDED, "ls", 3)],
    ),
    "a command without an end": (
        used("bash", command="sleep", exit=None),
        [(EventKind.STARTED, "sleep", None), (EventKind.ENDED, "sleep", 0)],
    ),
    "another tool": (
        used("read", filePath="/a"),
        [
            (EventKind.STARTED, 'read {"filePath": "/a"}', None),
            (EventKind.ENDED, 'read {"filePath": "/a"}', 0),
        ],
    ),
    "a tool that failed": (
        used("read", "error", filePath="/a"),
        [
            (EventKind.STARTED, 'read {"filePath": "/a"}', None),
            (EventKind.ENDED, 'read {"filePath": "/a"}', 1),
        ],
    ),
    "a step before a result": ({"type": "step_finish", "part": {"reason": "tool-calls"}}, []),
    "the last step": (
        {"type": "step_finish", "part": {"reason": "stop"}},
        [(EventKind.COMPLETED, "", None)],
    ),
    "refused": (
        {"type": "error", "error": {"name": "APIError", "data": {"message": "spent"}}},
        [(EventKind.FAILED, "spent", None)],
    ),
    "a failure without words": (
        {"type": "error", "error": {"name": "UnknownError", "data": 1}},
        [(EventKind.FAILED, "UnknownError", None)],
    ),
    "hostile": (
        {"type": "tool_use", "part": {"tool": 1, "state": []}},
        [(EventKind.STARTED, " {}", None), (EventKind.ENDED, " {}", 1)],
    ),
    "another": ({"type": ["text"], "part": {"text": "x"}}, []),
}


@pytest.mark.parametrize("name", OPENCODE_EVENTS)
def test_opencode_says_what_it_does(name):
    event, want = OPENCODE_EVENTS[name]
    found = seen(event, "opencode")
    assert [(item.kind, item.text, item.exit_code) for item in found] == want


def test_the_gateway_serves_the_api_of_every_agent():
    for _, cli in cli_agents():
        assert PROVIDERS[cli.provider.name] is cli.provider
