"""Whatever lies in a workspace: the archive holds clean names, plain kinds and the same bytes."""

from __future__ import annotations

import json
import os
import stat
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from hypothesis import example, given, settings
from hypothesis import strategies as st

from securebench.protocol.candidate import CandidateBounds, Extraction, bounded_text
from support.courier import SealingPlaces, run, seal

NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: name not in {b".", b".."} and not set(name) & {0, ord("/")}
)
TARGETS = st.one_of(
    NAMES,
    st.lists(
        st.sampled_from(["..", ".", "a", "b", "securebench", "", "etc"]), min_size=1, max_size=6
    ).map(lambda parts: ("/".join(parts) or "/").encode()),
)
ENTRIES = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=50)),
    st.tuples(st.just("link"), TARGETS),
    st.tuples(st.just("fifo"), st.just(b"")),
    st.tuples(st.just("folder"), st.just(b"")),
)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=4), ENTRIES), max_size=12)


def make(root: Path, parts: list[bytes], kind: str, content: bytes) -> None:
    """Make an entry unless something stands in its way."""
    path = root
    for part in parts[:-1]:
        path /= os.fsdecode(part)
        if not os.path.lexists(path):
            path.mkdir()
        if path.is_symlink() or not path.is_dir():
            return
    path /= os.fsdecode(parts[-1])
    if os.path.lexists(path):
        return
    match kind:
        case "file":
            path.write_bytes(content)
        case "link":
            path.symlink_to(os.fsdecode(content))
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()


@settings(max_examples=100, deadline=None)
@given(tree=TREES)
@example(tree=[([b"\x01"], ("link", b"\x01"))])
@example(tree=[([b"\x01"], ("link", b"../."))])
def test_an_archive_is_clean_and_complete(
    tree: list[tuple[list[bytes], tuple[str, bytes]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = SealingPlaces(*(Path(folder, name) for name in SealingPlaces._fields))
        for place in places:
            place.mkdir()
        for parts, (kind, content) in tree:
            make(places.workspace, parts, kind, content)
        result = seal(places, Extraction("workspace", "workspace"), CandidateBounds(), (), None)
        assert result.problem is None
        assert result == seal(
            places, Extraction("workspace", "workspace"), CandidateBounds(), (), None
        )
        with tarfile.open(places.candidate / "workspace.tar") as archive:
            found = archive.getmembers()
            for member in found:
                path = PurePosixPath(member.name)
                assert not path.is_absolute()
                assert ".." not in path.parts
                assert member.isreg() or member.isdir() or member.issym()
                left = (places.workspace / member.name).lstat()
                assert member.mode == stat.S_IMODE(left.st_mode) & 0o1777
                if member.isreg():
                    file = archive.extractfile(member)
                    assert file is not None
                    assert file.read() == (places.workspace / member.name).read_bytes()
                if member.issym():
                    # Not Path.readlink, which writes "../." as "..".
                    assert member.linkname == os.readlink(places.workspace / member.name)  # noqa: PTH115
        root, *names = [member.name.encode() for member in found]
        assert root == b"."
        assert names == sorted(set(names))


@given(data=st.binary(max_size=200), head=st.integers(0, 80), tail=st.integers(0, 80))
def test_a_bounded_text_never_invents_or_splits(data: bytes, head: int, tail: int) -> None:
    first, rest = data[:head], data[head:]
    last = rest[-tail:] if tail else b""
    text, truncated = bounded_text(first, last, len(data), 40)
    if not truncated:
        assert text == data.decode("utf-8", "replace")
        return
    before, _, after = text.partition("[securebench: ")
    assert f" of {len(data)} bytes omitted]\n" in after
    assert data.decode("utf-8", "replace").startswith(before.removesuffix("\n").rstrip("\ufffd"))


PIECES = st.lists(
    st.sampled_from(
        [
            *(b"a", b"\n", b"\0", "é".encode(), "€".encode(), "😀".encode(), b"\xff", b"\x80"),
            *(b"\xe2\x82", b"\xed\xa0", b"\xf0\x9f\x98", b"\xf4\x90"),
        ]
    ),
    max_size=30,
).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(head=PIECES, tail=PIECES, lost=st.integers(0, 9), limit=st.integers(0, 40))
def test_courier_and_operator_cut_alike(head: bytes, tail: bytes, lost: int, limit: int) -> None:
    total = len(head) + len(tail) + lost
    limits = CandidateBounds(stream_bytes=limit)
    spec = {"version": 1, "limits": asdict(limits)}
    with tempfile.TemporaryDirectory() as folder:
        volumes = Path(folder)
        for name in ("output", "verification"):
            (volumes / name).mkdir()
        (volumes / "output/stdout").write_bytes(head)
        (volumes / "output/stdout.tail").write_bytes(tail)
        (volumes / "output/report.json").write_text(json.dumps({"stdout_bytes": total}))
        message = json.loads(run(volumes, json.dumps(spec)).message)
        kept = (volumes / "verification/stdout").read_bytes()
    want = bounded_text(head, tail, total, limit)
    assert kept.decode() == want.text
    assert message["stdout"] == {"bytes": total, "truncated": want.truncated}
