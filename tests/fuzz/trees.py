"""Target: sealing, which reads whatever an agent left in its workspace."""

# ruff: noqa: E501, PTH102, PTH104, PTH112, PTH114, PTH115, PTH120, PTH211 - tables; names are bytes

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from fuzz.loop import Target
from securebench.protocol.bounds import CandidateBounds
from securebench.protocol.extraction import Extraction
from securebench.sandbox.candidate.sealing import Sealed, SealingPlaces, seal

BOUNDS = CandidateBounds(text_bytes=200, workspace_bytes=20_000, workspace_files=60)
EXCLUDE = ("task.json", "kept/inner")
NAMES = (
    b"a", b"b", b"c", b"securebench", b"task.json", b"kept", b"inner", b"answer.txt", b"new\nline", b"\xff\xfe",
    b"back\\slash", b"...", b" ", b"-rf", b"n" * 255, "\u00e9".encode(), b"pax=1", b"A", b"\xed\xa0\x80",
)  # fmt: skip
TARGETS = (
    b"a", b"..", b"../..", b"../outside", b"/etc", b".", b"a/b", b"../a", b"securebench/x", b"b/../../c", b"c/..",
    b"kept/inner", b"x" * 200, b"\xff", b"a/../a/../..", b"../workspace/a", b"//", b"./a/", b"answer.txt",
)  # fmt: skip
PATHS = ("answer.txt", "a/b", "kept/inner", "a", "b/c/answer.txt")
CONTENTS = (b"", b"text", b"\xff\xfe", b"nul\0", "\u00e9".encode(), b"x" * 300, b"y" * 5000)


class Reader:
    """Takes decisions from bytes; zeros when there are none left."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def byte(self) -> int:
        return (self._data.read(1) or b"\0")[0]

    def is_empty(self) -> bool:
        here = self._data.tell()
        return here == self._data.seek(0, os.SEEK_END) or self._data.seek(here) < 0

    def name(self) -> bytes:
        number = self.byte()
        return NAMES[number] if number < len(NAMES) else bytes([number])

    def path(self) -> bytes:
        return b"/".join(self.name() for _ in range(1 + self.byte() % 4))


def steps(reader: Reader) -> Iterator[int]:
    while not reader.is_empty():
        yield reader.byte()


def build(reader: Reader, root: bytes) -> None:
    """Make a tree; what cannot be made is left out, like an agent's failing command."""
    for step in steps(reader):
        path = reader.path()
        try:
            make(reader, step, root, path)
        except OSError:
            continue


def placed(root: bytes, path: bytes, *, is_made: bool) -> bytes:
    """Return a path below the root on whose way no link is: nothing is ever made outside.

    Raises:
        OSError: A link is on the way, or a folder is missing.
    """
    parent = root
    for part in path.split(b"/")[:-1]:
        parent += b"/" + part
        if is_made and not os.path.lexists(parent):
            os.mkdir(parent)
        if os.path.islink(parent) or not os.path.isdir(parent):
            raise NotADirectoryError(parent)
    return root + b"/" + path


def make(reader: Reader, step: int, root: bytes, name: bytes) -> None:
    path = placed(root, name, is_made=bool(step & 0x80))
    match step & 0x0F:
        case 0 | 1 | 2 | 3:
            write(path, CONTENTS[reader.byte() % len(CONTENTS)])
        case 4 | 5 | 6:
            os.symlink(TARGETS[reader.byte() % len(TARGETS)], path)
        case 7:
            os.mkdir(path)
        case 8:
            change_mode(path, (reader.byte() << 4) | 0o400)
        case 9:
            write(path, b"", size=1 << (reader.byte() % 40))
        case 10:
            placed(root, name + b"/d" * (reader.byte() + 20), is_made=True)
        case 11:
            os.rename(placed(root, reader.path(), is_made=False), path)
        case kind:
            make_odd(reader, kind, root, path)


