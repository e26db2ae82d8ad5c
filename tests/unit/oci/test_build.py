import hashlib
import json
import os

import pytest

from securebench.benchmark.files.bundle import BundleLimits
from securebench.errors import TooLargeError
from securebench.oci.pack_image import PackLanes, build_pack, write_layout

FILES = {"manifest.yaml": b"id: a\n", "assets/b": b"b", "assets/a": b"a"}
ROWS = {"tasks.jsonl": b"{}\n", "hidden/key": b"42"}
IMAGE = "sha256:ced197c00ebc73fc50537dc23ee8a2c3116e0e7c121f5243af5b4a985ed38552"


def content(folder, *, reverse=False):
    for name, data in {**FILES, **ROWS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    public, hidden = ({name: folder / name for name in each} for each in (FILES, ROWS))
    if reverse:
        public, hidden = (dict(reversed(each.items())) for each in (public, hidden))
    return PackLanes("a", "sha256:" + "c" * 64, public, hidden)


def built(tmp_path, name, **changes):
    source, layers = tmp_path / f"{name}-source", tmp_path / name
    layers.mkdir()
    pack = content(source, **changes)
    if changes:
        os.utime(source / "tasks.jsonl", (1, 1))
        (source / "tasks.jsonl").chmod(0o600)
    return build_pack(pack, layers, BundleLimits())


def test_the_same_pack_has_the_same_digest(tmp_path):
    first, second = built(tmp_path, "first"), built(tmp_path, "second", reverse=True)
    assert first.manifest == second.manifest
    assert first.digest == IMAGE


def test_hidden_data_is_in_its_own_layer(tmp_path):
    public, hidden = (path.read_bytes() for path in built(tmp_path, "first").layers.values())
    assert b"id: a" in public
    for name, data in ROWS.items():
        assert name.encode() not in public
        assert data not in public
        assert data in hidden


def test_a_layout_is_content_addressed(tmp_path):
    folder = tmp_path / "layout"
    made = write_layout(content(tmp_path / "source"), folder, BundleLimits())
    index = json.loads((folder / "index.json").read_text())
    assert [item["digest"] for item in index["manifests"]] == [made.digest]
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    blobs = {path.name: path.read_bytes() for path in (folder / "blobs/sha256").iterdir()}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in blobs.items()} == {
        name: name for name in blobs
    }
    wanted = [item["digest"] for item in json.loads(made.manifest)["layers"]]
    assert {name.removeprefix("sha256:") for name in wanted} < set(blobs)


def test_a_layout_replaces_nothing(tmp_path):
    (tmp_path / "layout").mkdir()
    with pytest.raises(FileExistsError):
        write_layout(content(tmp_path / "source"), tmp_path / "layout", BundleLimits())


def test_a_pack_beyond_the_bounds(tmp_path):
    with pytest.raises(TooLargeError):
        build_pack(content(tmp_path / "source"), tmp_path, BundleLimits(size_bytes=3))
