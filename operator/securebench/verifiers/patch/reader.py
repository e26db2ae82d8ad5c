"""Reads a patch: a sequence of ``diff --git`` sections and nothing else (contract 14.5.2).

Reading takes time linear in the text and memory linear in the number of sections.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from securebench.verifiers.patch.body import NewSide, read_binary, read_hunks
from securebench.verifiers.patch.lines import NAME, Lines, decoded
from securebench.verifiers.patch.model import Content, Mode, Section

HEADER = "diff --git "
BINARY = "GIT binary patch"
NULL = "/dev/null"
OLD_PREFIX, NEW_PREFIX = "a/", "b/"

_HEADER = re.compile(rf"diff --git ({NAME}) ({NAME})")
_INDEX = re.compile(r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: ([0-7]{6}))?")
_PERCENT = re.compile(r"\d{1,3}%", re.ASCII)
_MODE_KEYS = ("old mode", "new mode", "new file mode", "deleted file mode")
_NAME_KEYS = ("rename from", "rename to", "copy from", "copy to")
_PERCENT_KEYS = ("similarity index", "dissimilarity index")
_KEYS = (*_MODE_KEYS, *_NAME_KEYS, *_PERCENT_KEYS)
_PAIRS = (("old mode", "new mode"), ("rename from", "rename to"), ("copy from", "copy to"))
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


def read_patch(text: str) -> tuple[Section, ...]:
    """Read a patch.

    Args:
        text: The candidate; not blank.

    Returns:
        Its sections, in order; together they are the whole text but for blank lines at its end.

    Raises:
        NoncanonicalPatchError: It is anything else.
    """
    end = len(text.rstrip(" \t\r\n"))
    lines = Lines(text)
    sections = []
    while lines.at < end:
        sections.append(_read_section(lines))
    if not sections:
        raise lines.error("there is no diff --git section")
    return tuple(sections)


def render(text: str, sections: tuple[Section, ...]) -> str:
    """Return a patch of some of the sections of a text, complete at its end as git wants it."""
    result = "".join(text[section.start : section.end] for section in sections)
    if result and not result.endswith("\n"):
        result += "\n"
    if sections and sections[-1].content is Content.BINARY and not result.endswith("\n\n"):
        result += "\n"
    return result


def _read_section(lines: Lines) -> Section:
    start = lines.at
    old_path, new_path = _read_header(lines)
    extended = _read_extended(lines)
    _check_extended(lines, extended, old_path, new_path)
    modes = frozenset(extended.modes.values())
    is_deletion = "deleted file mode" in extended.seen
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
        target=_target(new, content),
    )


def _read_header(lines: Lines) -> tuple[str, str]:
    line = lines.peek()
    if not line.startswith(HEADER):
        raise lines.error("text outside of diff --git sections")
    match = _HEADER.fullmatch(line)
    if match is None:
        raise lines.error("the header is not diff --git a/… b/… with names quoted as git does")
    paths = _path(lines, match[1], OLD_PREFIX), _path(lines, match[2], NEW_PREFIX)
    lines.skip()
    return paths


def _path(lines: Lines, name: str, prefix: str) -> str:
    path = _decoded(lines, name)
    if not path.startswith(prefix) or path == prefix:
        raise lines.error(f"a name does not begin with {prefix}")
    return path[len(prefix) :]


def _decoded(lines: Lines, name: str) -> str:
    path = decoded(name)
    if path is None:
        raise lines.error("a name is not UTF-8 text")
    return path


def _read_extended(lines: Lines) -> _Extended:
    result = _Extended()
    while not lines.is_at_end:
        if lines.starts("index "):
            _read_index(lines, result)
            continue
        key = next((key for key in _KEYS if lines.starts(key + " ")), None)
        if key is None:
            break
        if key in result.seen:
            raise lines.error(f"{key} stands twice")
        result.seen.add(key)
        _read_value(lines, key, lines.peek()[len(key) + 1 :], result)
        lines.skip()
    return result


def _read_index(lines: Lines, result: _Extended) -> None:
    match = _INDEX.fullmatch(lines.peek())
    if match is None or "index" in result.seen:
        raise lines.error("the index line is damaged or stands twice")
    result.seen.add("index")
    if match[1] is not None:
        result.modes["index"] = _mode(lines, match[1])
    lines.skip()


def _read_value(lines: Lines, key: str, value: str, result: _Extended) -> None:
    if key in _MODE_KEYS:
        result.modes[key] = _mode(lines, value)
    elif key in _NAME_KEYS:
        if re.fullmatch(NAME, value) is None:
            raise lines.error(f"the name after {key} is not quoted as git does")
        result.names[key] = _decoded(lines, value)
    elif _PERCENT.fullmatch(value) is None:
        raise lines.error(f"{key} is no percentage")


def _mode(lines: Lines, value: str) -> Mode:
    try:
        return Mode(value)
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
    if lines.peek() == BINARY:
        read_binary(lines)
        return Content.BINARY
    if not lines.starts("--- "):
        return Content.NONE
    old_is_null = _read_body_name(lines, "--- ", OLD_PREFIX, old_path)
    new_is_null = _read_body_name(lines, "+++ ", NEW_PREFIX, new_path)
    if old_is_null and new_is_null:
        raise lines.error("both names of a section are /dev/null")
    read_hunks(lines, new)
    return Content.HUNKS


def _read_body_name(lines: Lines, sign: str, prefix: str, path: str) -> bool:
    """Read a ``---`` or ``+++`` line; git puts a tab behind names with blanks."""
    line = lines.peek()
    name = line[len(sign) :].removesuffix("\t")
    if not line.startswith(sign):
        raise lines.error(f"a line that begins with {sign.strip()} is missing")
    is_null = name == NULL
    if not is_null and (re.fullmatch(NAME, name) is None or _path(lines, name, prefix) != path):
        raise lines.error(f"the name after {sign.strip()} is not the header's")
    lines.skip()
    return is_null


def _target(new: NewSide | None, content: Content) -> str | None:
    if new is None or content is not Content.HUNKS or not new.is_whole:
        return None
    return "".join(new.lines) or None
