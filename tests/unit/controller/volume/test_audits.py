"""Results of audits: bound to one pack digest and one version of the verifiers; the newest wins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.controller.volume.registers import pack_audit, write_audit
from securebench.errors import InvalidInputError
from securebench.protocol.volume import AuditResult, PackAudit, decode_audit

DIGEST = "sha256:" + "0a" * 32
OTHER = "sha256:" + "0b" * 32
RESULT = AuditResult(DIGEST, "1", PackAudit.PASSED, "2026-11-23T03:00:00Z", 3, {"passed": 12})


def told(**changes: object) -> bytes:
    return json.dumps(json.loads(RESULT.encode()) | changes).encode()


def test_a_result_counts_for_its_digest_and_version_alone(tmp_path: Path) -> None:
    write_audit(tmp_path, RESULT)

    assert pack_audit(tmp_path, DIGEST, "1") is PackAudit.PASSED
    assert pack_audit(tmp_path, OTHER, "1") is PackAudit.NONE
    assert pack_audit(tmp_path, DIGEST, "2") is PackAudit.NONE


def test_the_newest_result_counts(tmp_path: Path) -> None:
    write_audit(tmp_path, RESULT)
    write_audit(tmp_path, replace(RESULT, result=PackAudit.FAILED))
    assert pack_audit(tmp_path, DIGEST, "1") is PackAudit.FAILED


def test_a_file_that_tells_of_another_pack_says_nothing(tmp_path: Path) -> None:
    write_audit(tmp_path, RESULT)
    (file,) = tmp_path.rglob("1.json")
    file.write_bytes(replace(RESULT, pack_digest=OTHER).encode())
    assert pack_audit(tmp_path, DIGEST, "1") is PackAudit.NONE


@pytest.mark.parametrize("content", [b"", b"{", b"[]", told(result="certified")])
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    write_audit(tmp_path, RESULT)
    (file,) = tmp_path.rglob("1.json")
    file.write_bytes(content)
    assert pack_audit(tmp_path, DIGEST, "1") is PackAudit.NONE


def test_a_result_is_read_as_it_was_written() -> None:
    assert decode_audit(RESULT.encode()) == RESULT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        told(result="none"),
        told(result="good"),
        told(pack_digest="sha256:1"),
        told(pack_digest="../../x"),
        told(verifier_version="../x"),
        told(verifier_version=""),
        told(further=1),
        told(counts=[1]),
    ],
)
def test_what_is_no_result_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        decode_audit(data)
