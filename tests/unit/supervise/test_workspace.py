from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from securebench.protocol.candidate import CandidateBounds, Extraction, Problem
from support.courier import Sealed, SealingPlaces, seal
from support.supervise_build import Edit

WORKSPACE = Extraction("workspace", "workspace")


@pytest.fixture
def places(tmp_path: Path) -> SealingPlaces:
    for name in ("workspace", "candidate"):
        (tmp_path / name).mkdir()
    return SealingPlaces(tmp_path / "workspace", tmp_path / "candidate", tmp_path / "output")


def sealed(
    places: SealingPlaces,
    bounds: CandidateBounds | None = None,
    exclude: tuple[str, ...] = (),
    *edits: Edit,
) -> Sealed:
    return seal(places, WORKSPACE, bounds or CandidateBounds(), exclude, None, *edits)


def members(places: SealingPlaces) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(places.candidate / "workspace.tar") as archive:
        return {member.name: member for member in archive if member.name != "."}


def content(places: SealingPlaces, name: str) -> bytes:
    with tarfile.open(places.candidate / "workspace.tar") as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def test_what_is_kept_and_how(places: SealingPlaces) -> None:
    root = places.workspace
    (root / "sub/empty").mkdir(parents=True)
    (root / "sub/empty").chmod(0o1777)
    (root / "sub/tool").write_bytes(b"#!")
    (root / "sub/tool").chmod(0o4710)
    (root / "plain").write_bytes(b"plain")
    (root / "plain").chmod(0o600)
    (root / "sub/link").symlink_to("../plain")
    (root / "sub").chmod(0o2755)
    os.link(root / "plain", root / "twin")
    for number, name in enumerate(["plain", "sub/tool", "sub/empty", "sub/link", "sub"]):
        os.utime(root / name, ns=(0, 981173106_000000123 + number), follow_symlinks=False)
    os.utime(root / "plain", ns=(0, -1_500_000_000))

    result = sealed(places)

    assert (result.problem, result.file, result.dropped_entries) == (None, "workspace.tar", 0)
    assert result.size_bytes == (places.candidate / "workspace.tar").stat().st_size
    found = members(places)
    assert list(found) == ["plain", "sub", "sub/empty", "sub/link", "sub/tool", "twin"]
    assert result.dropped == (
        ("sub", "without its set-id bits"),
        ("sub/tool", "without its set-id bits"),
    )
    assert {name: oct(member.mode) for name, member in found.items() if not member.issym()} == {
        "plain": "0o600",
        "twin": "0o600",
        "sub": "0o755",
        "sub/empty": "0o1777",
        "sub/tool": "0o710",
    }
    assert found["sub/link"].linkname == "../plain"
    assert (found["twin"].islnk(), found["twin"].linkname) == (True, "plain")
    assert content(places, "twin") == b"plain"
    times = {name: member.pax_headers["mtime"] for name, member in found.items()}
    assert times == {
        "plain": "-1.5",
        "twin": "-1.5",
        "sub": "981173106.000000127",
        "sub/empty": "981173106.000000125",
        "sub/link": "981173106.000000126",
        "sub/tool": "981173106.000000124",
    }
    owners = {(each.uid, each.gid, each.uname, each.gname) for each in found.values()}
    assert owners == {(0, 0, "", "")}


def test_the_archive_depends_on_the_tree_alone(places: SealingPlaces) -> None:
    def make(names: list[str], modified: int = 12345) -> Sealed:
        for name in names:
            path = places.workspace / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)
        for path in (places.workspace, *places.workspace.rglob("*")):
            os.utime(path, (len(names), modified))
        result = sealed(places)
        for name in names:
            (places.workspace / name).unlink()
        return result

    names = ["a/x", "a.b", "a-b", "z" * 200, "ü"]
    first = make(names)
    assert make(names[::-1]) == first
    assert make(names[1:]).candidate_sha256 != first.candidate_sha256
    later = make(names, 12346)
    assert later.digest != first.digest
    assert later.candidate_sha256 == first.candidate_sha256


