"""Target: the reader of bundles, which packs and logs arrive as."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path
from random import Random

from fuzz.loop import Target
from securebench.benchmark.files.bundle import BundleLimits, unpack_bundle
from securebench.digests import listing_digest
from securebench.errors import InvalidInputError, StorageError

LIMITS = BundleLimits(files=64, size_bytes=64 * 1024)
BLOCK = 512
CHECKSUM = slice(148, 156)
MAGIC = slice(257, 262)


def archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=form) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def header(name: str, kind: bytes, content: bytes) -> bytes:
    """Return a member whose content is what the type says, as blocks without an end."""
    info = member(name, kind)
    info.size = len(content)
    padding = -len(content) % BLOCK
    return info.tobuf(tarfile.USTAR_FORMAT) + content + b"\0" * padding


PAX_WORDS = (
    "path=../x",
    "size=-5",
    "size=99",
    "GNU.sparse.major=1",
    "GNU.sparse.map=0,1",
    "linkpath=/",
    "mtime=nan",
)
SEEDS = (
    archive((member("tasks.jsonl"), b"{}\n"), (member("assets", tarfile.DIRTYPE), b"")),
    archive((member("a/b/c"), b"x" * 700), (member("a/d"), b""), form=tarfile.GNU_FORMAT),
    archive((member("n" * 200), b"1"), (member("\u00e9" * 80, mode=0o4755), b"2")),
    archive((member("n" * 200), b"1"), form=tarfile.GNU_FORMAT),
    archive((member("link", tarfile.SYMTYPE, linkname="/etc/passwd"), b""), (member("link/x"), b"2")),
    archive((member("hard", tarfile.LNKTYPE, linkname="a"), b""), (member("dev", tarfile.CHRTYPE), b"")),
    archive((member("../up"), b"x")),
    archive((member("/abs"), b"x")),
    *(
        header("pax", tarfile.XHDTYPE, f"{len(word) + 4:2d} {word}\n".encode()) + archive((member("f"), b"12345"))
        for word in PAX_WORDS
    ),
    header("pax", tarfile.XGLTYPE, b"11 path=x/y\n") + archive((member("f"), b"")),
    header("s", tarfile.GNUTYPE_SPARSE, b"x" * 20),
)  # fmt: skip
TOKENS = (
    *(word.encode() for word in PAX_WORDS),
    b"../", b"/", b"ustar\x0000", b"ustar  \x00", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"00000000000\x00",
    b"30 GNU.sparse.numblocks=1\n", b"22 GNU.sparse.size=9\n", b"25 GNU.sparse.realsize=9\n", b"x", b"g", b"L", b"S",
    b"12 path=../\n", b"2", b"5", b"\0" * BLOCK,
)  # fmt: skip


def with_checksums(data: bytes, rng: Random) -> bytes:
    """Make most headers valid again."""
    result = bytearray(data)
    for start in range(0, len(result) - BLOCK + 1, BLOCK):
        block = result[start : start + BLOCK]
        if block[MAGIC] == b"ustar" and rng.random() < 0.95:
            block[CHECKSUM] = b" " * 8
            result[start : start + BLOCK] = block[:148] + b"%06o\0 " % sum(block) + block[156:]
    return bytes(result)


def check(data: bytes, root: Path) -> None:
    sentinel = root / "sentinel"
    sentinel.write_text("untouched")
    folder = root / "folder"
    try:
        receipt = unpack_bundle(io.BytesIO(data), folder, LIMITS)
    except (InvalidInputError, StorageError):
        receipt = None
    assert sorted(path.name for path in root.iterdir()) in (["folder", "sentinel"], ["sentinel"])
    assert sentinel.read_text() == "untouched"
    content = written(folder)
    if receipt is not None:
        hashes = {path: hashlib.sha256(text).hexdigest() for path, text in content.items()}
        size = sum(map(len, content.values()))
        assert receipt == (
            listing_digest(sorted((path.encode(), digest) for path, digest in hashes.items())),
            len(content),
            size,
        )
        assert size <= LIMITS.size_bytes


def written(folder: Path) -> dict[str, bytes]:
    """Return what was unpacked; everything is a plain file or folder with our modes."""
    content = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                assert stat.S_IMODE(mode) in {0o600, 0o644}
                content[path.relative_to(folder).as_posix()] = path.read_bytes()
            else:
                assert stat.S_ISDIR(mode)
                assert not mode & (stat.S_ISUID | stat.S_ISGID)
    return content


BUNDLE = Target(
    "bundle",
    check,
    SEEDS,
    TOKENS,
    with_checksums,
    ("/securebench/benchmark/files/bundle", "/tarfile.py"),
)
