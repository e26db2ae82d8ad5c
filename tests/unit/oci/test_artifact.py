"""Artifacts, and how they are made."""

import hashlib
import json
import os

import pytest

from securebench.benchmark.files.bundle import BundleLimits
from securebench.errors import PackError, TooLargeError
from securebench.oci.artifact import (
    CONFIG,
    HIDDEN_LAYER,
    PUBLIC_LAYER,
    Descriptor,
    PackArtifact,
    decode_artifact,
    encode_artifact,
)
from securebench.oci.pack_image import PackLanes, build_pack, write_layout

PUBLIC = Descriptor(PUBLIC_LAYER, "sha256:" + "a" * 64, 10)
HIDDEN = Descriptor(HIDDEN_LAYER, "sha256:" + "b" * 64, 20)
ARTIFACT = PackArtifact(PUBLIC, HIDDEN, "smoke", "sha256:" + "c" * 64)
BODY = json.loads(encode_artifact(ARTIFACT))


def test_a_manifest_is_read_as_it_was_written():
    assert decode_artifact(encode_artifact(ARTIFACT), "x/y:1") == ARTIFACT


def test_the_empty_configuration_is_that_of_the_image_spec():
    assert CONFIG.digest == (
        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )
    assert BODY["config"] == CONFIG.to_json()


def layer(**changes):
    return {**PUBLIC.to_json(), **changes}


OTHERS = {
    "not JSON": (b"{", "its manifest is not JSON"),
    "deep": (b"[" * 60_000, "its manifest is not JSON"),
    "a list": (b"[]", "is no pack of artifact type"),
    "a container image": ({**BODY, "artifactType": ""}, "is no pack of artifact type"),
    "a later version": (
        {**BODY, "artifactType": "application/vnd.securebench.pack.v2"},
        "is no pack of artifact type application/vnd.securebench.pack.v1",
    ),
    "one layer": ({**BODY, "layers": BODY["layers"][:1]}, "does not have the two layers"),
    "three layers": ({**BODY, "layers": BODY["layers"] * 2}, "does not have the two layers"),
    "in another order": ({**BODY, "layers": BODY["layers"][::-1]}, "does not have the two layers"),
    "one layer twice": (
        {**BODY, "layers": [layer(), layer(mediaType=HIDDEN_LAYER)]},
        "image x/y:1 names one layer twice",
    ),
    "no layers": ({**BODY, "layers": None}, "does not have the two layers"),
    "another type": ({**BODY, "layers": [layer(mediaType="x"), {}]}, "without a SHA-256 digest"),
    "a path": ({**BODY, "layers": [layer(digest="sha256:../../x")]}, "without a SHA-256 digest"),
    "upper case": ({**BODY, "layers": [layer(digest="sha256:" + "A" * 64)]}, "without a SHA-256"),
    "a truth": ({**BODY, "layers": [layer(size=True)]}, "a SHA-256 digest and a size"),
    "below zero": ({**BODY, "layers": [layer(size=-1)]}, "a SHA-256 digest and a size"),
    "a fraction": ({**BODY, "layers": [layer(size=1.5)]}, "a SHA-256 digest and a size"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_pack(name):
    content, message = OTHERS[name]
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(PackError, match="image x/y:1") as raised:
        decode_artifact(content, "x/y:1")
    assert message in str(raised.value)


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
