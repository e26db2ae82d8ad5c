"""Results of pack audits on the results volume: one small file for each digest and version.

``audits/<hex of the pack digest>/<verifier version>.json``; the newest result replaces the one
before. What a tester hands in is its word, as its packs are: who may upload packs may write it.

Source: contract 21.22, decision 0026.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from securebench.core.digests import PATTERN, PREFIX
from securebench.core.errors import InvalidInputError
from securebench.files.durable import make_folder, replace_file
from securebench.run import layout
from securebench.run.plan.model import PackAudit

MAX_BYTES: Final = 16 * 1024
"""Of one result; more than anything that this version writes."""

_DIGEST: Final = re.compile(PATTERN)
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]{0,31}")


@dataclass(frozen=True, slots=True)
class AuditResult:
    """One audit.

    Attributes:
        pack_digest: ``sha256:…`` of contract 15.6 of what was audited.
        verifier_version: Of the verifiers that judged its runs.
        result: ``passed`` or ``failed``.
        time: When it ended, RFC 3339, UTC.
        tasks: Rows that were looked at.
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
    if _DIGEST.fullmatch(found.pack_digest) is None:
        raise InvalidInputError("the result of an audit needs the digest of its pack")
    if _VERSION.fullmatch(found.verifier_version) is None or found.result is PackAudit.NONE:
        raise InvalidInputError("the result of an audit needs a verifier version and a verdict")
    return found


def write_audit(root: Path, result: AuditResult) -> None:
    """Keep a result; it replaces an earlier one of this pack and these verifiers. Blocks.

    Args:
        root: Of the results volume.
        result: See AuditResult.
    """
    path = _path(root, result.pack_digest, result.verifier_version)
    make_folder(path.parent)
    replace_file(path, result.encode())


def pack_audit(root: Path, pack_digest: str, verifier_version: str) -> PackAudit:
    """Return what the newest audit said of a pack. Blocks.

    Args:
        root: Of the results volume.
        pack_digest: ``sha256:…`` of contract 15.6.
        verifier_version: Of the verifiers that will judge.

    Returns:
        ``none`` also where the file is damaged or tells of another pack.
    """
    try:
        data = _path(root, pack_digest, verifier_version).read_bytes()
        found = decode_audit(data[:MAX_BYTES])
    except (FileNotFoundError, InvalidInputError):
        return PackAudit.NONE
    told = (found.pack_digest, found.verifier_version)
    return found.result if told == (pack_digest, verifier_version) else PackAudit.NONE


def _path(root: Path, pack_digest: str, verifier_version: str) -> Path:
    return root / layout.AUDITS / pack_digest.removeprefix(PREFIX) / f"{verifier_version}.json"
