"""Patterns of a .harborignore: those of gitignore, in any folder of tests and solutions.

Pattern and path are compared name by name, and a star never tries twice where it matched: the work
is at most names times parts, whatever a file says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

IGNORE_FILE: Final = ".harborignore"

MAX_PATTERNS: Final = 1000
"""Patterns of one file."""

_CLASS: Final = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")
_ANY_NAME: Final = re.compile(".*", re.DOTALL)


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
    """One pattern; of its parts, None stands for any number of folders."""

    is_negated: bool
    only_folders: bool
    parts: Sequence[re.Pattern[str] | None]
    """Never two None side by side."""

    def matches(self, names: Sequence[str]) -> bool:
        places = set(self._reached({0}))
        for name in names:
            places = set(self._reached(self._passed(places, name)))
        return len(self.parts) in places

    def _passed(self, places: Iterable[int], name: str) -> Iterator[int]:
        for place in places:
            part = self.parts[place] if place < len(self.parts) else _NO_NAME
            if part is None:
                yield place
            elif part.fullmatch(name):
                yield place + 1

    def _reached(self, places: Iterable[int]) -> Iterator[int]:
        for place in places:
            yield place
            if place < len(self.parts) and self.parts[place] is None:
                yield place + 1


_NO_NAME: Final = re.compile("(?!)")


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
        names = path.split("/")
        for pattern in reversed(self._patterns):
            if (is_folder or not pattern.only_folders) and pattern.matches(names):
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
    parts = [None if part == "**" else part for part in text.removeprefix("/").split("/")]
    if "/" not in text:
        parts = [None, *parts]
    try:
        made = [None if part is None else re.compile(_expression(part)) for part in parts]
    except re.error:
        raise PatternError("is no pattern of gitignore", number) from None
    made = [part for part, before in zip(made, [_ANY_NAME, *made], strict=False) if part or before]
    return _Pattern(is_negated, only_folders, made if made[-1] else [*made, _ANY_NAME])


def _without_blanks(line: str) -> str:
    """Return a line without the blanks at its end that no backslash keeps."""
    text = line.rstrip()
    if text.endswith("\\") and len(text) < len(line):
        text += line[len(text)]
    return text


def _expression(part: str) -> str:
    """Return a name's expression; what stands before a later star is never tried again."""
    first, *others = _between_stars(part)
    if not others:
        return f"(?s:{first})"
    middle = "".join(f"(?>.*?{each})" for each in others[:-1])
    return f"(?s:{first}{middle}.*{others[-1]})"


def _between_stars(part: str) -> list[str]:
    """Return expressions of a fixed length: what stands before, between and behind the stars."""
    found, rest = [""], part
    while rest:
        match = _CLASS.match(rest)
        if match:
            found[-1] += f"[{'^' if match[1] else ''}{_escaped_class(match[2])}]"
            rest = rest[match.end() :]
            continue
        first, rest = rest[0], rest[1:]
        if first == "*":
            found.append("")
        elif first == "?":
            found[-1] += "."
        else:
            if first == "\\":
                if not rest:
                    raise re.error("a backslash at the end")
                first, rest = rest[0], rest[1:]
            found[-1] += re.escape(first)
    return found


def _escaped_class(text: str) -> str:
    """Return the inside of a class, in which only a single ``-`` has a meaning."""
    if "--" in text:
        raise re.error("two dashes")
    return re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", text)
