import os

import pytest

from securebench.benchmark.files.load import asset_source
from securebench.benchmark.pack.lane_plan import FileReference
from securebench.benchmark.resources import Lane
from securebench.errors import PackError


@pytest.fixture
def pack(tmp_path):
    root = tmp_path / "pack"
    (root / "assets/folder/deep").mkdir(parents=True)
    (root / "assets/file").write_text("x")
    (root / "assets/folder/deep/file").write_text("x")
    (root / "other").mkdir()
    (root / "other/file").write_text("x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("x")
    return root


def reference(source):
    return FileReference("assets[0]", Lane.PUBLIC, source, source, read_only=True)


@pytest.mark.parametrize("source", ["file", "folder", "folder/deep/file"])
def test_files_and_folders(pack, source):
    assert asset_source(pack, "assets/", reference(source)) == pack / "assets" / source


def link(pack, place, target):
    (pack / place).symlink_to(target)


REFUSED = {
    "missing": (lambda _: None, "assets", "nothing", "asset source does not exist"),
    "missing root": (lambda _: None, "absent", "file", "asset source does not exist"),
    "below a file": (lambda _: None, "assets", "file/x", "asset source does not exist"),
    "root outside": (
        lambda pack: link(pack, "way", "../outside"), "way", "file",
        "outside the benchmark package"),
    "root that is a link to itself": (
        lambda pack: link(pack, "way", "way"), "way", "file", "'way' is a symlink that leads to"),
    "link": (lambda pack: link(pack, "assets/l", "file"), "assets", "l", "is a symlink"),
    "dangling link": (lambda pack: link(pack, "assets/l", "no"), "assets", "l", "is a symlink"),
    "way through a link": (
        lambda pack: link(pack, "assets/l", "../other"), "assets", "l/file", "outside its root"),
    "deep link": (
        lambda pack: link(pack, "assets/folder/deep/l", "file"), "assets", "folder",
        "'deep/l' is a symlink"),
    "deep link to a folder": (
        lambda pack: link(pack, "assets/folder/l", "deep"), "assets", "folder",
        "'l' is a symlink"),
    "pipe": (
        lambda pack: os.mkfifo(pack / "assets/folder/pipe"), "assets", "folder",
        "neither a file nor a folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(pack, case):
    prepare, root, source, want = REFUSED[case]
    prepare(pack)
    with pytest.raises(PackError, match=want):
        asset_source(pack, root, reference(source))
