"""Results of pack audits on the results volume: one small file for each digest and version.

``audits/<hex of the pack digest>/<verifier version>.json``; the newest result replaces the one
before. What a tester hands in is its word, as its packs are: who may upload packs may write it.

Source: contract 21.22, decision 0026.
"""

from __future__ import annotations

from pathlib import Path

from securebench.core.digests import PREFIX
from securebench.core.errors import InvalidInputError
from securebench.files.durable import make_folder, replace_file
from securebench.protocol.audit_result import MAX_BYTES, AuditResult, PackAudit, decode_audit
from securebench.run import layout


def write_audit(root: Path, result: AuditResult) -> None:
    """Keep a result; it replaces an earlier one of this pack and these verifiers. Blocks.

    Args:
        root: Root of the results volume.
        result: See AuditResult.
    """
    path = _path(root, result.pack_digest, result.verifier_version)
    make_folder(path.parent)
    replace_file(path, result.encode())


def pack_audit(root: Path, pack_digest: str, verifier_version: str) -> PackAudit:
    """Return the result of the latest audit of a pack. Blocks.

    Args:
        root: Root of the results volume.
        pack_digest: ``sha256:…`` of contract 15.6.
        verifier_version: Version of the verifiers that will judge.

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
