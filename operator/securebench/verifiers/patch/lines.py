"""A text line by line, without a list of all lines, and the names that stand in lines."""

from __future__ import annotations

import re

from securebench.verifiers.patch.model import NoncanonicalPatchError

NAME = r'(?:"(?:[^"\\\x00-\x1f\x7f]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*"|[^\x00-\x20\x7f"\\]+)'
"""A name as git writes it: C-quoted, or without blanks, quotes, backslashes and control bytes."""

_ESCAPE = re.compile(r"\\([abtnvfr\"\\]|[0-3][0-7]{2})")
_LETTERS = {
    "a": 0x07,
    "b": 0x08,
    "t": 0x09,
    "n": 0x0A,
    "v": 0x0B,
    "f": 0x0C,
    "r": 0x0D,
    '"': 0x22,
    "\\": 0x5C,
}


class Lines:
    """A cursor over a text.

    Args:
        text: Lines end with a line feed; the last one may lack it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._size = len(text)
        self.at = 0
        self.number = 1

    @property
    def is_at_end(self) -> bool:
        """Tell whether nothing is left."""
        return self.at >= self._size

    def peek(self) -> str:
        """Return the current line without its end; empty at the end of the text."""
        end = self._text.find("\n", self.at)
        return self._text[self.at : end if end >= 0 else self._size]

    def starts(self, prefix: str) -> bool:
        """Tell whether the current line begins so."""
        return self._text.startswith(prefix, self.at)

    def first(self) -> str:
        """Return the first character of the current line; empty for an empty line."""
        character = self._text[self.at : self.at + 1]
        return "" if character == "\n" else character

    def skip(self) -> None:
        """Go to the next line."""
        end = self._text.find("\n", self.at)
        self.at = end + 1 if end >= 0 else self._size
        self.number += 1

    def take(self) -> str:
        """Return the current line and go to the next one."""
        line = self.peek()
        self.skip()
        return line

    def error(self, problem: str) -> NoncanonicalPatchError:
        """Return the error for the current line."""
        return NoncanonicalPatchError(problem, self.number)


def decoded(name: str) -> str | None:
    """Return the path behind a name that ``NAME`` matches; None when it is none.

    Escapes give bytes, and all bytes together have to be UTF-8 without NUL.
    """
    try:
        raw = _unquoted(name) if name.startswith('"') else name.encode()
        path = raw.decode()
    except UnicodeError:
        return None
    return None if "\0" in path else path


def _unquoted(name: str) -> bytes:
    parts = _ESCAPE.split(name[1:-1])
    result = bytearray(parts[0].encode())
    for escape, plain in zip(parts[1::2], parts[2::2], strict=True):
        result.append(_LETTERS[escape] if escape in _LETTERS else int(escape, 8))
        result += plain.encode()
    return bytes(result)
