from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from securebench.protocol.candidate import CandidateBounds, CandidateKind, Extraction, Problem
from support.courier import Output, Sealed, SealingPlaces, seal

FILE = Extraction("file", "text", "out/answer.txt")
STDOUT = Extraction("stdout", "text")
BOUNDS = replace(CandidateBounds(), text_bytes=10, patch_bytes=20)


@pytest.fixture
def places(tmp_path: Path) -> SealingPlaces:
    for name in ("workspace/out", "candidate", "output"):
        (tmp_path / name).mkdir(parents=True)
    return SealingPlaces(tmp_path / "workspace", tmp_path / "candidate", tmp_path / "output")


def sealed(
    places: SealingPlaces, extraction: Extraction = FILE, stdout: Output | None = None
) -> Sealed:
    return seal(places, extraction, BOUNDS, (), stdout)


@pytest.mark.parametrize("content", [b"", b"0123456789", "ü\r\n ".encode()])
def test_a_file_is_sealed_as_it_is(places: SealingPlaces, content: bytes) -> None:
    (places.workspace / "out/answer.txt").write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert sealed(places) == Sealed(
        file="candidate.txt", digest=digest, size_bytes=len(content), candidate_sha256=digest
    )
    assert (places.candidate / "candidate.txt").read_bytes() == content
    assert [path.name for path in places.candidate.iterdir()] == ["candidate.txt"]


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", "ü".encode()[:1]])
def test_what_is_no_text_is_invalid(places: SealingPlaces, content: bytes) -> None:
    (places.workspace / "out/answer.txt").write_bytes(content)
    assert sealed(places).problem is Problem.INVALID


@pytest.mark.parametrize(("kind", "limit"), [("text", 10), ("code", 10), ("patch", 20)])
def test_a_file_has_the_bound_of_its_kind(
    places: SealingPlaces, kind: CandidateKind, limit: int
) -> None:
    answer = places.workspace / "out/answer.txt"
    answer.write_bytes(b"x" * limit)
    assert sealed(places, replace(FILE, kind=kind)).problem is None
    answer.write_bytes(b"x" * (limit + 1))
    assert sealed(places, replace(FILE, kind=kind)).problem is Problem.TOO_LARGE


def test_a_sparse_file_counts_in_full(places: SealingPlaces) -> None:
    with (places.workspace / "out/answer.txt").open("wb") as file:
        file.truncate(1 << 40)
    assert sealed(places).problem is Problem.TOO_LARGE


def test_a_missing_file_is_missing(places: SealingPlaces) -> None:
    assert sealed(places).problem is Problem.MISSING
    (places.workspace / "out").rmdir()
    assert sealed(places).problem is Problem.MISSING
    (places.workspace / "out").write_text("a file where a folder should be")
    assert sealed(places).problem is Problem.MISSING


def test_only_a_regular_file_is_taken(places: SealingPlaces, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    answer = places.workspace / "out/answer.txt"

    answer.symlink_to(secret)
    assert sealed(places).problem is Problem.INVALID
    answer.unlink()

    answer.mkdir()
    assert sealed(places).problem is Problem.INVALID
    answer.rmdir()

    os.mkfifo(answer)
    assert sealed(places).problem is Problem.INVALID
    answer.unlink()

    os.mknod(answer, stat.S_IFSOCK | 0o644)
    assert sealed(places).problem is Problem.INVALID
    assert not list(places.candidate.iterdir())


def test_no_link_is_followed_on_the_way(places: SealingPlaces, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/answer.txt").write_text("secret")
    (places.workspace / "out").rmdir()
    (places.workspace / "out").symlink_to(tmp_path / "elsewhere")
    result = sealed(places)
    assert result.problem is Problem.INVALID
    assert "link" in result.message


@pytest.mark.parametrize(
    ("stdout", "want"),
    [
        pytest.param(Output(b"answer", b"", 6), None, id="complete"),
        pytest.param(Output(b"01234", b"56789", 10), None, id="complete in two parts"),
        pytest.param(Output(b"", b"", 0), None, id="empty"),
        pytest.param(Output(b"0123456789", b"a", 11), Problem.TOO_LARGE, id="too large"),
        pytest.param(Output(b"01", b"", 9), Problem.INVALID, id="cut although it was small"),
        pytest.param(Output(b"\xff", b"", 1), Problem.INVALID, id="no text"),
        pytest.param(None, Problem.MISSING, id="never captured"),
    ],
)
def test_stdout(places: SealingPlaces, stdout: Output | None, want: Problem | None) -> None:
    result = sealed(places, STDOUT, stdout)
    assert result.problem is want
    if want is None and stdout is not None:
        content = (places.candidate / "candidate.txt").read_bytes()
        assert content == stdout.head + stdout.tail


def test_families_without_contract_hand_in_nothing(places: SealingPlaces) -> None:
    assert sealed(places, Extraction("unsupported", "none")) == Sealed()
    assert not list(places.candidate.iterdir())


def test_sealing_again_replaces_what_a_crash_left(places: SealingPlaces) -> None:
    (places.candidate / ".candidate.txt.new").write_text("half")
    (places.candidate / "candidate.txt").symlink_to("/nowhere")
    (places.workspace / "out/answer.txt").write_text("whole")
    assert sealed(places).problem is None
    assert not (places.candidate / "candidate.txt").is_symlink()
    assert [path.name for path in places.candidate.iterdir()] == ["candidate.txt"]
    assert (places.candidate / "candidate.txt").stat().st_mode & 0o777 == 0o644


DIFF = Extraction("git_diff", "patch")


def test_a_diff_is_what_supervise_left_beside_the_streams(places: SealingPlaces) -> None:
    (places.workspace / "diff").write_text("of the agent")
    (places.output / "diff").write_text("of supervise")
    result = sealed(places, DIFF, Output(b"printed", b"", 7))
    assert (result.problem, result.size_bytes) == (None, 12)
    assert (places.candidate / "candidate.txt").read_text() == "of supervise"


def test_a_checkout_without_a_diff_is_invalid(places: SealingPlaces) -> None:
    assert sealed(places, DIFF).problem is Problem.INVALID


def test_a_diff_has_the_bound_of_a_patch(places: SealingPlaces) -> None:
    (places.output / "diff").write_bytes(b"x" * 21)
    assert sealed(places, DIFF).problem is Problem.TOO_LARGE


def test_a_diff_that_is_a_link_is_not_followed(places: SealingPlaces) -> None:
    (places.workspace / "answer").write_text("x")
    (places.output / "diff").symlink_to(places.workspace / "answer")
    assert sealed(places, DIFF).problem is Problem.INVALID