def make_odd(reader: Reader, kind: int, root: bytes, path: bytes) -> None:
    match kind:
        case 12:
            os.mkfifo(path)
        case 13:
            os.link(placed(root, reader.path(), is_made=False), path, follow_symlinks=False)
        case 14:
            os.link(os.path.dirname(root) + b"/outside/secret", path, follow_symlinks=False)
        case _:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)


def write(path: bytes, content: bytes, size: int | None = None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if size is not None:
            os.truncate(file.fileno(), size)


def change_mode(path: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def check(data: bytes, root: Path) -> None:
    places = SealingPlaces(root / "workspace", root / "candidate", root / "output")
    outside = root / "outside"
    for folder in (*places, outside):
        folder.mkdir()
    (outside / "secret").write_text("secret of another")
    reader = Reader(data)
    extractions = [Extraction("workspace", "workspace")]
    extractions += [Extraction("file", "code", path) for path in PATHS]
    extraction = extractions[reader.byte() % len(extractions)]
    build(reader, os.fsencode(places.workspace))
    result = seal(places, extraction, BOUNDS, EXCLUDE, None)
    assert result == seal(places, extraction, BOUNDS, EXCLUDE, None)
    assert (outside / "secret").read_text() == "secret of another"
    assert {path.name for path in root.iterdir()} == {path.name for path in (*places, outside)}
    found = [path.name for path in places.candidate.iterdir() if not path.name.startswith(".")]
    assert found == ([result.file] if result.file else [])
    if extraction.mode == "file":
        check_text(places, extraction.path or "", result)
    elif result.problem is None:
        check_archive(places)


def check_text(places: SealingPlaces, path: str, result: Sealed) -> None:
    if result.problem is not None:
        return
    source = places.workspace / path
    assert source.resolve() == places.workspace.resolve() / path
    assert source.is_file()
    content = (places.candidate / "candidate.txt").read_bytes()
    assert content == source.read_bytes()
    assert len(content) <= BOUNDS.text_bytes
    assert "\0" not in content.decode()


def check_archive(places: SealingPlaces) -> None:
    """Compare the archive with the tree that it was made from."""
    workspace = places.workspace.resolve()
    with tarfile.open(places.candidate / "workspace.tar") as archive, TemporaryDirectory() as name:
        members = {member.name: member for member in archive.getmembers()}
        for member in members.values():
            check_member(archive, member, workspace)
        archive.extractall(name, filter="fully_trusted")  # noqa: S202 - its own names, checked above
        check_links(Path(name).resolve(), [m.name for m in members.values() if m.issym()])
    assert list(members) == sorted(members, key=str.encode)


def check_member(archive: tarfile.TarFile, member: tarfile.TarInfo, workspace: Path) -> None:
    name, source = member.name, workspace / member.name
    assert ".." not in PurePosixPath(name).parts
    assert not name.startswith("/")
    assert name not in EXCLUDE
    assert not name.startswith("task.json/")
    assert source.parent.resolve() == source.parent
    assert member.mode in {0o644, 0o755}
    if member.issym():
        assert member.linkname == os.readlink(source)
    elif member.isreg():
        assert archive.extractfile(member).read() == source.read_bytes()
    else:
        assert member.isdir()


def check_links(tree: Path, links: list[str]) -> None:
    """Follow the links where a verifier would; one that leads in a circle leads nowhere."""
    for link in links:
        reached = Path(os.path.realpath(tree / link))
        assert reached.is_relative_to(tree), link
        assert not reached.is_relative_to(tree / "securebench")


TREE = Target(
    "tree",
    check,
    seeds=(
        bytes([0, 0x80, 1, 0, 1, 1]),
        bytes([0, 0x84, 0, 0, 3, 0x84, 0, 1, 1, 9]),
        bytes([1, 0x80, 0, 7, 1, 0x84, 0, 7, 2]),
        bytes([2, 0x80, 1, 0, 1, 4]),
        bytes([0, 0x8A, 0, 0, 250, 0x89, 0, 1, 30, 0x8C, 0, 2, 0x8F, 0, 0]),
        bytes([3, 0x84, 0, 5, 3, 0x80, 1, 5, 6, 1]),
    ),
)
