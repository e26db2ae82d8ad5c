"""Which values a run needs, and where they go (contract 12.4)."""

import pytest

from securebench.client.submit import (
    SecretNames,
    secret_names,
    secret_values,
    without_value,
)
from securebench.client.tester_config import HarnessSection
from securebench.errors import ConfigError

CODEX = HarnessSection("codex", ("TOKEN", "OPENAI_API_KEY"))
CLAUDE = HarnessSection("claude_code")
COMMAND = HarnessSection("command", ("OPENAI_API_KEY", "TOKEN"))


def test_a_provider_key_lies_apart_from_what_enters_the_pods() -> None:
    environ = {"TOKEN": "t", "OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "other"}
    assert secret_values("run", CODEX, environ) == {
        "run": {"TOKEN": "t"},
        "run-provider": {"OPENAI_API_KEY": "k"},
    }
    assert secret_names("run", CODEX) == SecretNames("run", "run-provider")


def test_only_the_key_of_the_harness_is_taken() -> None:
    environ = {"OPENAI_API_KEY": "other", "ANTHROPIC_API_KEY": "k"}
    assert secret_values("run", CLAUDE, environ) == {"run-provider": {"ANTHROPIC_API_KEY": "k"}}
    assert secret_names("run", CLAUDE) == SecretNames("", "run-provider")


@pytest.mark.parametrize("empty", [{}, {"OPENAI_API_KEY": ""}])
def test_the_two_keys_of_codex_mirror_each_other(empty: dict[str, str]) -> None:
    found = secret_values("run", HarnessSection("codex"), {**empty, "CODEX_API_KEY": "k"})
    assert found == {"run-provider": {"OPENAI_API_KEY": "k"}}


def test_one_error_lists_everything_that_is_missing() -> None:
    harness = HarnessSection("claude_code", ("ONE", "SET", "TWO"))
    with pytest.raises(ConfigError) as caught:
        secret_values("run", harness, {"SET": "secret-value", "TWO": ""})
    assert "needs ONE, TWO, ANTHROPIC_API_KEY:" in caught.value.reason
    assert "secret-value" not in str(caught.value)


def test_a_command_goes_without_what_is_not_set() -> None:
    assert secret_values("run", COMMAND, {"OPENAI_API_KEY": "k"}) == {
        "run": {"OPENAI_API_KEY": "k"}
    }
    assert secret_names("run", HarnessSection("command")) == SecretNames("", "")


URL = {"url": "https://models.example.org/v1", "key": "OWN_KEY"}


@pytest.mark.parametrize("kind", ["codex", "command"])
def test_a_provider_by_its_url_gets_its_own_key_alone(kind: str) -> None:
    harness = HarnessSection(kind, ("OWN_KEY",), {"model": "m", "provider": URL})
    environ = {"OPENAI_API_KEY": "of the vendor", "OWN_KEY": "k"}
    assert secret_values("run", harness, environ) == {"run-provider": {"OWN_KEY": "k"}}
    with pytest.raises(ConfigError, match="needs OWN_KEY: set it"):
        secret_values("run", harness, {"OPENAI_API_KEY": "of the vendor"})


def test_a_provider_without_a_key_needs_none() -> None:
    harness = HarnessSection("codex", (), {"model": "m", "provider": {"url": URL["url"]}})
    assert secret_values("run", harness, {"OPENAI_API_KEY": "of the vendor"}) == {}
    assert secret_names("run", harness) == SecretNames("", "")


def test_names_without_a_value_are_listed_once() -> None:
    harness = HarnessSection("command", ("ONE", "SET", "ONE", "EMPTY", "OPENAI_API_KEY"))
    environ = {"SET": "x", "EMPTY": "", "CODEX_API_KEY": "no mirror without a tool"}
    assert without_value(harness, environ) == ("ONE", "EMPTY", "OPENAI_API_KEY")
