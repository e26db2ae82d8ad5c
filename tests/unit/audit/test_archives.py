"""Archives of images: both forms, names, layers, and files that a later layer removes."""

import gzip
import hashlib
import io
import tarfile

import pytest

from securebench.audit.images import (
    LayerScanner,
    UnreadableImageError,
    catalogue,
    full_reference,
    keep_files,
    open_layer,
    read_archive,
)
from unit.audit.image_archives import docker_archive, oci_archive, tar

NAME = "docker.io/library/small:1"
VALUE = b"a value that is long enough to be searched for"
DIGEST = f"sha256:{'a' * 64}"

REFERENCES = {
    "small": "docker.io/library/small:latest",
    "small:1": NAME,
    "team/small:1": "docker.io/team/small:1",
    "localhost/small:1": "localhost/small:1",
    "registry.example/small": "registry.example/small:latest",
    "host:5000/team/small:1": "host:5000/team/small:1",
    f"small@{DIGEST}": f"docker.io/library/small@{DIGEST}",
    f"small:1@{DIGEST}": f"{NAME}@{DIGEST}",
}


@pytest.mark.parametrize(("written", "full"), REFERENCES.items())
def test_references_are_read_as_clusters_read_them(written, full):
    assert full_reference(written) == full


def write_docker(path):
    docker_archive(path, "small:1", [{"a": VALUE}])


def write_zipped(path):
    docker_archive(path, NAME, [{"a": VALUE}], zipped=True)


def write_oci(path):
    oci_archive(path, {"org.opencontainers.image.ref.name": NAME}, [{"a": VALUE}])


def write_nested(path):
    oci_archive(path, {"io.containerd.image.name": NAME}, [{"a": VALUE}], nested=True)


@pytest.mark.parametrize("write", [write_docker, write_zipped, write_oci, write_nested])
def test_an_image_is_found_by_its_name_and_its_layers_are_read(tmp_path, write):
    write(tmp_path / "image.tar")

    (image,) = catalogue(tmp_path).of("small:1")

    assert len(image.layers) == 1
    assert keep_files(image, lambda path: path == "a").final == {"a": VALUE}
    assert catalogue(tmp_path).of("small:2") == ()


def test_an_image_is_found_by_its_digest(tmp_path):
    digest = oci_archive(tmp_path / "image.tar", {}, [{"a": VALUE}])

    assert len(catalogue(tmp_path).of(f"other@{digest}")) == 1
    assert catalogue(tmp_path).of(f"other@{DIGEST}") == ()


