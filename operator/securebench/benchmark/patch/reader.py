"""Reads a patch: a sequence of ``diff --git`` sections and nothing else (contract 14.5.2).

Reading takes time linear in the text. The memory for it depends on the number of sections and on
the length of paths, and both are bounded.

In order: sections with the paths that each of them names; a text line by line, without a list or
copies of its lines, and the names in lines; the reader; the bodies of sections, which are hunks,
counted by their numbers, and binary data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from securebench.sizes import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable


class NoncanonicalPatchError(ValueError):
    """The text is no canonical patch; says why and where.

    Args:
        problem: What is wrong.
        line: Number of the line, from 1.
    """

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"line {line}: {problem}")
        self.problem = problem
        self.line = line


class PatchTooLargeError(NoncanonicalPatchError):
    """The patch has more sections or longer paths than are read."""


class Mode(Enum):
    """The modes that git gives to entries of a tree."""

    FILE = "100644"
    PROGRAM = "100755"
    LINK = "120000"
    SUBMODULE = "160000"


class Content(Enum):
    """How a section says what is in the file."""

    NONE = "none"
    HUNKS = "hunks"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Section:
    """What a patch does to one file.

    Attributes:
        start: The byte at which it begins.
        end: Where it ends, exclusive.
        old_path: Decoded, without its prefix.
        new_path: Decoded, without its prefix; equal to ``old_path`` unless the file moves.
        modes: Every mode that the section names.
        content: How it says what is in the file.
        is_copy: Whether ``old_path`` stays as it is.
        is_deletion: Whether nothing is left at ``new_path``.
        is_addition: Whether it makes ``new_path``, also by moving or copying a file.
        target: Text of the symlink that is left, None where there is none or it is not known.
    """

    start: int
    end: int
    old_path: str
    new_path: str
    modes: frozenset[Mode]
    content: Content
    is_copy: bool = False
    is_deletion: bool = False
    is_addition: bool = False
    target: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths that the section declares, the old one first."""
        if self.old_path == self.new_path:
            return (self.old_path,)
        return (self.old_path, self.new_path)

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """Return the paths whose entry is another one afterwards."""
        return (self.new_path,) if self.is_copy else self.paths

    @property
    def is_link(self) -> bool:
        """Tell whether a symlink is left."""
        return Mode.LINK in self.modes and not self.is_deletion


def unique_paths(sections: Iterable[Section]) -> tuple[str, ...]:
    """Return the declared paths in the order of their first appearance."""
    return tuple(dict.fromkeys(path for section in sections for path in section.paths))


def changed_paths(sections: Iterable[Section]) -> tuple[str, ...]:
    """Return what the sections change, in the order of first appearance."""
    return tuple(dict.fromkeys(path for section in sections for path in section.changed_paths))


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


HEADER = b"diff --git "
BINARY = b"GIT binary patch"
NULL = b"/dev/null"
OLD_PREFIX, NEW_PREFIX = "a/", "b/"

SECTIONS = 10_000
"""Sections of one patch; a patch of 10 MiB has them when each is 1 KiB long."""

PATHS_BYTES = MIB
"""Bytes of the paths of all sections together, with what symlinks lead to; 1 MiB, about 100 for
each of 10,000 sections."""

_HEADER = re.compile(b"diff --git (" + NAME + b") (" + NAME + b")")
_NAME = re.compile(NAME)
_MODE = re.compile(rb"[0-7]{6}")
_BODY_NAME = re.compile(b"(" + NAME + b")\t?")
_INDEX = re.compile(rb"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: ([0-7]{6}))?")
_PERCENT = re.compile(rb"\d{1,3}%")
_MODE_KEYS = ("old mode", "new mode", "new file mode", "deleted file mode")
_NAME_KEYS = ("rename from", "rename to", "copy from", "copy to")
_PERCENT_KEYS = ("similarity index", "dissimilarity index")
_KEYS = (*_MODE_KEYS, *_NAME_KEYS, *_PERCENT_KEYS)
_STARTS = {key: f"{key} ".encode() for key in _KEYS}
_PAIRS = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
_ADDITIONS = frozenset({"new file mode", "rename to", "copy to"})
_FROM_NOTHING = b"--- /dev/null"
_EXCLUSIVE = ("new file mode", "deleted file mode", "old mode", "rename from", "copy from")


