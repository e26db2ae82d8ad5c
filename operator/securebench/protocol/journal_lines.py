"""The chain of checksums that makes the lines of a run's journal one text, and their names.

A line is ``<link> <checksum> <JSON of {"type", "entry"}>``: the link is the checksum of the line
before, of the first line the CRC-32 of the run's uid; the checksum is the CRC-32 of link, blank and
JSON; both are 8 hex digits.
"""

from __future__ import annotations

import zlib
from enum import StrEnum
from typing import NamedTuple

CRC_DIGITS = 8


class EntryName(StrEnum):
    """Names of entries in the journal: part of its format, whatever the classes are called."""

    CONTINUED = "Continued"
    RUN_BOUND = "RunBound"
    OPENED = "Opened"
    CLOSED = "Closed"
    LAUNCH_BEGUN = "LaunchBegun"
    READ_BEGUN = "ReadBegun"
    LAUNCH_LOST = "LaunchLost"
    PRODUCED = "Produced"
    VERIFIED = "Verified"
    FINISHED = "Finished"
    KEPT = "Kept"
    CANDIDATE_KEPT = "CandidateKept"
    ISOLATED = "Isolated"
    RUN_ENDED = "RunEnded"


class JournalLine(NamedTuple):
    """A whole line: its checksum matches.

    Attributes:
        link: Checksum of the line that it was written behind.
        checksum: Its own.
        body: Its JSON.
    """

    link: bytes
    checksum: bytes
    body: bytes


def first_link(run_uid: str) -> bytes:
    """Return what the first line of a run's journal links to."""
    return _crc(run_uid.encode())


def checksum(link: bytes, body: bytes) -> bytes:
    """Return the checksum of a line."""
    return _crc(b"%b %b" % (link, body))


def whole_line(data: bytes) -> JournalLine | None:
    """Return a line without its newline in its parts; None when its checksum does not match."""
    link, _, rest = data.partition(b" ")
    own, _, body = rest.partition(b" ")
    is_whole = len(link) == CRC_DIGITS and own == checksum(link, body)
    return JournalLine(link, own, body) if is_whole else None


def _crc(data: bytes) -> bytes:
    return b"%08x" % zlib.crc32(data)