BROKEN = {
    "no tar": b"nothing",
    "compressed as a whole": gzip.compress(tar({"manifest.json": b"[]"})),
    "no manifest": tar({"a": b""}),
    "no JSON": tar({"manifest.json": b"["}),
    "no configuration": tar({"manifest.json": b'[{"Config": "c", "RepoTags": ["a:1"]}]'}),
    "no blob": tar({"index.json": b'{"manifests": [{"digest": "sha256:0"}]}'}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_archive_is_named_with_its_reason(tmp_path, case):
    (tmp_path / "x.tar").write_bytes(BROKEN[case])
    write_docker(tmp_path / "y.tar")

    found = catalogue(tmp_path)

    assert list(found.unreadable) == ["x.tar"]
    assert found.unreadable["x.tar"]
    assert len(found.of("small:1")) == 1


def test_an_index_that_holds_itself_ends(tmp_path):
    inner = b'{"manifests": [{"digest": "sha256:0"}]}'
    members = {"index.json": inner, "blobs/sha256/0": inner}
    (tmp_path / "x.tar").write_bytes(tar(members))

    with pytest.raises(UnreadableImageError, match="too deep"):
        read_archive(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (gzip.compress(tar({"a": VALUE}), mtime=0)[:-40], "damaged"),
        (b"\x1f\x8b\x08 nothing", "damaged"),
        (b"no tar at all" * 100, "damaged"),
    ],
)
def test_a_layer_that_cannot_be_read_says_why(tmp_path, content, reason):
    manifest = b'[{"Config": "c", "RepoTags": ["a:1"], "Layers": ["l"]}]'
    members = {"manifest.json": manifest, "c": b"{}", "l": content}
    (tmp_path / "x.tar").write_bytes(tar(members))
    (image,) = read_archive(tmp_path / "x.tar")

    with pytest.raises(UnreadableImageError, match=reason), open_layer(image, "l") as layer:
        layer.getmembers()


def image_of(tmp_path, layers):
    return read_archive(docker_archive(tmp_path / "x.tar", "a:1", layers))[0]


FINAL = {
    "replaced": ([{"a": b"1"}, {"a": b"2"}], {"a": b"2"}),
    "removed": ([{"a": b"1", "b": b"2"}, {".wh.a": b""}], {"b": b"2"}),
    "folder removed": ([{"d/a": b"1", "dd": b"2"}, {".wh.d": b""}], {"dd": b"2"}),
    "folder emptied": ([{"d/a": b"1"}, {"d/.wh..wh..opq": b"", "d/b": b"2"}], {"d/b": b"2"}),
    "all emptied": ([{"d/a": b"1"}, {".wh..wh..opq": b"", "b": b"2"}], {"b": b"2"}),
    "removed and made again": ([{"a": b"1"}, {".wh.a": b""}, {"a": b"3"}], {"a": b"3"}),
    "odd names": ([{"./a": b"1"}, {"/b": b"2"}], {"a": b"1", "b": b"2"}),
}


@pytest.mark.parametrize("case", FINAL)
def test_what_is_left_is_what_a_container_sees(tmp_path, case):
    layers, want = FINAL[case]

    assert keep_files(image_of(tmp_path, layers), lambda _: True).final.items() >= want.items()
    wanted = {path for path in want if not path.rpartition("/")[2].startswith(".wh.")}
    left = keep_files(image_of(tmp_path, layers), lambda path: ".wh." not in path).final
    assert set(left) == wanted


def test_every_content_that_a_path_had_is_kept(tmp_path):
    layers = [{"a": b"1"}, {".wh.a": b""}, {"a": b"3"}]

    assert keep_files(image_of(tmp_path, layers), lambda path: path == "a").ever == {
        "a": (b"1", b"3")
    }


def test_a_hard_link_has_the_content_of_its_target(tmp_path):
    stream = io.BytesIO(tar({"a": b"1"}))
    with tarfile.open(fileobj=stream, mode="a") as archive:
        member = tarfile.TarInfo("b")
        member.type, member.linkname = tarfile.LNKTYPE, "a"
        archive.addfile(member)
    manifest = b'[{"Config": "c", "RepoTags": ["a:1"], "Layers": ["l"]}]'
    members = {"manifest.json": manifest, "c": b"{}", "l": stream.getvalue()}
    (tmp_path / "x.tar").write_bytes(tar(members))
    (image,) = read_archive(tmp_path / "x.tar")

    assert keep_files(image, lambda _: True).final == {"a": b"1", "b": b"1"}


def test_values_are_found_in_files_that_are_gone(tmp_path):
    other = b"another value that is long enough, too"
    image = image_of(tmp_path, [{"a": b"x" + VALUE, "b": b"short"}, {".wh.a": b""}])
    scanner = LayerScanner([VALUE, other])

    hits = [[path for path, _ in scanner.scan(image, layer).hits] for layer in image.layers]

    assert hits == [["a"], []]


def test_a_layer_is_known_by_its_content_and_not_by_its_name(tmp_path):
    manifest = b'[{"Config": "c", "RepoTags": ["a:1"], "Layers": ["%s.tar"]}]'
    name = hashlib.sha256(tar({"a": b"clean"})).hexdigest().encode()
    scanner = LayerScanner([VALUE])
    found = []
    for number, content in enumerate((b"clean", VALUE)):
        path = tmp_path / f"{number}.tar"
        layer = tar({"a": content})
        members = {"manifest.json": manifest % name, "c": b"{}", f"{name.decode()}.tar": layer}
        path.write_bytes(tar(members))
        (image,) = read_archive(path)
        found.append(len(scanner.scan(image, image.layers[0]).hits))

    assert found == [0, 1]


def test_files_beyond_the_bound_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("securebench.audit.images.MAX_FILE_BYTES", 40)
    image = image_of(tmp_path, [{"a": b"x" * 41, "b": b"y" * 40}])

    assert LayerScanner([VALUE]).scan(image, image.layers[0]).too_large == ("a",)
    with pytest.raises(UnreadableImageError, match="'a' is too large"):
        keep_files(image, lambda _: True)
