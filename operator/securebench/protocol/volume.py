"""Files of a run on the results volume, and the forms of those that more than one process reads.

What an agent prints is a file beside a launch's streams, for those who watch it work: the courier
writes it, the operator's Pod reads it to a tester; nothing is judged by it.

A line of the journal is ``<link> <checksum> <JSON of {"type", "entry"}>``: the link is the checksum
of the line before, of the first line the CRC-32 of the run's uid; the checksum is the CRC-32 of
link, blank and JSON; both are 8 hex digits.

The operator also writes what the launches of a run wait for, for the command line.
The result of a pack's audit is handed in by a tester and kept on the volume.
Source: docs/reference/protocol.md, exec; contract 21.22; decisions 0026 and 0100.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from securebench.digests import DIGEST
from securebench.errors import InvalidInputError
from securebench.json_values import objects_at, text_at, text_in
from securebench.protocol.messages import decode_object
from securebench.sizes import KIB, MIB

RECORD = "record.json"
CANDIDATES = "candidates.jsonl"
SUMMARY = "summary.json"
RUN = "run.json"
JOURNAL = "journal.jsonl"
FINAL_STATUS = "status.json"
PARKED = "parked.json"
LAUNCH_WAITS = "launch-waits.json"
"""What launches of the run wait for, for those who watch it; no decision depends on it."""
PACKS = "packs"
"""Folder of the packs, relative to the volume's root."""
KEEP = "KEEP"
"""A file of this name in the folder of a run keeps it from retention, whatever its content."""
EGRESS = "egress.jsonl"
ATTEMPT_LIST = "attempts.jsonl"
STATEMENT = "statement.dsse.json"
STARTS = "starts.jsonl"
"""Every run that was started on the volume; it lies beside the folders of the runs."""


LIVE_OUTPUT: Final = "live-stdout"
"""Name of the file."""

LIVE_FILES: Final = {"stdout": LIVE_OUTPUT, "stderr": "live-stderr"}
"""Names of the files of both streams."""

LIVE_BYTES: Final = MIB
"""Most bytes of a file; what comes later is in the task's record."""


CRC_DIGITS = 8


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


MAX_WAIT_CHARACTERS: Final = 400
"""Of one message; a longer one is cut."""

MAX_WAIT_MESSAGES: Final = 100
"""Different messages in the file; Pods with another one wait for ``OTHER_WAIT``."""

OTHER_WAIT: Final = "its Pod has not begun"

MAX_WAITS_BYTES: Final = MIB
"""Longest file that is read; that of 1,000 Pods, as many as a run may have, is shorter."""

_WAITS: Final = "waits"


@dataclass(frozen=True, slots=True)
class SharedWait:
    """What one or more Pods of a run wait for.

    Attributes:
        message: One clause without a full stop and without an age; quotes the cluster.
        pods: Names of the Pods, sorted.
        has_begun: Whether their main container runs, and what runs in it waits.
    """

    message: str
    pods: tuple[str, ...]
    has_begun: bool = False


def shared_waits(messages: Mapping[tuple[str, bool], Iterable[str]]) -> tuple[SharedWait, ...]:
    """Return waits within the bounds of the file, those of the most Pods first.

    Args:
        messages: Names of Pods by what they wait for, and by whether they have begun.
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for (message, has_begun), pods in messages.items():
        found.setdefault((_cut(message), has_begun), []).extend(pods)
    order = sorted(found, key=lambda key: (-len(found[key]), key))
    kept = {key: found[key] for key in order[:MAX_WAIT_MESSAGES]}
    others = [pod for key in order[MAX_WAIT_MESSAGES:] if not key[1] for pod in found[key]]
    if others:
        kept.setdefault((OTHER_WAIT, False), []).extend(others)
    return tuple(
        SharedWait(message, tuple(sorted(pods)), has_begun)
        for (message, has_begun), pods in kept.items()
    )


def encode_waits(waits: Iterable[SharedWait]) -> dict[str, object]:
    """Return the content of the file."""
    return {_WAITS: [asdict(each) for each in waits]}


def decode_waits(text: bytes) -> tuple[SharedWait, ...]:
    """Return the waits of a file; fields that are not known are left out.

    Raises:
        ValueError: It is no JSON object.
    """
    return tuple(
        SharedWait(text_at(each, "message"), _names(each), each.get("has_begun") is True)
        for each in objects_at(decode_object(text), _WAITS)
    )


def _names(values: Mapping[str, object]) -> tuple[str, ...]:
    names = values.get("pods")
    return tuple(map(text_in, names)) if isinstance(names, list) else ()


def _cut(message: str) -> str:
    return (
        message if len(message) <= MAX_WAIT_CHARACTERS else f"{message[: MAX_WAIT_CHARACTERS - 1]}…"
    )


MAX_AUDIT_BYTES: Final = 16 * KIB
"""Of one result; more than anything that this version writes."""

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,31}")


class PackAudit(StrEnum):
    """What the newest audit of a pack said (contract 21.22)."""

    PASSED = "passed"
    FAILED = "failed"
    NONE = "none"
    """Nobody audited this pack with these verifiers on this volume."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit.

    Attributes:
        pack_digest: ``sha256:…`` of contract 15.6 of what was audited.
        verifier_version: Version of the verifiers that judged its runs.
        result: ``passed`` or ``failed``.
        time: When it ended, RFC 3339, UTC.
        tasks: Rows that were inspected.
        counts: Findings by outcome.
    """

    pack_digest: str
    verifier_version: str
    result: PackAudit
    time: str
    tasks: int
    counts: dict[str, int]

    def encode(self) -> bytes:
        """Return the result as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()


_ADAPTER: Final = TypeAdapter(AuditResult)


def decode_audit(data: bytes) -> AuditResult:
    """Return the result that JSON holds.

    Raises:
        InvalidInputError: It holds none, or one that says nothing.
    """
    try:
        found = _ADAPTER.validate_json(data, extra="forbid")
    except ValidationError:
        raise InvalidInputError("this is no result of an audit; the versions differ") from None
    if DIGEST.fullmatch(found.pack_digest) is None:
        raise InvalidInputError("the result of an audit needs the digest of its pack")
    if _VERSION.fullmatch(found.verifier_version) is None or found.result is PackAudit.NONE:
        raise InvalidInputError("the result of an audit needs a verifier version and a verdict")
    return found
