"""The bodies of sections: hunks, counted by their numbers, and binary data."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.benchmark.patch.lines import PATH_BYTES, Lines

NO_NEWLINE = b"\\ No newline at end of file"
MAX_BINARY_BYTES = 1 << 27
"""Largest size, 128 MiB, that a binary part may declare: git allocates it before it looks on."""

LINK_BYTES = PATH_BYTES
"""What is read of the text of a symlink; Linux makes none that is longer."""

_NUMBERS = rb"(\d{1,10})(?:,(\d{1,10}))?"
_HUNK = re.compile(rb"@@ -" + _NUMBERS + rb" \+" + _NUMBERS + rb" @@(?: .*+)?")
_BINARY_SIZE = re.compile(rb"(?:literal|delta) (\d{1,10})")
_BINARY_LINE = re.compile(rb"([A-Za-z])([0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]{5,65})")
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
        is_whole: Whether they are all there is; nothing is added beyond ``LINK_BYTES``.
    """

    lines: list[bytes] = field(default_factory=list)
    is_whole: bool = True
    _room: int = LINK_BYTES

    def add(self, lines: Lines) -> None:
        """Take the current line in, without its sign."""
        self._room -= lines.end - lines.at + 1
        if self._room < 0:
            self.is_whole = False
        else:
            self.lines.append(lines.peek(1) + b"\n")

    def cut(self) -> None:
        """Take the end of the last line away."""
        if self.lines:
            self.lines[-1] = self.lines[-1].removesuffix(b"\n")


def read_hunks(lines: Lines, new: NewSide | None) -> None:
    """Read one hunk or more.

    Args:
        lines: At the first hunk.
        new: Collects the new content where the caller needs it.

    Raises:
        NoncanonicalPatchError: The lines do not agree with the numbers, or nothing is changed.
    """
    count = 0
    while lines.starts(b"@@ "):
        _read_hunk(lines, new if count == 0 else None)
        count += 1
    if count == 0:
        raise lines.error("a hunk is missing")
    if new is not None and count > 1:
        new.is_whole = False


def _read_hunk(lines: Lines, new: NewSide | None) -> None:
    match = lines.match(_HUNK)
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
    sign = b""
    while old_left or new_left:
        if lines.is_at_end:
            raise lines.error("the patch ends within a hunk")
        sign = lines.first() or b" "
        if sign == b"\\":
            _read_mark(lines)
            _cut_end(new)
            continue
        old_left -= sign in b" -"
        new_left -= sign in b" +"
        if sign not in b" -+" or old_left < 0 or new_left < 0:
            raise lines.error("a line does not fit the numbers of its hunk")
        is_change = is_change or sign != b" "
        if new is not None and sign != b"-":
            new.add(lines)
        lines.skip()
    if lines.starts(b"\\"):
        _read_mark(lines)
        if sign != b"-":
            _cut_end(new)
    if not is_change:
        raise lines.error("a hunk changes nothing")


def _read_mark(lines: Lines) -> None:
    if not lines.equals(NO_NEWLINE):
        raise lines.error("a line does not fit the numbers of its hunk")
    lines.skip()


def _cut_end(new: NewSide | None) -> None:
    if new is not None:
        new.cut()


def read_binary(lines: Lines) -> None:
    """Read the data of a binary file and, where it is there, the data of the way back.

    Raises:
        NoncanonicalPatchError: It is nothing that git writes, or it declares too much.
    """
    lines.skip()
    _read_part(lines)
    if lines.match(_BINARY_SIZE):
        _read_part(lines)


def _read_part(lines: Lines) -> None:
    match = lines.match(_BINARY_SIZE)
    if match is None:
        raise lines.error("binary data begins with literal or delta and a size")
    if int(match[1]) > MAX_BINARY_BYTES:
        raise lines.error(f"a binary part declares more than {MAX_BINARY_BYTES} bytes")
    lines.skip()
    while not lines.is_at_end and lines.first():
        _read_data(lines)
    lines.skip()


def _read_data(lines: Lines) -> None:
    match = lines.match(_BINARY_LINE)
    if match is None:
        raise lines.error("a line of binary data is damaged")
    letter = match[1]
    count = ord(letter) - ord("A") + 1 if letter.isupper() else ord(letter) - ord("a") + 27
    if len(match[2]) != -(-count // _PLAIN) * _ENCODED:
        raise lines.error("a line of binary data has the wrong length")
    lines.skip()
