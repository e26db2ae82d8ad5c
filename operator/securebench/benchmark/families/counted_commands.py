"""Commands that start tests: those whose tests our runner counts.

Source: contract 21.14, docs/reference/checks.md, decision 0021.
"""

from __future__ import annotations

import re

SHELL = ("sh", "-lc")
"""Runs a command that a row gives as text."""

PYTHON_NAME = re.compile(r"(?:/[A-Za-z0-9_./-]*/)?python[0-9.]*")
MODULE = ("-m", "pytest")
_CALL = re.compile(rf"(?<![\w./-])({PYTHON_NAME.pattern})[ \t]+-m[ \t]+pytest(?![\w./-])")


def is_counted(command: tuple[str, ...]) -> bool:
    """Return whether our runner can take the place of pytest in a command."""
    return with_runner(command, (), "") is not None


def with_runner(
    command: tuple[str, ...], words: tuple[str, ...], text: str
) -> tuple[str, ...] | None:
    """Return a command with our runner in place of ``-m pytest``, or None.

    Args:
        command: A command that calls ``python3 -m pytest`` exactly once can have it.
        words: Arguments of the interpreter for an argv.
        text: The same for a shell.
    """
    if command[: len(SHELL)] == SHELL:
        calls = list(_CALL.finditer(command[-1]))
        if len(calls) != 1 or command[-1][: calls[0].start()].count('"') % 2:
            return None
        before, after = command[-1][: calls[0].start()], command[-1][calls[0].end() :]
        return (*SHELL, f"{before}{calls[0][1]} {text}{after}")
    if command[1:3] != MODULE or not PYTHON_NAME.fullmatch(command[0]):
        return None
    return (command[0], *words, *command[3:])
