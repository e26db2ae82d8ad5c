from __future__ import annotations

import pytest

from securebench.benchmark.scorers.result import CandidateArtifact
from securebench.protocol.candidate import CandidateBounds, bounded_text


def test_defaults_are_the_contract_s() -> None:
    assert CandidateBounds() == CandidateBounds(1 << 20, 10 << 20, 1 << 30, 100_000, 1 << 20)


@pytest.mark.parametrize(
    ("head", "tail", "total", "limit", "want"),
    [
        pytest.param(b"", b"", 0, 10, ("", False), id="nothing"),
        pytest.param(b"0123456789", b"", 10, 10, ("0123456789", False), id="exactly the limit"),
        pytest.param(b"01234", b"56789", 10, 10, ("0123456789", False), id="whole in two parts"),
        pytest.param(
            b"0123456789a",
            b"",
            11,
            10,
            ("01234\n[securebench: 1 of 11 bytes omitted]\n6789a", True),
            id="one byte too long",
        ),
        pytest.param(
            b"0123456789",
            b"vwxyz",
            1000,
            10,
            ("01234\n[securebench: 990 of 1000 bytes omitted]\nvwxyz", True),
            id="a gap",
        ),
        pytest.param(
            b"0123\n56789",
            b"vwxyz",
            1000,
            10,
            ("0123\n[securebench: 990 of 1000 bytes omitted]\nvwxyz", True),
            id="the first half ends a line",
        ),
        pytest.param(
            "ab€€€".encode(),
            "€€yz".encode(),
            1000,
            10,
            ("ab€\n[securebench: 990 of 1000 bytes omitted]\n€yz", True),
            id="characters end at the cut",
        ),
        pytest.param(
            "abc€€".encode(),
            "€€z".encode(),
            1000,
            10,
            ("abc\n[securebench: 993 of 1000 bytes omitted]\n€z", True),
            id="characters are never split",
        ),
        pytest.param(b"\xff\xfea", b"", 3, 10, ("\ufffd\ufffda", False), id="not UTF-8"),
        pytest.param(
            b"abc",
            b"",
            1000,
            10,
            ("abc\n[securebench: 997 of 1000 bytes omitted]\n", True),
            id="the end was lost",
        ),
        pytest.param(
            b"abc", b"", 3, 0, ("[securebench: 3 of 3 bytes omitted]\n", True), id="keep nothing"
        ),
        pytest.param(b"abc", b"de", 3, 10, ("abcde", False), id="a total that is too small"),
    ],
)
def test_bounded_text(
    head: bytes, tail: bytes, total: int, limit: int, want: tuple[str, bool]
) -> None:
    assert bounded_text(head, tail, total, limit) == want


@pytest.mark.parametrize(
    ("kind", "want"),
    [("patch", "p"), ("workspace", "w"), ("text", "t"), ("code", "t")],
)
def test_a_verifier_gets_its_part_of_the_artifact(kind: str, want: str) -> None:
    artifact = CandidateArtifact(text="t", patch="p", workspace="w")
    assert artifact.for_kind(kind) == want
    assert CandidateArtifact().for_kind(kind) == ""