def test_mode_and_kind_are_part_of_the_digest(places: SealingPlaces) -> None:
    file = places.workspace / "f"
    seen = set()
    file.write_text("x")
    seen.add(sealed(places).candidate_sha256)
    for mode in (0o755, 0o600, 0o1644):
        file.chmod(mode)
        seen.add(sealed(places).candidate_sha256)
    file.unlink()
    file.symlink_to("x")
    seen.add(sealed(places).candidate_sha256)
    file.unlink()
    file.mkdir()
    seen.add(sealed(places).candidate_sha256)
    assert len(seen) == 6


def test_everything_else_is_dropped_and_named(places: SealingPlaces) -> None:
    root = places.workspace
    os.mkfifo(root / "fifo")
    os.mknod(root / "socket", 0o140644)
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "out").symlink_to("../secret")
    (root / "ours").symlink_to("securebench/evaluation_inputs/answer.json")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).mkdir()
    (Path(os.fsdecode(os.fsencode(root) + b"/\xff")) / "inside").write_text("x")
    (root / "odd target").symlink_to(os.fsdecode(b"\xff"))
    (root / "kept").write_text("x")
    result = sealed(places)
    assert result.problem is None
    assert result.dropped_entries == 4
    assert set(result.dropped) == {
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("\\xff", "its name is not UTF-8"),
        ("odd target", "its target is not UTF-8"),
    }
    assert list(members(places)) == ["absolute", "kept", "ours", "out"]


def test_what_is_dropped_is_named_within_bounds(places: SealingPlaces) -> None:
    for number in range(200):
        os.mkfifo(places.workspace / ("ü\n\x1b" * 50 + f"{number:03}"))
    result = sealed(places)
    assert (result.problem, result.dropped_entries) == (None, 200)
    assert 0 < len(result.dropped) < 20
    path, reason = result.dropped[0]
    assert path.startswith("ü\\n\\x1bü")
    assert path.endswith("000")
    assert "…" in path
    assert (len(path), reason) == (61, "a FIFO")


def test_odd_names_are_only_names(places: SealingPlaces) -> None:
    names = sorted(["-rf", "a\nPASS", "$(touch x)", "a\\b", " ", "…", "a\x1b[31m"], key=str.encode)
    for name in names:
        (places.workspace / name).write_text(name)
    assert sealed(places).dropped_entries == 0
    assert list(members(places)) == names


def test_excluded_places_are_left_out_uncounted(places: SealingPlaces) -> None:
    for name in ("securebench/public/a", "data/in.csv", "data/out.csv", "securebench2"):
        (places.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (places.workspace / name).write_text("x")
    result = sealed(places, exclude=("securebench", "data/in.csv"))
    assert result.dropped_entries == 0
    assert list(members(places)) == ["data", "data/out.csv", "securebench2"]


@pytest.mark.parametrize(("entries", "want"), [(5, None), (6, Problem.TOO_LARGE)])
def test_entries_are_bounded(places: SealingPlaces, entries: int, want: Problem | None) -> None:
    for number in range(entries - 2):
        (places.workspace / str(number)).mkdir()
    (places.workspace / "0/file").write_text("")
    os.mkfifo(places.workspace / "dropped entries count too")
    assert sealed(places, replace(CandidateBounds(), workspace_files=5)).problem is want


def test_bytes_are_bounded_with_names(places: SealingPlaces) -> None:
    (places.workspace / "four").write_bytes(b"x" * 6)
    assert sealed(places, replace(CandidateBounds(), workspace_bytes=10)).problem is None
    assert (
        sealed(places, replace(CandidateBounds(), workspace_bytes=9)).problem is Problem.TOO_LARGE
    )


def names_of_at_most(count: int) -> Edit:
    return Edit("untrusted/walk.go", "maxNamesBytes = 32 << 20", f"maxNamesBytes = {count}")


def test_bytes_of_names_are_bounded(places: SealingPlaces) -> None:
    (places.workspace / "four").mkdir()
    (places.workspace / "four/five5").touch()
    (places.workspace / "link").symlink_to("target")
    assert sealed(places, None, (), names_of_at_most(4 + 10 + 4 + 6)).problem is None
    result = sealed(places, None, (), names_of_at_most(4 + 10 + 4 + 5))
    assert (result.problem, result.message) == (
        Problem.TOO_LARGE,
        "the workspace has more than 23 bytes of names",
    )


def test_a_sparse_file_counts_by_what_it_holds(places: SealingPlaces) -> None:
    with (places.workspace / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"middle")
    assert sealed(places).problem is None
    assert (places.candidate / "workspace.tar").stat().st_size < 1 << 20
    assert content(places, "sparse").startswith(b"middle")


def test_a_file_with_several_names_counts_once(places: SealingPlaces) -> None:
    (places.workspace / "a").write_bytes(b"x" * 600)
    os.link(places.workspace / "a", places.workspace / "b")
    bounds = replace(CandidateBounds(), workspace_bytes=1000)
    assert sealed(places, bounds).problem is None
    (places.workspace / "c").write_bytes(b"x" * 600)
    assert sealed(places, bounds).problem is Problem.TOO_LARGE


def deep(root: Path, name: str, levels: int) -> None:
    current = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=current)
        child = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = child
    os.close(current)


