"""``make push``: built images in a registry, by digest, with values for the chart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from support.image_archives import Built, write_archive
from support.registry import registry
from support.release import CommandError, call

BOTH = "linux/amd64,linux/arm64"
CREDENTIALS = "someone:$2y$05$xJvMxoYNa7lFKjMjT3pMPuZ0fh5MVTdGDH8sHAzXo0u3iZk8RC/eS"
SBOM = "application/vnd.cyclonedx+json"


def pushed(images: Built, registry_path: str, *arguments: str, **variables: str) -> dict[str, str]:
    printed = images.run("push.sh", registry_path, *arguments, **variables)
    assert printed == (images.images / "pushed.yaml").read_text(encoding="utf-8")
    named: dict[str, str] = yaml.safe_load(printed)["image"]
    return named


def test_values_name_by_digest_what_the_registry_has(images: Built, host: str, crane: str) -> None:
    named = pushed(images, f"{host}/team")
    for name in ("operator", "pod"):
        place, _, digest = named[name].partition("@")
        assert place == f"{host}/team/securebench-{name}"
        assert digest == call(crane, "digest", f"{place}:0123456789ab").decode().strip()
        assert b"hello" in call(crane, "export", named[name], "-")


def test_a_tag_of_ones_own(images: Built, host: str, crane: str) -> None:
    named = pushed(images, f"{host}/team", TAG="0.1.0")
    found = call(crane, "digest", f"{host}/team/securebench-pod:0.1.0").decode().strip()
    assert named["pod"].endswith(found)


def test_an_index_lists_each_platform_with_its_image(images: Built, host: str, crane: str) -> None:
    named = pushed(images, host, PLATFORMS=BOTH)
    index = json.loads(call(crane, "manifest", named["pod"]))
    for entry, architecture in zip(index["manifests"], ("amd64", "arm64"), strict=True):
        assert entry["platform"] == {"architecture": architecture, "os": "linux"}
        place = named["pod"].partition("@")[0]
        config = json.loads(call(crane, "config", f"{place}@{entry['digest']}"))
        assert config["architecture"] == architecture


def test_an_sbom_goes_along(images: Built, host: str, crane: str, oras: str) -> None:
    document = '{"bomFormat": "CycloneDX"}'
    (images.archives / "pod-0123456789ab.cdx.json").write_text(document, encoding="utf-8")
    named = pushed(images, host)
    found = json.loads(
        call(
            oras, "discover", "--plain-http", "--format", "json", "--platform", "linux/amd64",
            "--artifact-type", SBOM, named["pod"],
        )
    )  # fmt: skip
    (referrer,) = found["referrers"]
    manifest = json.loads(call(crane, "manifest", referrer["reference"]))
    place = named["pod"].partition("@")[0]
    (layer,) = manifest["layers"]
    assert call(crane, "blob", f"{place}@{layer['digest']}").decode() == document


def test_all_has_task_images_and_no_stand_in(images: Built, host: str, crane: str) -> None:
    for name in ("task-a-pack-starter", "standin-python"):
        reference = f"docker.io/securebench/{name}:1"
        write_archive(images.archives / f"{name}-0123456789ab.tar", reference, {"a": b"a"})
    pushed(images, f"{host}/team", "all")
    names = call(crane, "catalog", host).decode().split()
    assert [name for name in names if "securebench-" not in name] == ["team/a-pack-starter"]
    assert call(crane, "digest", f"{host}/team/a-pack-starter:1")


@pytest.mark.parametrize(
    ("place", "platforms", "want"),
    [
        ("", "", "REGISTRY is empty: give host and path, such as registry.example.org/team"),
        ("https://a.example/b", "", "write host and path alone"),
        ("a.example/b/", "", "write host and path alone"),
        ("a.example/b", "linux/s390x", "PLATFORMS names linux/s390x; there are linux/amd64"),
        ("127.0.0.1:1/b", "", "operator:0123456789ab-amd64 was not pushed"),
    ],
)  # fmt: skip
def test_what_cannot_be_pushed_is_said(
    images: Built, place: str, platforms: str, want: str
) -> None:
    with pytest.raises(CommandError, match="error: ") as raised:
        images.run("push.sh", place, PLATFORMS=platforms)
    assert want in str(raised.value)


def test_a_registry_that_asks_for_credentials(images: Built, tmp_path: Path) -> None:
    passwords = tmp_path / "htpasswd"
    passwords.write_text(CREDENTIALS + "\n", encoding="utf-8")
    auth = {"htpasswd": {"realm": "here", "path": str(passwords)}}
    with registry(tmp_path, auth) as host, pytest.raises(CommandError) as raised:
        images.run("push.sh", host)
    assert f"docker login {host}" in str(raised.value)
    assert "401 Unauthorized" in str(raised.value)


def test_without_images_it_says_which_command_builds_them(images: Built) -> None:
    (images.images / "tags.env").unlink()
    with pytest.raises(CommandError, match="no image is built yet: make images"):
        images.run("push.sh", "registry.example.org/team")


def test_a_platform_that_is_not_built_is_said(images: Built, host: str) -> None:
    (images.images / "archives-arm64" / "operator-0123456789ab.tar").unlink()
    with pytest.raises(CommandError) as raised:
        images.run("push.sh", host, PLATFORMS=BOTH)
    assert "is not built for linux/arm64: PLATFORMS=linux/arm64 make images" in str(raised.value)
