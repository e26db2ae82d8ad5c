from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from securebench.candidates.digest import content_digest, tree_digest
from securebench.errors import StorageError
from securebench.packs import digest as packs_digest

SOURCES = Path(__file__).parents[3] / "images" / "supervise"


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


def test_content_digest() -> None:
    assert content_digest(b"x") == f"sha256:{sha(b'x')}"


def test_tree_digest_follows_its_definition(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_bytes(b"1")
    (tmp_path / "a.b").write_bytes(b"2")
    lines = f"a.b\0{sha(b'2')}\na/b\0{sha(b'1')}\n"
    assert tree_digest(tmp_path) == f"sha256:{sha(lines.encode())}"


def test_tree_digest_refuses_other_entries(tree: Path) -> None:
    (tree / "link").symlink_to("a.b")
    with pytest.raises(StorageError):
        tree_digest(tree)
    with pytest.raises(StorageError):
        tree_digest(tree / "missing")


def test_every_implementation_agrees(tree: Path) -> None:
    assert tree_digest(tree) == packs_digest.tree_digest(tree)


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("go") is None, reason="no Go here; `make supervise` needs it")
def test_supervise_agrees(tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "supervise"
    subprocess.run(
        ["go", "build", "-buildvcs=false", "-o", program, "."],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    for digest, want in ((tree_digest(tree), 0), (content_digest(b""), 90)):
        spec = {
            "version": 1,
            "lanes": [{"path": str(tree), "digest": digest}],
            "phases": [{"name": "main", "command": ["true"]}],
        }
        done = subprocess.run(
            [program, "run", "--spec", json.dumps(spec)], check=False, stderr=subprocess.DEVNULL
        )
        assert done.returncode == want
