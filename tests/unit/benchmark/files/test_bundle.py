from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from securebench.benchmark.files.bundle import (
    BundleLimits,
    files_receipt,
    folder_files,
    received_folder,
    require_digest,
    safe_path,
    unpack_bundle,
    write_bundle,
)
from securebench.errors import (
    DigestMismatchError,
    InvalidInputError,
    StorageError,
    TooLargeError,
)
from securebench.files import tree_digest
from securebench.sizes import MIB
from support.progress import told_progress

LIMITS = BundleLimits(files=10, size_bytes=1000)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "assets" / "deep").mkdir(parents=True)
    (folder / "manifest.yaml").write_text("id: a\n")
    (folder / "assets" / "deep" / "a.txt").write_text("one")
    (folder / "assets" / "ä.bin").write_bytes(b"\0\1")
    (folder / "assets" / "deep" / "a.txt").chmod(0o700)
    return folder


def packed(pack: Path) -> bytes:
    sink = io.BytesIO()
    write_bundle(folder_files(pack), sink, LIMITS)
    return sink.getvalue()


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def test_both_ends_agree_with_the_tree_digest_of_packs(pack: Path, tmp_path: Path) -> None:
    sink = io.BytesIO()
    sent = write_bundle(folder_files(pack), sink, LIMITS)
    received = unpack_bundle(io.BytesIO(sink.getvalue()), tmp_path / "new", LIMITS)

    assert sent == received == files_receipt(folder_files(pack), LIMITS)
    assert sent.digest == tree_digest(pack) == tree_digest(tmp_path / "new")
    assert (sent.files, sent.size_bytes) == (3, 11)
    assert (tmp_path / "new" / "assets" / "ä.bin").read_bytes() == b"\0\1"


def test_a_receipt_of_much_tells_of_progress(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (3 * MIB + 1))
    limits = BundleLimits(size_bytes=4 * MIB)
    assert told_progress(lambda: files_receipt(folder_files(tmp_path), limits)) == 4


def test_modes_times_and_owners_do_not_travel(pack: Path, tmp_path: Path) -> None:
    first = packed(pack)
    os.utime(pack / "manifest.yaml", (1, 1))
    (pack / "manifest.yaml").chmod(0o600)
    assert packed(pack) == first
    unpack_bundle(io.BytesIO(first), tmp_path / "new", LIMITS)
    assert (tmp_path / "new" / "assets" / "deep" / "a.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "a/../../evil",
        "a//b",
        "./a",
        "a/./b",
        "a\\b",
        ".",
        "a/..",
        "x" * 1025,
        "\udcff",
    ],
)
def test_unsafe_paths_are_refused_by_the_receiver(name: str, tmp_path: Path) -> None:
    stream = tar_of((entry(name), b"evil"))
    with pytest.raises(InvalidInputError):
        unpack_bundle(stream, tmp_path / "new", LIMITS)
    assert not (tmp_path / "evil").exists()
    assert list((tmp_path / "new").rglob("*")) == []


def test_unsafe_paths_are_refused_by_the_sender(pack: Path) -> None:
    with pytest.raises(InvalidInputError, match="unsafe path"):
        write_bundle({"../x": pack / "manifest.yaml"}, io.BytesIO(), LIMITS)
    assert safe_path("a/b..c/.d") == "a/b..c/.d"


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
    ],
)
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    stream = tar_of((entry("a", kind, "/etc/passwd"), b""), (entry("a"), b"x"))
    with pytest.raises(InvalidInputError, match="no plain file or folder"):
        unpack_bundle(stream, tmp_path / "new", LIMITS)


@pytest.mark.parametrize(
    "members",
    {
        "twice": ((entry("a"), b"1"), (entry("a"), b"2")),
        "below a file": ((entry("a"), b"1"), (entry("a/b"), b"2")),
        "file over folder": ((entry("a/b"), b"1"), (entry("a"), b"2")),
    }.items(),
    ids=lambda item: item[0],
)
def test_an_entry_never_replaces_another(
    members: tuple[str, tuple[tuple[tarfile.TarInfo, bytes], ...]], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match="twice or below a file"):
        unpack_bundle(tar_of(*members[1]), tmp_path / "new", LIMITS)


