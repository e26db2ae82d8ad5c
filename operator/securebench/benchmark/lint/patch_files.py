"""Patches that an author wrote, as ``git apply`` reads them: with counted hunks.

git is lenient in a way that hides mistakes: lines behind the announced ones, and a file header
without a hunk, change nothing and nobody says so. Here they are defects.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.ASCII)
_SECTION: Final = "diff --git "
_BINARY: Final = "GIT binary patch"
_NO_LINE_END: Final = "\\"
_OF_A_HUNK: Final = (" ", "+", "-")
_SIGNATURES: Final = ("-- ", "--- ")
"""How mails end and how the next file begins; both may follow a hunk."""

_WITHOUT_HUNKS: Final = (
    "rename from ",
    "copy from ",
    "old mode ",
    "new file mode ",
    "deleted file mode ",
    _BINARY,
)


class _Problem(NamedTuple):
    line: int
    text: str


def patch_problem(text: str) -> str | None:
    """Return the first defect of a patch with its line in the patch, or None.

    Args:
        text: A patch in git's format; sections may have extended headers and binary parts.
    """
    found = _Reader(text).problem()
    return None if found is None else f"line {found.line}: {found.text}"


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.removesuffix("\n").split("\n")
        self._at = 0
        self._file = ""
        self._hunk = 0
        self._has_header = False
        self._is_section = False
        self._changes = False

    def problem(self) -> _Problem | None:
        while self._at < len(self._lines):
            found = self._step(self._lines[self._at])
            if found is not None:
                return found
        return None if self._changes else _Problem(1, "the patch changes nothing")

    def _step(self, line: str) -> _Problem | None:
        if line.startswith(_SECTION):
            self._file, self._hunk = line.rsplit(maxsplit=1)[-1].removeprefix("b/"), 0
            self._has_header, self._is_section = False, True
        elif line.startswith("@@"):
            return self._read_hunk(line)
        elif line.startswith("--- ") and self._next().startswith("+++ "):
            return self._header()
        elif line.startswith(("--- ", "+++ ")) and self._is_section:
            return self._here(f"the lines --- and +++ of {self._file} do not follow each other")
        elif line.startswith(_SIGNATURES):
            self._hunk = 0
        elif self._hunk and line.startswith(("+", "-")):
            return self._here(f"a changed line of {self._file} belongs to no hunk")
        elif line.startswith(_WITHOUT_HUNKS):
            self._changes = True
        self._at += 1
        if line.startswith(_BINARY):
            self._skip_section()
        return None

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _header(self) -> _Problem | None:
        name = self._next()[4:].split("\t")[0].strip()
        if name != "/dev/null":
            self._file = name.removeprefix("b/")
        self._hunk, self._has_header, self._is_section = 0, True, False
        self._at += 2
        if self._at == len(self._lines) or not self._lines[self._at].startswith("@@"):
            return self._here(f"a hunk of {self._file} (@@ -… +… @@) should follow")
        return None

    def _skip_section(self) -> None:
        while self._at < len(self._lines) and not self._lines[self._at].startswith(_SECTION):
            self._at += 1

    def _here(self, text: str, line: int | None = None) -> _Problem:
        return _Problem((self._at if line is None else line) + 1, text)

    def _read_hunk(self, header: str) -> _Problem | None:
        self._hunk += 1
        name = f"hunk {self._hunk} of {self._file}"
        match = _HUNK.match(header)
        if not self._has_header:
            return self._here("a hunk stands before the lines --- and +++ of its file")
        if match is None:
            return self._here(f"{name} does not begin with @@ -m,n +m,n @@")
        first = self._at
        counts = (int(match[1] or 1), int(match[2] or 1))
        self._at += 1
        return self._read_lines(name, first, counts) or self._behind(name, first)

    def _read_lines(self, name: str, first: int, counts: tuple[int, int]) -> _Problem | None:
        old, new = counts
        changed = False
        while old > 0 or new > 0:
            sign = self._sign()
            if sign == _NO_LINE_END:
                self._at += 1
                continue
            if sign not in _OF_A_HUNK:
                said = f"{name} announces {counts[0]} old and {counts[1]} new lines"
                return self._here(f"{said}, and {old} and {new} of them are missing", first)
            old, new = old - (sign != "+"), new - (sign != "-")
            if min(old, new) < 0:
                return self._here(f"{name} has other lines here than its @@ line announces")
            changed = changed or sign != " "
            self._at += 1
        self._changes = True
        return None if changed else self._here(f"{name} changes nothing: git refuses it", first)

    def _sign(self) -> str:
        """Return how the current line begins; a blank one is context, behind the end is nothing."""
        return (self._lines[self._at][:1] or " ") if self._at < len(self._lines) else ""

    def _behind(self, name: str, first: int) -> _Problem | None:
        line = self._lines[self._at] if self._at < len(self._lines) else ""
        if line.startswith(_OF_A_HUNK) and not line.startswith(_SIGNATURES):
            text = f"{name} has more lines than its @@ line (line {first + 1}) announces"
            return self._here(f"{text}: git leaves them out without a word")
        return None
