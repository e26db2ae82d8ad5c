"""``make sbom``: what the documents say is what is in the images."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

from support.image_archives import ARCHIVES, built, layers, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
STATUS = """Package: planted-deb
Status: install ok installed
Architecture: amd64
Version: 1.2-3
Maintainer: nobody <nobody@example.org>
Description: planted

"""
METADATA = "Metadata-Version: 2.1\nName: planted-python\nVersion: 4.5.6\n"
SITE = "usr/lib/python3.11/site-packages"
_DIST_INFO = re.compile(r"(?:^|/)[^/]+\.dist-info/METADATA$")


def components(document: Path) -> set[str]:
    """Return the package addresses of a document, without qualifiers."""
    found = json.loads(document.read_text(encoding="utf-8"))["components"]
    return {each["purl"].partition("?")[0] for each in found if "purl" in each}


def python_packages(archive: Path) -> set[str]:
    found = set()
    for layer in layers(archive):
        for member in layer:
            if _DIST_INFO.search(member.name) and (content := layer.extractfile(member)):
                text = content.read().decode(errors="replace")
                name, version = (
                    re.search(rf"^{field}: (.*)$", text, re.MULTILINE)
                    for field in ("Name", "Version")
                )
                assert name
                assert version
                found.add(f"pkg:pypi/{re.sub('[-_.]+', '-', name[1]).lower()}@{version[1].strip()}")
    return found


@pytest.fixture(scope="module")
def supervise(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    program = tmp_path_factory.mktemp("supervise") / "supervise"
    words = ["go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(program), "."]
    subprocess.run(words, cwd=ROOT / "images" / "supervise", check=True)
    return program.read_bytes()


def test_planted_packages_show_up(tmp_path: Path, supervise: bytes) -> None:
    tool("syft")
    files = {
        "etc/os-release": b"ID=debian\nVERSION_ID=12\n",
        "var/lib/dpkg/status": STATUS.encode(),
        f"{SITE}/planted_python-4.5.6.dist-info/METADATA": METADATA.encode(),
        "usr/local/bin/supervise": supervise,
    }
    place = built(tmp_path / "cache", files)
    printed = place.run("sbom.sh").split()
    assert len(printed) == 4, "two images for two platforms"
    for path in printed:
        found = components(Path(path))
        assert {"pkg:deb/debian/planted-deb@1.2-3", "pkg:pypi/planted-python@4.5.6"} <= found
        assert any(each.startswith("pkg:golang/golang.org/x/sys@v") for each in found)
        assert any(each.startswith("pkg:golang/stdlib@1.") for each in found)


def test_a_document_of_a_built_image_has_every_python_package() -> None:
    (archive,) = ARCHIVES.glob("operator-*.tar")
    found = components(archive.with_suffix(".cdx.json"))
    in_image = python_packages(archive)
    assert "pkg:pypi/securebench@0.1.0" in in_image
    listed = {each for each in found if each.startswith("pkg:pypi/")}
    normal = {re.sub(r"[-_.]+(?=[^@]*@)", "-", each.lower()) for each in listed}
    assert in_image <= normal


def test_a_document_of_a_built_image_has_every_debian_package() -> None:
    (archive,) = ARCHIVES.glob("operator-*.tar")
    found = components(archive.with_suffix(".cdx.json"))
    status = ""
    for layer in layers(archive):
        for member in layer:
            if member.name.removeprefix("./") == "var/lib/dpkg/status":
                status = (layer.extractfile(member) or io.BytesIO()).read().decode()
    installed = [
        each for each in status.split("\n\n") if "\nStatus: install ok installed\n" in each
    ]
    names = {re.search(r"^Package: (.*)$", each, re.MULTILINE)[1] for each in installed}  # type: ignore[index]
    listed = {unquote(re.split("[/@]", each)[2]) for each in found if each.startswith("pkg:deb/")}
    assert names
    assert names == listed
