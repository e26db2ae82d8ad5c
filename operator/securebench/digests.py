"""SHA-256 digests as all of ours are written: ``sha256:`` and 64 hexadecimal digits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

PREFIX = "sha256:"
PATTERN = PREFIX + "[0-9a-f]{64}"
"""Regular expression of a whole digest."""
DIGEST: Final = re.compile(PATTERN)
"""Matches a whole digest with ``fullmatch``."""


def content_digest(content: bytes) -> str:
    """Return the digest of some bytes."""
    return PREFIX + hashlib.sha256(content).hexdigest()


def json_digest(value: Mapping[str, object]) -> str:
    """Return the digest of a JSON object in canonical form: sorted keys, no blanks, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return content_digest(text.encode())


def listing_digest(entries: Iterable[tuple[bytes, str]]) -> str:
    """Return the digest of a list of files.

    Returns:
        The digest over path, NUL, content and LF of every entry.

    Source: docs/reference/protocol.md, "The volume".
    """
    total = hashlib.sha256()
    for path, content in entries:
        total.update(path + b"\0" + content.encode("ascii") + b"\n")
    return PREFIX + total.hexdigest()
