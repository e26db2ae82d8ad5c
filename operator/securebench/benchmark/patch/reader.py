"""Reads a patch: a sequence of ``diff --git`` sections and nothing else (contract 14.5.2).

Reading takes time linear in the text. The memory for it depends on the number of sections and on
the length of paths, and both are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from securebench.benchmark.patch.body import NewSide, read_binary, read_hunks
from securebench.benchmark.patch.lines import NAME, Lines, utf8
from securebench.benchmark.patch.sections import Content, Mode, Section
from securebench.sizes import MIB

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
        read_binary(lines)
        return Content.BINARY
    if not lines.starts(b"--- "):
        return Content.NONE
    old_is_null = _read_body_name(lines, b"--- ", OLD_PREFIX, old_path)
    new_is_null = _read_body_name(lines, b"+++ ", NEW_PREFIX, new_path)
    if old_is_null and new_is_null:
        raise lines.error("both names of a section are /dev/null")
    read_hunks(lines, new)
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
