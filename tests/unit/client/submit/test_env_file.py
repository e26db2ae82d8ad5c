"""Environment file (contract 4)."""

import os

import pytest

from securebench.client.submit import EnvFileError, load_env_file, parse_env_text
from securebench.errors import ConfigError, ConfigErrors


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
