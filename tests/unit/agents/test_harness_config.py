"""The configuration of a harness."""

import subprocess

import pytest

from securebench.agents.harness import (
    AuditHarness,
    CommandHarness,
    ProviderHarness,
    agent_time_limit,
)
from securebench.agents.providers.endpoint import normalize_domain, normalize_domains
from securebench.agents.registry import harness_config, harness_digest
from securebench.errors import ConfigError, ConfigErrors
from securebench.protocol.candidate import ORACLE_FOLDER


def messages(kind, config):
    with pytest.raises(ConfigErrors) as caught:
        harness_config(kind, config)
    return [error.reason for error in caught.value.errors]


def test_command_string_and_defaults():
    harness = harness_config("command", {"command": "echo hi"})
    assert harness == CommandHarness(command="echo hi")
    assert harness.argv == ("sh", "-lc", "echo hi")
    assert harness.task_file == "task.json"
    assert harness.timeout_seconds is None
    assert harness.is_default_timeout
    assert harness.effective_domains == ()


def test_command_list_and_everything_else():
    harness = harness_config(
        "command",
        {
            "command": ["python3", "x.py"],
            "artifact_path": "out/./answer.txt",
            "task_file": "in/task.json",
            "timeout_seconds": 5,
            "allowed_domains": ["Docs.Dev.", "docs.dev"],
        },
    )
    assert isinstance(harness, CommandHarness)
    assert harness.argv == ("python3", "x.py")
    assert harness.artifact_path == "out/answer.txt"
    assert harness.task_file == "in/task.json"
    assert harness.timeout_seconds == 5.0
    assert not harness.is_default_timeout
    assert harness.allowed_domains == ("docs.dev",)
    assert harness.filled_config() == {
        "command": ["python3", "x.py"],
        "artifact_path": "out/answer.txt",
        "task_file": "in/task.json",
        "timeout_seconds": 5.0,
        "allowed_domains": ["docs.dev"],
    }


def test_codex():
    harness = harness_config(
        "codex",
        {
            "model": "gpt-5.1_x+y",
            "budget": {"requests": 10, "tokens": 1000},
            "allow_external_tools": True,
            "allowed_domains": ["api.openai.com", "docs.dev"],
        },
    )
    assert isinstance(harness, ProviderHarness)
    assert harness.version == "latest"
    assert harness.timeout_seconds == 900
    assert (harness.max_requests, harness.max_tokens) == (10, 1000)
    assert harness.effective_domains == ("api.openai.com", "docs.dev")


def test_claude_code_defaults_and_explicit_null():
    harness = harness_config("claude_code", {"timeout_seconds": None})
    assert isinstance(harness, ProviderHarness)
    assert harness.model == "sonnet"
    assert harness.timeout_seconds is None
    assert not harness.is_default_timeout
    assert harness.effective_domains == ("api.anthropic.com",)
    assert harness.filled_config()["budget"] == {"requests": None, "tokens": None}


@pytest.mark.parametrize("kind", ["nop", "oracle"])
def test_what_examines_a_pack_takes_task_file_and_limit_only(kind):
    harness = harness_config(kind, {"task_file": "in/task.json", "timeout_seconds": 5})
    assert isinstance(harness, AuditHarness)
    assert harness.type == kind
    assert harness.task_file == "in/task.json"
    assert (harness.timeout_seconds, harness.is_default_timeout) == (5.0, False)
    assert harness.filled_config() == {"task_file": "in/task.json", "timeout_seconds": 5.0}
    assert harness.effective_domains == ()
    assert harness_config(kind, {}).is_default_timeout