@dataclass(slots=True)
class _Extended:
    """The lines between a header and its body."""

    modes: dict[str, Mode] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def is_change(self) -> bool:
        """Tell whether the section changes something without a body."""
        return any(key in self.seen for key in _EXCLUSIVE)


def read_patch(text: str | bytes) -> tuple[Section, ...]:
    """Read a patch.

    Args:
        text: The candidate; not blank. A text stands for its UTF-8.

    Returns:
        Its sections, in order; together they are all of its bytes but for blank lines at its end.

    Raises:
        PatchTooLargeError: It has more than ``SECTIONS`` sections, or longer paths.
        NoncanonicalPatchError: It is anything else.
    """
    data = utf8(text)
    end = len(data.rstrip(b" \t\r\n"))
    lines = Lines(data)
    sections: list[Section] = []
    paths_bytes = 0
    while lines.at < end:
        if len(sections) == SECTIONS:
            raise lines.too_large(f"the patch has more than {SECTIONS} sections")
        sections.append(_read_section(lines))
        named = (*sections[-1].paths, sections[-1].target or "")
        paths_bytes += sum(len(path.encode()) for path in named)
        if paths_bytes > PATHS_BYTES:
            raise lines.too_large(f"its paths have more than {PATHS_BYTES} bytes together")
    if not sections:
        raise lines.error("there is no diff --git section")
    return tuple(sections)


def render(text: str | bytes, sections: tuple[Section, ...]) -> bytes:
    """Return a patch of some of the sections of a text, complete at its end as git wants it."""
    view = memoryview(utf8(text))
    pieces = [view[section.start : section.end] for section in sections]
    end = bytes(pieces[-1][-2:]) if pieces else b"\n"
    missing = b"" if end.endswith(b"\n") else b"\n"
    if sections and sections[-1].content is Content.BINARY and end + missing != b"\n\n":
        missing += b"\n"
    return b"".join((*pieces, missing))


def _read_section(lines: Lines) -> Section:
    start = lines.at
    old_path, new_path = _read_header(lines)
    extended = _read_extended(lines)
    _check_extended(lines, extended, old_path, new_path)
    modes = _one_set(frozenset(extended.modes.values()))
    is_deletion = "deleted file mode" in extended.seen
    is_from_nothing = lines.starts(_FROM_NOTHING)
    new = NewSide() if Mode.LINK in modes and not is_deletion else None
    content = _read_body(lines, old_path, new_path, new)
    if content is Content.NONE and not extended.is_change:
        raise lines.error("a section changes nothing")
    return Section(
        start=start,
        end=lines.at,
        old_path=old_path,
        new_path=new_path,
        modes=modes,
        content=content,
        is_copy="copy from" in extended.names,
        is_deletion=is_deletion,
        is_addition=is_from_nothing or not _ADDITIONS.isdisjoint(extended.seen),
        target=_target(new, content),
    )


@cache
def _one_set(modes: frozenset[Mode]) -> frozenset[Mode]:
    """Return the same object for equal sets: a patch has thousands of sections, few are unlike."""
    return modes


def _read_header(lines: Lines) -> tuple[str, str]:
    if not lines.starts(HEADER):
        raise lines.error("text outside of diff --git sections")
    match = lines.match(_HEADER)
    if match is None:
        raise lines.error("the header is not diff --git a/… b/… with names quoted as git does")
    paths = _path(lines, match[1], OLD_PREFIX), _path(lines, match[2], NEW_PREFIX)
    lines.skip()
    return paths


def _path(lines: Lines, name: bytes, prefix: str) -> str:
    path = lines.path(name)
    if not path.startswith(prefix) or path == prefix:
        raise lines.error(f"a name does not begin with {prefix}")
    return path[len(prefix) :]


