"""How much of what untrusted code hands over is kept (contract 15.7)."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import NamedTuple

from securebench.sizes import GIB, MIB

RECORD_BYTES = 16 * MIB
"""One line of candidates.jsonl."""

UTF8_CONTINUATIONS = 3
"""A UTF-8 character has at most this many bytes after its first one."""

CONTINUATION_BYTES = range(0x80, 0xC0)


@dataclass(frozen=True, slots=True)
class CandidateBounds:
    """Bounds in bytes, and of a workspace also in entries."""

    text_bytes: int = MIB
    """Candidate text or code."""

    patch_bytes: int = 10 * MIB
    """Candidate patch."""

    workspace_bytes: int = GIB
    """File contents and names of a candidate workspace together; sparse files count in full."""

    workspace_files: int = 100_000
    """Entries of a candidate workspace: files, folders, links and whatever is dropped."""

    stream_bytes: int = MIB
    """Stdout and stderr, each."""


class BoundedText(NamedTuple):
    """A text as it is kept, and whether something was left out."""

    text: str
    truncated: bool


def bounded_text(head: bytes, tail: bytes, total: int, limit: int) -> BoundedText:
    """Return a stream as text of about ``limit`` bytes: its first and its last half.

    Args:
        head: The first bytes of the stream.
        tail: The last bytes of what came after the head; empty when nothing came.
        total: How long the stream really was.
        limit: How many bytes are kept.

    Returns:
        The text, with U+FFFD for what is not UTF-8. Cuts never split a character; between the
        halves stands a line that counts what is missing.
    """
    total = max(total, len(head) + len(tail))
    kept = head + tail
    is_whole = len(kept) == total
    if is_whole and total <= limit:
        return BoundedText(kept.decode("utf-8", "replace"), truncated=False)
    half = limit // 2
    first, first_bytes = _beginning(head[:half])
    last = _whole_characters((kept if is_whole else tail)[-half:] if half else b"")
    omitted = total - first_bytes - len(last)
    line = f"[securebench: {omitted} of {total} bytes omitted]\n"
    separator = "" if not first or first.endswith("\n") else "\n"
    return BoundedText(first + separator + line + last.decode("utf-8", "replace"), truncated=True)


def _beginning(data: bytes) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    pending, _ = decoder.getstate()
    return text, len(data) - len(pending)


def _whole_characters(data: bytes) -> bytes:
    start = 0
    while start < min(UTF8_CONTINUATIONS, len(data)) and data[start] in CONTINUATION_BYTES:
        start += 1
    return data[start:]
