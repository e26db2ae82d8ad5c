"""The result of a pack audit, as testers hand it in and the volume keeps it.

Source: contract 21.22, decision 0026.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from pydantic import TypeAdapter, ValidationError

from securebench.digests import DIGEST
from securebench.errors import InvalidInputError
from securebench.sizes import KIB

MAX_BYTES: Final = 16 * KIB
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
