"""What a submission needs: environment, prices and Secrets."""

import os

import pytest

from securebench.client.submit import (
    EnvFileError,
    SecretNames,
    load_env_file,
    parse_env_text,
    secret_names,
    secret_values,
    without_value,
)
from securebench.client.tester_config import HarnessSection, load_prices, parse_tester_config
from securebench.errors import ConfigError, ConfigErrors
from securebench.stats.cost import Price
from unit.client.submit.test_tester_config import good

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


@pytest.fixture
def write(tmp_path):
    def write_file(content):
        path = tmp_path / ".env"
        path.write_bytes(content)
        return path

    return write_file


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("A=1", {"A": "1"}),
        ("  A = a b  ", {"A": "a b"}),
        ("export A=1", {"A": "1"}),
        ("A=x=y", {"A": "x=y"}),
        ("A=", {"A": ""}),
        ("A='x y'", {"A": "x y"}),
        ('A="x"', {"A": "x"}),
        ("A=\"'x'\"", {"A": "'x'"}),
        ("A='x\"", {"A": "'x\""}),
        ("A='", {"A": "'"}),
        ("A=1 # no comment", {"A": "1 # no comment"}),
        ("A=$B", {"A": "$B"}),
        ("# A=1", {}),
        ("   # A=1", {}),
        ("\n \n", {}),
        ("A=1\r\nA=2\r\n", {"A": "2"}),
        ("A=x\u2028y", {"A": "x\u2028y"}),
    ],
)
def test_lines(line, want):
    assert parse_env_text(line, ".env") == want


def test_bad_lines_are_reported_together_without_their_values():
    with pytest.raises(ValueError, match="expected KEY=VALUE") as caught:
        parse_env_text("A=1\nsecret\n\n=hush\nB=a\0b", "my.env")
    assert isinstance(caught.value, ConfigErrors)
    assert [error.reason for error in caught.value.errors] == [
        "my.env:2: expected KEY=VALUE",
        "my.env:4: expected KEY=VALUE, the key is empty",
        "my.env:5: expected KEY=VALUE without NUL characters",
    ]
    assert all(isinstance(error, ConfigError) for error in caught.value.errors)


def test_what_is_set_already_wins(write):
    path = write(b"A=file\nB=file\n")
    environ = {"A": "process"}
    assert load_env_file(path, environ=environ) == {"B": "file"}
    assert environ == {"A": "process", "B": "file"}


def test_override_switch(write):
    path = write(b"A=file\n")
    environ = {"A": "process"}
    assert load_env_file(path, override=True, environ=environ) == {"A": "file"}
    assert environ == {"A": "file"}


def test_process_environment_is_the_default(write, monkeypatch):
    monkeypatch.delenv("SB_ENV_FILE_TEST", raising=False)
    path = write(b"\xef\xbb\xbfSB_ENV_FILE_TEST=1\n")
    monkeypatch.setenv("SB_ENV_FILE_OTHER", "x")
    assert load_env_file(path) == {"SB_ENV_FILE_TEST": "1"}
    assert os.environ.pop("SB_ENV_FILE_TEST") == "1"


def test_nothing_is_set_when_a_line_is_bad(write):
    environ = {}
    with pytest.raises(EnvFileError):
        load_env_file(write(b"A=1\nbad\n"), environ=environ)
    assert environ == {}


def test_missing_file_is_empty_and_others_are_errors(tmp_path, write):
    assert load_env_file(tmp_path / "absent", environ={}) == {}
    with pytest.raises(EnvFileError, match="cannot be read"):
        load_env_file(tmp_path, environ={})
    with pytest.raises(EnvFileError, match="not UTF-8"):
        load_env_file(write(b"A=\xff"), environ={})


TABLE = [{"model": "big", "input": 3, "output": 9}, {"model": "x", "input": 3, "output": 9}]


def test_a_table_in_the_tester_yaml():
    table = [{**TABLE[0], "cached_input": 1}, TABLE[1]]
    want = {"big": Price(3, 1, 9), "x": Price(3, 3, 9)}
    assert parse_tester_config(good(prices=table)).prices == want
    assert parse_tester_config(good()).prices == {}


def test_a_file(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("prices:\n- {model: big, input: 3, output: 9}\n")
    assert load_prices(path) == {"big": Price(3, 3, 9)}


FILES = {
    "cost: 1": "1: price table has unknown field(s): cost",
    "prices:\n- {model: big, input: 3}": "1: price table.prices[0].output is required",
    "prices:\n- model: big\n  input: 1.25\n  output: 3": (
        "3: price table.prices[0].input must be a whole number of micro-dollars per million tokens"
    ),
    "prices:\n- {model: big, input: -3, output: 3}": (
        "2: price table.prices[0].input must be a whole number"
    ),
    "prices:\n- {model: big, inptu: 3, output: 3}": "did you mean",
    "prices: [": "1: invalid YAML",
    "prices:\n- {model: b, input: 1, output: 3}\n- {model: b, input: 2, output: 3}": "twice: b",
}


@pytest.mark.parametrize("text", FILES)
def test_what_is_wrong_is_said_with_its_line(text, tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        load_prices(path)
    said = str(caught.value)
    assert said.startswith(str(path))
    assert FILES[text] in said


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigErrors, match="cannot be read: No such file"):
        load_prices(tmp_path / "none.yaml")


def test_a_model_named_twice_in_the_tester_yaml():
    with pytest.raises(ConfigErrors, match="prices names models twice: big"):
        parse_tester_config(good(prices=[TABLE[0], TABLE[0]]))