def test_folders_arrive_without_their_modes(tmp_path: Path) -> None:
    folder = entry("empty/inner", tarfile.DIRTYPE)
    folder.mode = 0o700
    receipt = unpack_bundle(tar_of((folder, b""), (entry("empty/a"), b"x")), tmp_path / "n", LIMITS)
    assert (receipt.files, receipt.size_bytes) == (1, 1)
    assert (tmp_path / "n/empty/inner").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "n/empty/a").read_bytes() == b"x"


def test_too_many_entries_and_bytes_are_refused(pack: Path, tmp_path: Path) -> None:
    stream = packed(pack)
    with pytest.raises(TooLargeError, match="entries"):
        unpack_bundle(io.BytesIO(stream), tmp_path / "new", BundleLimits(2, 1000))
    with pytest.raises(TooLargeError, match="bytes"):
        unpack_bundle(io.BytesIO(stream), tmp_path / "other", BundleLimits(10, 10))
    with pytest.raises(TooLargeError, match="entries"):
        write_bundle(folder_files(pack), io.BytesIO(), BundleLimits(2, 1000))
    with pytest.raises(TooLargeError, match="bytes"):
        files_receipt(folder_files(pack), BundleLimits(10, 10))


def test_a_cut_stream_is_damaged_or_has_another_digest(pack: Path, tmp_path: Path) -> None:
    stream = packed(pack)
    whole = files_receipt(folder_files(pack), LIMITS)
    content_end = len(stream.rstrip(b"\0"))
    damaged = 0
    for cut in range(100, content_end, 100):
        try:
            receipt = unpack_bundle(io.BytesIO(stream[:cut]), tmp_path / str(cut), LIMITS)
        except StorageError:
            damaged += 1
        else:
            assert receipt != whole
    assert damaged > 0


def test_a_flipped_bit_changes_the_digest(pack: Path, tmp_path: Path) -> None:
    stream = bytearray(packed(pack))
    position = stream.index(b"one")
    stream[position] ^= 1
    receipt = unpack_bundle(io.BytesIO(bytes(stream)), tmp_path / "new", LIMITS)
    with pytest.raises(DigestMismatchError, match="arrived damaged"):
        require_digest(
            "the pack",
            expected=files_receipt(folder_files(pack), LIMITS).digest,
            found=receipt.digest,
        )


def test_symlinks_are_neither_listed_nor_followed(pack: Path) -> None:
    (pack / "assets" / "link").symlink_to("/etc/passwd")
    (pack / "elsewhere").symlink_to("assets")
    assert sorted(folder_files(pack)) == ["assets/deep/a.txt", "assets/ä.bin", "manifest.yaml"]
    with pytest.raises(InvalidInputError):
        write_bundle({"a": pack / "assets" / "link"}, io.BytesIO(), LIMITS)


def test_a_pipe_is_no_regular_file_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="no regular file"):
        write_bundle({"a": tmp_path / "pipe"}, io.BytesIO(), LIMITS)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    class Shrinking(io.BytesIO):
        def write(self, data: object) -> int:
            os.truncate(tmp_path / "a", 1)
            return super().write(data)  # type: ignore[arg-type]

    (tmp_path / "a").write_bytes(b"x" * 50_000)
    with pytest.raises(InvalidInputError, match="changed while it was read"):
        write_bundle({"a": tmp_path / "a"}, Shrinking(), BundleLimits(10, 100_000))


def test_a_received_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target, incoming = tmp_path / "final", tmp_path / ".incoming"

    def break_off() -> None:
        with received_folder(target, incoming) as folder:
            folder.mkdir()
            raise StorageError("half way")

    with pytest.raises(StorageError, match="half way"):
        break_off()
    assert not target.exists()
    assert list(incoming.iterdir()) == []

    for content in ("old", "new"):
        with received_folder(target, incoming) as folder:
            folder.mkdir()
            (folder / "file").write_text(content)
    assert (target / "file").read_text() == "new"
    assert list(incoming.iterdir()) == []