def _read_extended(lines: Lines) -> _Extended:
    result = _Extended()
    while not lines.is_at_end:
        if lines.starts(b"index "):
            _read_index(lines, result)
            continue
        key = next((key for key, start in _STARTS.items() if lines.starts(start)), None)
        if key is None:
            break
        if key in result.seen:
            raise lines.error(f"{key} stands twice")
        result.seen.add(key)
        _read_value(lines, key, result)
        lines.skip()
    return result


def _read_index(lines: Lines, result: _Extended) -> None:
    match = lines.match(_INDEX)
    if match is None or "index" in result.seen:
        raise lines.error("the index line is damaged or stands twice")
    result.seen.add("index")
    if match[1] is not None:
        result.modes["index"] = _mode(lines, match[1])
    lines.skip()


def _read_value(lines: Lines, key: str, result: _Extended) -> None:
    skipped = len(_STARTS[key])
    if key in _MODE_KEYS:
        value = lines.match(_MODE, skipped)
        result.modes[key] = _mode(lines, value[0] if value is not None else b"")
    elif key in _NAME_KEYS:
        name = lines.match(_NAME, skipped)
        if name is None:
            raise lines.error(f"the name after {key} is not quoted as git does")
        result.names[key] = lines.path(name[0])
    elif lines.match(_PERCENT, skipped) is None:
        raise lines.error(f"{key} is no percentage")


def _mode(lines: Lines, value: bytes) -> Mode:
    try:
        return Mode(value.decode())
    except ValueError:
        raise lines.error("a mode that git does not give to files") from None


def _check_extended(lines: Lines, extended: _Extended, old_path: str, new_path: str) -> None:
    """Refuse lines that contradict each other or the header."""
    for first, second in _PAIRS:
        if (first in extended.seen) != (second in extended.seen):
            raise lines.error(f"{first} and {second} belong together")
    if sum(key in extended.seen for key in ("new file mode", "deleted file mode")) and (
        sum(key in extended.seen for key in _EXCLUSIVE) > 1
    ):
        raise lines.error("a new or deleted file has no other change")
    if "rename from" in extended.seen and "copy from" in extended.seen:
        raise lines.error("a file is renamed or copied, not both")
    for key, name in extended.names.items():
        if name != (old_path if key.endswith("from") else new_path):
            raise lines.error(f"the name after {key} is not the header's")


def _read_body(lines: Lines, old_path: str, new_path: str, new: NewSide | None) -> Content:
    if lines.equals(BINARY):
        _read_binary(lines)
        return Content.BINARY
    if not lines.starts(b"--- "):
        return Content.NONE
    old_is_null = _read_body_name(lines, b"--- ", OLD_PREFIX, old_path)
    new_is_null = _read_body_name(lines, b"+++ ", NEW_PREFIX, new_path)
    if old_is_null and new_is_null:
        raise lines.error("both names of a section are /dev/null")
    _read_hunks(lines, new)
    return Content.HUNKS


def _read_body_name(lines: Lines, sign: bytes, prefix: str, path: str) -> bool:
    """Read a ``---`` or ``+++`` line; git puts a tab behind names with blanks."""
    shown = sign.decode().strip()
    if not lines.starts(sign):
        raise lines.error(f"a line that begins with {shown} is missing")
    name = lines.match(_BODY_NAME, len(sign))
    is_null = name is not None and name[1] == NULL
    if name is None or (not is_null and _path(lines, name[1], prefix) != path):
        raise lines.error(f"the name after {shown} is not the header's")
    lines.skip()
    return is_null


def _target(new: NewSide | None, content: Content) -> str | None:
    if new is None or content is not Content.HUNKS or not new.is_whole:
        return None
    try:
        return b"".join(new.lines).decode() or None
    except UnicodeDecodeError:
        return None


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


def _read_hunks(lines: Lines, new: NewSide | None) -> None:
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


def _read_binary(lines: Lines) -> None:
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
