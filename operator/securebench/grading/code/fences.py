"""The candidate in a text that is no Python: its one fenced block.

People and models hand in code as chat answers show it. Where the interpreter that would run the
text cannot compile it, the text's fenced block is the candidate, if there is exactly one, or
exactly one that is marked as Python. What stands around it is never run. Fences are those of
CommonMark, also in lists and quotes, where they are indented as far as what they stand in.
"""

from __future__ import annotations

import re
import warnings
from typing import NamedTuple

from .judging import FILE

FENCED = "fenced"
"""Word of a proof: the candidate was a fenced block of its text."""

MARKS = (b"python", b"python3", b"py")

DEPTH = 16
"""So many lists and quotes within one another are read."""

TAB = 4
BOM = b"\xef\xbb\xbf"

_FENCE = re.compile(rb"( {0,3})(`{3,}|~{3,})(.*)", re.DOTALL)
_MARK = re.compile(rb"[ \t{.]*([\w+#-]*)")
_QUOTE = re.compile(rb" {0,3}> ?")
_ITEM = re.compile(rb"( {0,3}(?:[-+*]|[0-9]{1,9}[.)]))( *)")

_QUOTED = 0
"""A quote among the containers; a list item is the number of columns before its content."""


class Chosen(NamedTuple):
    """What is run of a text, and what the tests' stderr says of that, if anything."""

    source: bytes
    told: str = ""
    is_fenced: bool = False


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        line: Where it begins.
        mark: The word behind its fence, in small letters.
        columns: How far its fence is indented.
        lines: What it holds, each with its end.
    """

    line: int
    mark: bytes
    columns: int
    lines: list[bytes]

    def code(self) -> bytes:
        """Return its lines without the indent of the fence, as far as the first one has it."""
        first = next(filter(bytes.strip, self.lines), b"")
        columns = min(self.columns, _indent(first))
        return b"".join(line[min(columns, _indent(line)) :] for line in self.lines)


def candidate_in(text: bytes) -> Chosen:
    """Return what a text hands in: the whole of it, or its one fenced block."""
    blocks = fenced_blocks(text)
    if not blocks or _is_python(text):
        return Chosen(text)
    marked = [block for block in blocks if block.mark in MARKS]
    chosen = blocks if len(blocks) == 1 else marked
    told = f"the candidate is no Python and has {len(blocks)} fenced blocks"
    if len(chosen) != 1:
        return Chosen(text, f"{told}, {len(marked)} of them marked python; one is needed")
    (block,) = chosen
    source = block.code().rstrip(b"\r\n") + b"\n"
    return Chosen(source, f"the fenced block in line {block.line} is the candidate", True)  # noqa: FBT003


def fenced_blocks(text: bytes) -> list[Block]:
    """Return the fenced blocks of a text, in time that is linear in its length."""
    blocks: list[Block] = []
    containers: list[int] = []
    fence = None
    lines = text[len(BOM) if text.startswith(BOM) else 0 :].splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        rest, depth = _within(_spaced(line, containers, fence), containers)
        if fence is not None and depth == len(containers):
            if _ends(rest, fence[2]):
                fence = None
            else:
                blocks[-1].lines.append(rest)
            continue
        del containers[depth:]
        fence = _FENCE.match(_entered(rest, containers))
        if fence is not None and fence[2][:1] == b"`" and b"`" in fence[3]:
            fence = None  # code within a line
        if fence is not None:
            blocks.append(Block(number, _mark(fence[3]), len(fence[1]), []))
    return blocks


def _spaced(line: bytes, containers: list[int], fence: object) -> bytes:
    """Return a line in which columns can be counted; code keeps the tabs behind its indent."""
    if fence is None:
        return line.expandtabs(TAB)
    if not containers:
        return line
    rest = line.lstrip(b" \t")
    return line[: len(line) - len(rest)].expandtabs(TAB) + rest


def _within(line: bytes, containers: list[int]) -> tuple[bytes, int]:
    """Return the rest of a line behind the containers that it goes on with, and how many."""
    for depth, columns in enumerate(containers):
        quote = _QUOTE.match(line)
        if columns == _QUOTED and quote is not None:
            line = line[quote.end() :]
        elif columns != _QUOTED and not line[:columns].strip():
            line = line[columns:] or line  # one that is blank belongs to every list item
        else:
            return line, depth
    return line, len(containers)


def _entered(line: bytes, containers: list[int]) -> bytes:
    """Return the rest of a line behind the quotes and list items that it begins."""
    while len(containers) < DEPTH:
        quote, item = _QUOTE.match(line), _ITEM.match(line)
        if quote is not None:
            containers.append(_QUOTED)
            line = line[quote.end() :]
        elif item is not None and (item[2] or not line[item.end() :].strip()):
            blanks = len(item[2]) if line[item.end() :].strip() else 1
            columns = len(item[1]) + (blanks if blanks <= TAB else 1)
            containers.append(columns)
            line = line[columns:]
        else:
            break
    return line


def _ends(line: bytes, fence: bytes) -> bool:
    end = _FENCE.match(line)
    return end is not None and end[2].startswith(fence) and not end[3].strip()


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" "))


def _mark(words: bytes) -> bytes:
    found = _MARK.match(words)
    return found[1].lower() if found is not None else b""


def _is_python(text: bytes) -> bool:
    """Tell whether this interpreter compiles a text, as it does to import it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(text, FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return False
    return True
