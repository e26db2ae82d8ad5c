from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from securebench.errors import StorageError
from securebench.files import tree_digest
from securebench.sizes import MIB
from support.progress import told_progress


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "lane"
    for name, content in {
        b"a/b": b"1",
        b"a.b": b"2",
        b"a-b": b"",
        b"deep/er/\xc3\xbc": b"3" * 100_000,
        b"\xff\n": b"4",
    }.items():
        path = Path(os.fsdecode(os.fsencode(root) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "empty").mkdir()
    return root


def test_tree_digest_follows_its_definition(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"1")
    (tmp_path / "a.b").write_bytes(b"2")
    lines = f"a.b\0{sha(b'2')}\na/b\0{sha(b'1')}\n"
    assert tree_digest(tmp_path) == f"sha256:{sha(lines.encode())}"


def test_a_digest_of_much_tells_of_progress(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (3 * MIB + 1))
    assert told_progress(lambda: tree_digest(tmp_path)) == 4


def test_the_digest_of_a_tree_without_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert tree_digest(tmp_path) == f"sha256:{sha(b'')}"


def test_names_that_are_no_utf8_count_as_bytes(tree: Path) -> None:
    names = (b"\xff\n", b"a-b", b"a.b", b"a/b", b"deep/er/\xc3\xbc")
    contents = (b"4", b"", b"2", b"1", b"3" * 100_000)
    lines = {
        name: name + b"\0" + sha(content).encode() + b"\n"
        for name, content in zip(names, contents, strict=True)
    }
    want = b"".join(lines[name] for name in sorted(names))
    assert tree_digest(tree) == f"sha256:{sha(want)}"


def test_tree_digest_refuses_other_entries(tree: Path) -> None:
    (tree / "link").symlink_to("a.b")
    with pytest.raises(StorageError, match="'link' is no regular file"):
        tree_digest(tree)
    with pytest.raises(StorageError, match="'missing' is not a folder"):
        tree_digest(tree / "missing")
