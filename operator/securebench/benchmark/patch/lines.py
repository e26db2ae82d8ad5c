"""A text line by line, without a list or copies of its lines, and the names that stand in lines."""

from __future__ import annotations

import re

from securebench.benchmark.patch.sections import NoncanonicalPatchError, PatchTooLargeError

NAME = (
    rb'(?:"(?:[^"\\\x00-\x1f\x7f]++|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*+"'
    rb'|[^\x00-\x20\x7f"\\]++)'
)
"""A name as git writes it: C-quoted, or without blanks, quotes, backslashes and control bytes.

Every repetition is possessive: what is matched is never given back, so nothing is remembered for
each byte.
"""

PATH_BYTES = 4096
"""Bytes of one path; Linux opens none that is longer (PATH_MAX)."""

_PREFIXED_BYTES = PATH_BYTES + len("a/")
_WORST_ESCAPE = 4
_NAME_BYTES = _WORST_ESCAPE * _PREFIXED_BYTES + len('""')
"""Bytes of a name in a line: each byte of the path and its prefix as octal digits, in quotes."""

_TOO_LONG = f"a path has more than {PATH_BYTES} bytes"

_ESCAPE = re.compile(rb"\\([abtnvfr\"\\]|[0-3][0-7]{2})")
_LETTERS = {
    b"a": 0x07,
    b"b": 0x08,
    b"t": 0x09,
    b"n": 0x0A,
    b"v": 0x0B,
    b"f": 0x0C,
    b"r": 0x0D,
    b'"': 0x22,
    b"\\": 0x5C,
}


class Lines:
    """A cursor over a text.

    Args:
        data: UTF-8; lines end with a line feed, the last one may lack it.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size = len(data)
        self.at = 0
        self.number = 1

    @property
    def is_at_end(self) -> bool:
        """Tell whether nothing is left."""
        return self.at >= self._size

    @property
    def end(self) -> int:
        """Return where the current line ends, without its line feed."""
        end = self._data.find(b"\n", self.at)
        return end if end >= 0 else self._size

    def peek(self, skipped: int = 0) -> bytes:
        """Return a copy of the current line without its end, from its byte ``skipped`` on."""
        return self._data[self.at + skipped : self.end]

    def match(self, pattern: re.Pattern[bytes], skipped: int = 0) -> re.Match[bytes] | None:
        """Match a pattern with the whole current line, from its byte ``skipped`` on."""
        return pattern.fullmatch(self._data, self.at + skipped, self.end)

    def equals(self, line: bytes) -> bool:
        """Tell whether the current line is this one."""
        return self.end - self.at == len(line) and self.starts(line)

    def starts(self, prefix: bytes) -> bool:
        """Tell whether the current line begins so."""
        return self._data.startswith(prefix, self.at)

    def first(self) -> bytes:
        """Return the first byte of the current line; empty for an empty line."""
        byte = self._data[self.at : self.at + 1]
        return b"" if byte == b"\n" else byte

    def skip(self) -> None:
        """Go to the next line."""
        end = self._data.find(b"\n", self.at)
        self.at = end + 1 if end >= 0 else self._size
        self.number += 1

    def error(self, problem: str) -> NoncanonicalPatchError:
        """Return the error for the current line."""
        return NoncanonicalPatchError(problem, self.number)

    def too_large(self, problem: str) -> PatchTooLargeError:
        """Return the error of a patch that is not read beyond the current line."""
        return PatchTooLargeError(problem, self.number)

    def path(self, name: bytes) -> str:
        """Return the path behind a name of the current line that ``NAME`` matches.

        Escapes give bytes, and all bytes together have to be UTF-8 without NUL.

        Raises:
            NoncanonicalPatchError: They are not.
            PatchTooLargeError: The path is longer than ``PATH_BYTES``.
        """
        if len(name) > _NAME_BYTES:
            raise self.too_large(_TOO_LONG)
        path = decoded(name)
        if path is None:
            raise self.error("a name is not UTF-8 text")
        if len(path.encode()) > _PREFIXED_BYTES:
            raise self.too_large(_TOO_LONG)
        return path


def utf8(text: str | bytes) -> bytes:
    """Return a text as the bytes that it stands for; what is no Unicode stays invalid."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def decoded(name: bytes) -> str | None:
    """Return the path behind a name that ``NAME`` matches; None when it is none."""
    try:
        path = (_unquoted(name) if name.startswith(b'"') else name).decode()
    except UnicodeError:
        return None
    return None if "\0" in path else path


def _unquoted(name: bytes) -> bytes:
    parts = _ESCAPE.split(name[1:-1])
    result = bytearray(parts[0])
    for escape, plain in zip(parts[1::2], parts[2::2], strict=True):
        result.append(_LETTERS[escape] if escape in _LETTERS else int(escape, 8))
        result += plain
    return bytes(result)
