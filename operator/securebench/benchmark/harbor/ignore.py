"""Patterns of a .harborignore: those of gitignore, in any folder of tests and solutions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

IGNORE_FILE: Final = ".harborignore"

MAX_PATTERNS: Final = 1000
"""Patterns of one file."""

_CLASS: Final = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")


class PatternError(Exception):
    """A line that is no pattern.

    Attributes:
        line: Number from 1.
    """

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class _Pattern:
    is_negated: bool
    only_folders: bool
    expression: re.Pattern[str]


class IgnoreRules:
    """The patterns of one file."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read the patterns.

        Raises:
            PatternError: A line is no pattern, or there are too many.
        """
        found = (_pattern(line, number) for number, line in enumerate(lines, start=1))
        self._patterns = [pattern for pattern in found if pattern is not None]
        if len(self._patterns) > MAX_PATTERNS:
            raise PatternError(f"more than {MAX_PATTERNS} patterns", MAX_PATTERNS + 1)

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Return whether a path is left out; None when no pattern matches it.

        Args:
            path: Relative to the folder of the file; none of the folders above it is left out.
            is_folder: Whether it is a folder.
        """
        for pattern in reversed(self._patterns):
            if pattern.only_folders and not is_folder:
                continue
            if pattern.expression.fullmatch(path):
                return not pattern.is_negated
        return None


def _pattern(line: str, number: int) -> _Pattern | None:
    text = _without_blanks(line)
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!") if is_negated else text
    only_folders = text.endswith("/")
    text = text.rstrip("/") if only_folders else text
    if not text:
        return None
    is_anchored = "/" in text
    try:
        expression = re.compile(_expression(text.removeprefix("/"), is_anchored=is_anchored))
    except re.error:
        raise PatternError("is no pattern of gitignore", number) from None
    return _Pattern(is_negated, only_folders, expression)


def _without_blanks(line: str) -> str:
    """Return a line without the blanks at its end that no backslash keeps."""
    text = line.rstrip()
    if text.endswith("\\") and len(text) < len(line):
        text += line[len(text)]
    return text


def _expression(text: str, *, is_anchored: bool) -> str:
    parts = text.split("/")
    made = "" if is_anchored else "(?:.*/)?"
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            made += ".+" if is_last else "(?:.*/)?"
        else:
            made += _segment(part) + ("" if is_last else "/")
    return f"(?s:{made})"


def _segment(part: str) -> str:
    made, rest = "", part
    while rest:
        match = _CLASS.match(rest)
        if match:
            made += f"(?!/)[{'^' if match[1] else ''}{_escaped_class(match[2])}]"
            rest = rest[match.end() :]
            continue
        first, rest = rest[0], rest[1:]
        if first == "\\":
            if not rest:
                raise re.error("a backslash at the end")
            made, rest = made + re.escape(rest[0]), rest[1:]
        else:
            made += {"*": "[^/]*", "?": "[^/]"}.get(first, re.escape(first))
    return made


def _escaped_class(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^").replace("]", "\\]")
