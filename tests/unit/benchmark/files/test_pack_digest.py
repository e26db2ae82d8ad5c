import hashlib
import os

import pytest

from securebench.benchmark.files.load import pack_digest
from securebench.benchmark.pack.task import compile_benchmark_row, row_digest
from securebench.benchmark.reading.rows import AssetRoots, BenchmarkManifest
from securebench.errors import StorageError


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def pack(tmp_path):
    for path in ("assets", "hidden"):
        (tmp_path / path).mkdir()
        (tmp_path / path / "f").write_text(path)
    (tmp_path / "manifest.yaml").write_text("id: a")
    (tmp_path / "tasks.jsonl").write_text("{}")
    return tmp_path


def digest(pack):
    return pack_digest(pack / "manifest.yaml", pack / "tasks.jsonl", AssetRoots())


CHANGES = {
    "manifest": lambda pack: (pack / "manifest.yaml").write_text("id: b"),
    "tasks": lambda pack: (pack / "tasks.jsonl").write_text("{} "),
    "public content": lambda pack: (pack / "assets/f").write_text("x"),
    "hidden content": lambda pack: (pack / "hidden/f").write_text("x"),
    "name": lambda pack: (pack / "hidden/f").rename(pack / "hidden/g"),
    "new file": lambda pack: (pack / "assets/new").write_text(""),
    "link": lambda pack: (pack / "assets/link").symlink_to("f"),
    "moved to the other root": lambda pack: (pack / "hidden/f").rename(pack / "assets/h"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_pack_digest_changes(pack, case):
    before = digest(pack)
    CHANGES[case](pack)
    assert digest(pack) != before


def test_pack_digest_looks_at_nothing_else(pack):
    before = digest(pack)
    (pack / "README").write_text("x")
    (pack / "assets/empty").mkdir()
    assert digest(pack) == before


def test_missing_roots_are_empty(tmp_path):
    (tmp_path / "m").write_text("m")
    assert pack_digest(tmp_path / "m", tmp_path / "m", AssetRoots()).startswith("sha256:")


def test_the_pack_digest_is_a_listing(pack):
    (pack / "assets/link").symlink_to("f")
    lines = (
        ("manifest", sha256(b"id: a")),
        ("tasks", sha256(b"{}")),
        ("public/f", sha256(b"assets")),
        ("public/link", f"link:{sha256(b'f')}"),
        ("eval/f", sha256(b"hidden")),
    )
    want = "".join(f"{path}\0{content}\n" for path, content in lines)
    assert digest(pack) == f"sha256:{sha256(want.encode())}"


def test_a_pipe_in_an_asset_root_is_refused(pack):
    os.mkfifo(pack / "assets/pipe")
    with pytest.raises(StorageError, match="'pipe' is no regular file"):
        digest(pack)


ROW = {"id": "a", "family": "tool_call", "input": {"x": 1}, "eval": {"y": 2}}


def row_digest_of(row=ROW, **manifest):
    return row_digest(
        compile_benchmark_row(row, manifest=BenchmarkManifest(id="m", version=1, **manifest))
    )


def test_row_digest_does_not_depend_on_the_place_of_the_pack():
    assert row_digest_of(path="a/m.yaml") == row_digest_of(path="b/m.yaml")


def test_row_digest_depends_on_values_lanes_and_defaults():
    others = [
        row_digest_of({**ROW, "input": {"x": 2}}),
        row_digest_of({**ROW, "family": "browser_task"}),
        row_digest_of({**ROW, "metadata": {"m": 1}}),
        row_digest_of(default_environment={"image": "i"}),
    ]
    assert len({row_digest_of(), *others}) == 5