def shallow(root: Path, name: str) -> None:
    """Remove a chain of folders that no path can name."""
    top, inner = root / name, root / "inner"
    while (top / name).exists():
        (top / name).rename(inner)
        top.rmdir()
        inner.rename(top)
    top.rmdir()


@pytest.mark.parametrize(
    ("name", "levels", "kept", "why"),
    [
        pytest.param("d", 200, 200, None, id="deep"),
        pytest.param("n" * 250, 16, 16, None, id="a path just below PATH_MAX"),
        pytest.param("n" * 250, 17, 16, "its path is too long", id="a path beyond PATH_MAX"),
        pytest.param("d", 256, 256, None, id="as deep as can be"),
        pytest.param("d", 1500, 256, "too many folders inside each other", id="very deep"),
    ],
)
def test_deep_trees(
    places: SealingPlaces, name: str, levels: int, kept: int, why: str | None
) -> None:
    deep(places.workspace, name, levels)
    try:
        result = sealed(places)
        assert result.problem is None
        assert [reason for _, reason in result.dropped] == ([why] if why else [])
        assert len(members(places)) == kept
    finally:
        shallow(places.workspace, name)


def test_the_bytes_are_those_of_tarfile(places: SealingPlaces) -> None:
    """Times of whole seconds stand in the header alone."""
    long = "n" * 200
    for name in ("a/b/c", "a-b/x", "a.b", "ü/" + long, long + "/" + long, "empty"):
        (places.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (places.workspace / name).write_text(name * 400 if name != "empty" else "")
    (places.workspace / "a/link").symlink_to("b/" + "t" * 150)
    (places.workspace / "a.b").chmod(0o755)
    for path in (places.workspace, *places.workspace.rglob("*")):
        os.utime(path, (0, 12345), follow_symlinks=False)
    assert sealed(places).problem is None

    again = BytesIO()
    with (
        tarfile.open(places.candidate / "workspace.tar") as archive,
        tarfile.open(fileobj=again, mode="w", format=tarfile.PAX_FORMAT) as copy,
    ):
        for member in archive:
            copy.addfile(member, archive.extractfile(member) if member.isreg() else None)
    assert again.getvalue() == (places.candidate / "workspace.tar").read_bytes()


def test_every_file_has_its_own_content(places: SealingPlaces) -> None:
    names = ["a/b/1", "a/b/2", "a/b.x/3", "a/c/d/4", "a/e", "b/b/1", "c"]
    for name in names:
        (places.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (places.workspace / name).write_text(name)
    assert sealed(places).dropped_entries == 0
    assert {name: content(places, name) for name in names} == {
        name: name.encode() for name in names
    }


def test_no_workspace_is_missing(places: SealingPlaces) -> None:
    places.workspace.rmdir()
    assert sealed(places).problem is Problem.MISSING
