"""The bodies of sections: hunks, counted by their numbers, and binary data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.verifiers.patch.lines import Lines

NO_NEWLINE = "\\ No newline at end of file"
MAX_BINARY_BYTES = 1 << 27
"""Largest size, 128 MiB, that a binary part may declare: git allocates it before it looks on."""

_NUMBERS = r"(\d{1,10})(?:,(\d{1,10}))?"
_HUNK = re.compile(rf"@@ -{_NUMBERS} \+{_NUMBERS} @@(?: .*)?", re.ASCII)
_BINARY_SIZE = re.compile(r"(?:literal|delta) (\d{1,10})", re.ASCII)
_BINARY_LINE = re.compile(r"([A-Za-z])([0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]{5,65})")
_ENCODED, _PLAIN = 5, 4
"""So many characters stand for so many bytes in base 85."""


class _Range(NamedTuple):
    first: int
    lines: int


@dataclass(slots=True)
class NewSide:
    """The new content, as far as the hunks of a file show it.

    Attributes:
        lines: Context and added lines of the first hunk, with their ends.
        is_whole: Whether they are all there is.
    """

    lines: list[str] = field(default_factory=list)
    is_whole: bool = True


def read_hunks(lines: Lines, new: NewSide | None) -> None:
    """Read one hunk or more.

    Args:
        lines: At the first hunk.
        new: Collects the new content where the caller needs it.

    Raises:
        NoncanonicalPatchError: The lines do not agree with the numbers, or nothing is changed.
    """
    count = 0
    while lines.starts("@@ "):
        _read_hunk(lines, new if count == 0 else None)
        count += 1
    if count == 0:
        raise lines.error("a hunk is missing")
    if new is not None and count > 1:
        new.is_whole = False


def _read_hunk(lines: Lines, new: NewSide | None) -> None:
    match = _HUNK.fullmatch(lines.peek())
    if match is None:
        raise lines.error("a hunk begins with other numbers than @@ -m,n +m,n @@")
    old_range = _Range(int(match[1]), int(match[2] or 1))
    new_range = _Range(int(match[3]), int(match[4] or 1))
    if new is not None and (old_range.first > 1 or new_range.first > 1):
        new.is_whole = False
    lines.skip()
    _read_lines(lines, old_range.lines, new_range.lines, new)


def _read_lines(lines: Lines, old_left: int, new_left: int, new: NewSide | None) -> None:
    """Read the lines that the numbers announce; a blank context line may lack its blank."""
    is_change = False
    sign = ""
    while old_left or new_left:
        if lines.is_at_end:
            raise lines.error("the patch ends within a hunk")
        sign = lines.first() or " "
        if sign == "\\":
            _read_mark(lines)
            _cut_end(new)
            continue
        old_left -= sign in " -"
        new_left -= sign in " +"
        if sign not in " -+" or old_left < 0 or new_left < 0:
            raise lines.error("a line does not fit the numbers of its hunk")
        is_change = is_change or sign != " "
        if new is not None and sign != "-":
            new.lines.append(lines.peek()[1:] + "\n")
        lines.skip()
    if lines.starts("\\"):
        _read_mark(lines)
        if sign != "-":
            _cut_end(new)
    if not is_change:
        raise lines.error("a hunk changes nothing")


def _read_mark(lines: Lines) -> None:
    if lines.peek() != NO_NEWLINE:
        raise lines.error("a line does not fit the numbers of its hunk")
    lines.skip()


def _cut_end(new: NewSide | None) -> None:
    if new is not None and new.lines:
        new.lines[-1] = new.lines[-1].removesuffix("\n")


def read_binary(lines: Lines) -> None:
    """Read the data of a binary file and, where it is there, the data of the way back.

    Raises:
        NoncanonicalPatchError: It is nothing that git writes, or it declares too much.
    """
    lines.skip()
    _read_part(lines)
    if _BINARY_SIZE.fullmatch(lines.peek()):
        _read_part(lines)


def _read_part(lines: Lines) -> None:
    match = _BINARY_SIZE.fullmatch(lines.peek())
    if match is None:
        raise lines.error("binary data begins with literal or delta and a size")
    if int(match[1]) > MAX_BINARY_BYTES:
        raise lines.error(f"a binary part declares more than {MAX_BINARY_BYTES} bytes")
    lines.skip()
    while not lines.is_at_end and lines.peek():
        _read_data(lines)
    lines.skip()


def _read_data(lines: Lines) -> None:
    match = _BINARY_LINE.fullmatch(lines.peek())
    if match is None:
        raise lines.error("a line of binary data is damaged")
    letter = match[1]
    count = ord(letter) - ord("A") + 1 if letter.isupper() else ord(letter) - ord("a") + 27
    if len(match[2]) != -(-count // _PLAIN) * _ENCODED:
        raise lines.error("a line of binary data has the wrong length")
    lines.skip()