def test_nop_succeeds_and_says_nothing(tmp_path):
    done = subprocess.run(
        harness_config("nop", {}).argv, capture_output=True, cwd=tmp_path, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert list(tmp_path.iterdir()) == []


SCRIPT = "cat <<'END'\n$(HOME) \u00e9\nEND\ntouch made\n"
ORACLE_ANSWERS = {
    "text as it is": ("candidate", "no newline, $HOME \u00e9", "no newline, $HOME \u00e9", []),
    "a script in the workspace": ("command", SCRIPT, "$(HOME) \u00e9\n", ["made"]),
}


@pytest.mark.parametrize("name", ORACLE_ANSWERS)
def test_the_oracle_hands_in_the_file(name, tmp_path):
    form, text, want, made = ORACLE_ANSWERS[name]
    answers, workspace = tmp_path / "oracle", tmp_path / "workspace"
    for folder in (answers, workspace):
        folder.mkdir()
    (answers / form).write_text(text, encoding="utf-8")
    command = [
        word.replace(ORACLE_FOLDER, str(answers)) for word in harness_config("oracle", {}).argv
    ]
    done = subprocess.run(command, capture_output=True, cwd=workspace, check=True)
    assert done.stdout.decode() == want
    assert [path.name for path in workspace.iterdir()] == made


@pytest.mark.parametrize(
    ("kind", "config", "want"),
    [
        *(
            (kind, {key: value}, f"harness.config contains unsupported field(s): {key}")
            for kind in ("nop", "oracle")
            for key, value in (("command", "x"), ("allowed_domains", []), ("artifact_path", "a"))
        ),
        ("nop", {"timeout_seconds": 0}, "harness.config.timeout_seconds must be a positive"),
        ("oracle", {"task_file": "/t"}, "harness.config.task_file must be rel"),
        ("command", {}, "harness.config.command is required"),
        ("command", {"command": " "}, "harness.config.command must be a non-empty string"),
        ("command", {"command": []}, "harness.config.command must be a non-empty string"),
        ("command", {"command": ["a", ""]}, "harness.config.command[1] must be a non-empty"),
        ("command", {"command": 1}, "harness.config.command must be a non-empty string"),
        (
            "command",
            {"command": "x", "models": "m", "images": "i"},
            "harness.config contains unsupported field(s): images, models",
        ),
        ("command", {"command": "x", "timeout_seconds": 0}, "harness.config.timeout_seconds must"),
        ("command", {"command": "x", "timeout_seconds": True}, "harness.config.timeout_seconds"),
        ("command", {"command": "x", "timeout_seconds": "5"}, "harness.config.timeout_seconds"),
        (
            "command",
            {"command": "x", "timeout_seconds": float("inf")},
            "harness.config.timeout_seconds must be a positive number of seconds, at most 31536000",
        ),
        ("command", {"command": "x", "task_file": "/t"}, "harness.config.task_file must be rel"),
        ("command", {"command": "x", "task_file": ""}, "harness.config.task_file must be a non"),
        ("command", {"command": "x", "artifact_path": "../x"}, "harness.config.artifact_path"),
        (
            "command",
            {"command": "x", "extraction": "workspace"},
            "harness.config.extraction must be one of stdout, git_diff",
        ),
        (
            "command",
            {"command": "x", "extraction": "git_diff", "artifact_path": "a"},
            "harness.config.artifact_path and extraction: git_diff name two candidates",
        ),
        (
            "codex",
            {"model": "m", "extraction": "git_diff"},
            "harness.config contains unsupported field(s): extraction",
        ),
        ("command", {"command": "x", "artifact_path": "eval/x"}, "harness.config.artifact_path"),
        (
            "command",
            {"command": "x", "artifact_path": "securebench/evaluation_inputs/x"},
            "harness.config.artifact_path",
        ),
        (
            "command",
            {"command": "x", "artifact_path": "./task.json"},
            "harness.config.artifact_path must not be the task file",
        ),
        (
            "command",
            {"command": "x", "allowed_domains": "a.b"},
            "harness.config.allowed_domains must be a list",
        ),
        (
            "command",
            {"command": "x", "allowed_domains": ["*.dev"]},
            "harness.config.allowed_domains entry '*.dev'",
        ),
        ("codex", {}, "harness.config.model is required"),
        ("codex", {"model": "a b"}, "harness.config.model must be a word of letters"),
        ("codex", {"model": ""}, "harness.config.model must be a word of letters"),
        (
            "codex",
            {"model": "m", "version": "1 2"},
            "harness.config.version must be a word of letters",
        ),
        ("codex", {"model": "m", "command": "x"}, "harness.config contains unsupported field(s)"),
        ("codex", {"model": "m", "timeout_seconds": 0}, "harness.config.timeout_seconds must"),
        ("codex", {"model": "m", "budget": 3}, "harness.config.budget must be an object"),
        (
            "codex",
            {"model": "m", "budget": {"money": 3}},
            "harness.config.budget contains unsupported field(s): money",
        ),
        (
            "codex",
            {"model": "m", "budget": {"tokens": 0}},
            "harness.config.budget.tokens must be a positive whole number",
        ),
        (
            "claude_code",
            {"allow_external_tools": "yes"},
            "harness.config.allow_external_tools must be a boolean",
        ),
        (
            "docker",
            {},
            (
                "harness.type must be one of claude_code, codex, command, mini_swe_agent, nop,"
                " opencode, oracle"
            ),
        ),
    ],
)
def test_one_defect_gives_one_message(kind, config, want):
    found = messages(kind, config)
    assert len(found) == 1
    assert found[0].startswith(want)


def test_all_defects_come_together_with_their_keys():
    with pytest.raises(ConfigErrors) as caught:
        harness_config("command", {"task_file": "eval", "timeout_seconds": -1, "x": 1})
    keys = [error.facts["key"] for error in caught.value.errors]
    assert keys == [
        ("harness", "config", "timeout_seconds"),
        ("harness", "config", "command"),
        ("harness", "config", "x"),
        ("harness", "config", "task_file"),
    ]


def test_the_default_extraction_leaves_digests_as_they_were():
    plain = harness_config("command", {"command": "x"})
    said = harness_config("command", {"command": "x", "extraction": "stdout"})
    other = harness_config("command", {"command": "x", "extraction": "git_diff"})
    assert said.filled_config() == plain.filled_config()
    assert "extraction" not in plain.filled_config()
    assert other.filled_config() == {**plain.filled_config(), "extraction": "git_diff"}


@pytest.mark.parametrize("kind", ["codex", "command"])
def test_a_model_that_uses_tools_of_its_provider_needs_the_setting(kind):
    config = {"model": "x:online", "provider": {"url": "https://models.example.org/v1"}}
    config |= {"command": "x"} if kind == "command" else {}
    with pytest.raises(ConfigErrors, match="allow_external_tools") as caught:
        harness_config(kind, config)
    (error,) = caught.value.errors
    assert error.facts["key"] == ("harness", "config", "model")
    assert harness_config(kind, config | {"allow_external_tools": True}).model == "x:online"
    assert harness_config(kind, config | {"model": "x:whatever"}).model == "x:whatever"


@pytest.mark.parametrize(
    ("kind", "given", "environment", "want"),
    [
        ("command", {}, {}, None),
        ("command", {}, {"timeout_seconds": 30}, 30.0),
        ("command", {"timeout_seconds": 10}, {"timeout_seconds": 30}, 10.0),
        ("command", {"timeout_seconds": 40}, {"timeout_seconds": 30}, 30.0),
        ("command", {"timeout_seconds": 40}, {}, 40.0),
        ("command", {"timeout_seconds": None}, {"timeout_seconds": 30}, 30.0),
        ("codex", {}, {}, 900.0),
        ("codex", {}, {"timeout_seconds": 1800}, 1800.0),
        ("codex", {"timeout_seconds": None}, {}, None),
        ("codex", {"timeout_seconds": None}, {"timeout_seconds": None}, None),
        ("codex", {"timeout_seconds": 60}, {"timeout_seconds": 1800}, 60.0),
    ],
)
def test_agent_time_limit(kind, given, environment, want):
    needed = {"command": "x"} if kind == "command" else {"model": "m"}
    harness = harness_config(kind, {**needed, **given})
    assert agent_time_limit(environment, harness) == want


@pytest.mark.parametrize("value", [0, -1, True, "30", float("nan"), float("inf")])
def test_bad_task_limits_are_named(value):
    with pytest.raises(ConfigError, match=r"environment\.timeout_seconds"):
        agent_time_limit({"timeout_seconds": value}, CommandHarness(command="x"))


def test_digest_has_defaults_filled_in():
    plain = harness_config("codex", {"model": "m"})
    spelled = harness_config(
        "codex", {"model": "m", "version": "latest", "timeout_seconds": 900, "budget": {}}
    )
    assert harness_digest(plain) == harness_digest(spelled)
    assert harness_digest(plain).startswith("sha256:")
    assert len(harness_digest(plain)) == len("sha256:") + 64


def test_digest_tells_harnesses_apart():
    command = CommandHarness(command="x")
    digests = {
        harness_digest(command),
        harness_digest(command, ["A"]),
        harness_digest(CommandHarness(command=("x",))),
        harness_digest(CommandHarness(command="y")),
        harness_digest(CommandHarness(command="x", artifact_path="a")),
        harness_digest(CommandHarness(command="x", timeout_seconds=1.0)),
        harness_digest(CommandHarness(command="x", allowed_domains=("a.dev",))),
        harness_digest(harness_config("codex", {"model": "m"})),
        harness_digest(command, audit=True),
        harness_digest(harness_config("nop", {}), audit=True),
        harness_digest(harness_config("oracle", {}), audit=True, answers="sha256:1"),
        harness_digest(harness_config("oracle", {}), audit=True, answers="sha256:2"),
    }
    assert len(digests) == 12
    assert harness_digest(command, ["B", "A", "A"]) == harness_digest(command, ["A", "B"])


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        (" Docs.Dev.. ", "docs.dev"),
        ("a-b.xn--p1ai", "a-b.xn--p1ai"),
        (f"{'a' * 63}.dev", f"{'a' * 63}.dev"),
        ("1.dev", "1.dev"),
    ],
)
def test_plain_names(entry, want):
    assert normalize_domain(entry) == want


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " ",
        ".",
        "localhost",
        "dev",
        "x.localhost",
        "https://docs.dev",
        "docs.dev/path",
        "docs.dev:443",
        "*.docs.dev",
        "1.2.3.4",
        "1.2.3.4.",
        "127.1",
        "a.0x7f",
        "::1",
        "[::1]",
        "-a.dev",
        "a-.dev",
        "a..dev",
        ".docs.dev",
        "a_b.dev",
        "a b.dev",
        f"{'a' * 64}.dev",
        ".".join(["a" * 60] * 5),
        "doc\u212a.dev",
        "docs\u3002dev",
        "docs.dev\x00",
    ],
)
def test_everything_else_is_refused(entry):
    with pytest.raises(ConfigError, match="allowed_domains"):
        normalize_domain(entry)


def test_lists_keep_their_order_without_duplicates():
    assert normalize_domains(["b.dev", "A.dev", "B.dev."]) == ("b.dev", "a.dev")
    with pytest.raises(ConfigError, match="allowed_domains must be a list of strings"):
        normalize_domains(["b.dev", 1])
