"""How the tools are started: one test for each trap of providers 3 and 4 that a flag avoids."""

import tomllib

import pytest

from securebench.agents.agent import DUMMY_KEY, EventKind
from securebench.agents.registry import cli_agents, cli_named, harness_config
from securebench.run.plan.build import agent_plan

URL = "http://127.0.0.1:8081"
CODEX = harness_config("codex", {"model": "gpt-5.5"})
CLAUDE = harness_config("claude_code", {"model": "sonnet"})
MINI = harness_config("mini_swe_agent", {"model": "Qwen/Qwen3-8B"})
BOTH = {"codex": CODEX, "claude_code": CLAUDE, "mini_swe_agent": MINI}


def agent_command(harness, prompt, url):
    return cli_named(harness.type).command(harness, prompt, url)


def agent_environment(harness, url):
    return cli_named(harness.type).environment(url)


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
    environment = agent_plan(BOTH[kind], offered).environment
    assert environment["NO_PROXY"] == environment["no_proxy"] == "localhost,127.0.0.1,::1"
    assert not {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} & set(environment)


@pytest.mark.parametrize("kind", BOTH)
def test_the_key_is_none(kind):
    environment = agent_environment(BOTH[kind], URL)
    assert environment[cli_named(kind).key] == DUMMY_KEY
    keys = [name for name in environment if name.endswith("_KEY")]
    assert {environment[name] for name in keys} == {DUMMY_KEY}


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


def seen(*events):
    reader = cli_named("mini_swe_agent").events()
    return [item for event in events for item in reader.events(event)]


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
