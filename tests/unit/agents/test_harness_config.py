"""harness.config (contract 3.1, 21.7)."""

import subprocess

import pytest

from securebench.agents.harness import (
    AuditHarness,
    CommandHarness,
    ProviderHarness,
)
from securebench.agents.registry import harness_config
from securebench.errors import ConfigErrors
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
            "harness.config.timeout_seconds must be a positive number",
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
