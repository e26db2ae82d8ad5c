"""Read the tester's environment file (contract 4)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.errors import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_QUOTES = ("'", '"')


class EnvFileError(ConfigErrors, ValueError):
    """Invalid lines of an environment file."""


def load_env_file(
    path: str | Path,
    *,
    override: bool = False,
    environ: MutableMapping[str, str] | None = None,
) -> dict[str, str]:
    """Set environment variables from a file.

    Args:
        path: ``KEY=VALUE`` lines in UTF-8; a missing file counts as empty.
        override: Whether the file overrides variables that are already set.
        environ: Updated in place; by default the environment of this process.

    Returns:
        The variables that were set.

    Raises:
        EnvFileError: Lists every invalid line with file and line; nothing was set.
    """
    target = os.environ if environ is None else environ
    parsed = parse_env_text(_read(Path(path)), str(path))
    chosen = {name: value for name, value in parsed.items() if override or name not in target}
    target.update(chosen)
    return chosen


def parse_env_text(text: str, name: str) -> dict[str, str]:
    """Parse the text of an environment file; the last assignment of a name wins.

    Args:
        text: Content of the file.
        name: File name for messages.

    Raises:
        EnvFileError: Lists every invalid line with its number, never with its value.
    """
    found: dict[str, str] = {}
    problems: list[ConfigError] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, sign, value = line.removeprefix("export ").partition("=")
        problem = _problem(key.strip(), sign, value)
        if problem:
            problems.append(ConfigError(f"{name}:{number}: {problem}"))
        found[key.strip()] = _unquoted(value.strip())
    if problems:
        raise EnvFileError(problems)
    return found


def _problem(key: str, sign: str, value: str) -> str | None:
    if not sign:
        return "expected KEY=VALUE"
    if not key:
        return "expected KEY=VALUE, the key is empty"
    if "\0" in key + value:
        return "expected KEY=VALUE without NUL characters"
    return None


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] in _QUOTES and value[-1] == value[0]:
        return value[1:-1]
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise EnvFileError([ConfigError(f"{path}: cannot be read: it is not UTF-8 text")]) from None
    except OSError as error:
        raise EnvFileError([ConfigError(f"{path}: cannot be read: {error.strerror}")]) from None
