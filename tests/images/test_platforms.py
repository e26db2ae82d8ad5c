"""Labels and platforms of the images that ``images/build.sh`` builds."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from pathlib import Path

import pytest

from support.image_archives import ARCHIVES, IMAGES, config_of, layers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MACHINES = {"amd64": 62, "arm64": 183}
"""EM_X86_64 and EM_AARCH64 of an ELF header."""


def supervise_of(archive: Path) -> bytes:
    for layer in layers(archive):
        for member in layer:
            if member.name.endswith("usr/local/bin/supervise"):
                file = layer.extractfile(member)
                assert file
                return file.read()
    raise AssertionError(f"{archive} has no supervise")


@pytest.mark.parametrize("name", ["operator", "pod"])
def test_an_image_says_what_it_is(name: str) -> None:
    (archive,) = ARCHIVES.glob(f"{name}-*.tar")
    labels = config_of(archive)["config"]["Labels"]
    said = {
        key.rpartition(".")[2]: value
        for key, value in labels.items()
        if key.startswith("org.opencontainers.image.")
    }
    assert said["title"].startswith("SecureBench")
    assert said["description"]
    assert (said["licenses"], said["version"]) == ("Apache-2.0", "0.1.0")
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", said["revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", said["created"])


def test_the_pods_image_is_built_for_both_platforms() -> None:
    own = next(ARCHIVES.glob("pod-*.tar"))
    architecture = config_of(own)["architecture"]
    (other,) = set(MACHINES) - {architecture}
    subprocess.run(
        [str(IMAGES / "build.sh"), "pod"],
        env={**os.environ, "PLATFORMS": "linux/amd64,linux/arm64"},
        check=True,
    )
    for archive, wanted in ((own, architecture), (_other(other), other)):
        assert config_of(archive)["architecture"] == wanted
        program = supervise_of(archive)
        assert program[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", program, 18)[0] == MACHINES[wanted]


def _other(architecture: str) -> Path:
    (found,) = (ARCHIVES.parent / f"archives-{architecture}").glob("pod-*.tar")
    return found
