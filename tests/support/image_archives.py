"""Images of a few files, as ``docker save`` writes them, in a cache of ``make images``."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.release import CommandError

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "images"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
ARCHIVES = CACHE / "securebench" / "images" / "archives"
"""What make images really built."""

_SOURCE = "set -euo pipefail; HERE=$PWD/images; . images/lib.sh; "


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write_archive(
    path: Path,
    reference: str,
    files: Mapping[str, bytes],
    architecture: str = "amd64",
    labels: Mapping[str, str] | None = None,
) -> None:
    """Write an image of one layer."""
    layer = _tar(files)
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Labels": dict(labels or {})},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    parts = {
        "manifest.json": json.dumps(manifest, separators=(",", ":")).encode(),
        name: config,
        "layer.tar": layer,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_tar(parts))


def config_of(archive: Path) -> dict[str, Any]:
    """Return the configuration of the image in an archive."""
    with tarfile.open(archive) as image:
        name = json.loads(_read(image, "manifest.json"))[0]["Config"]
        loaded: dict[str, Any] = json.loads(_read(image, name))
        return loaded


def layers(archive: Path) -> Iterator[tarfile.TarFile]:
    """Yield the layers of an archive, the lowest first."""
    with tarfile.open(archive) as image:
        for name in json.loads(_read(image, "manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                yield layer


def _read(image: tarfile.TarFile, name: str) -> bytes:
    return (image.extractfile(name) or io.BytesIO()).read()


class Built(NamedTuple):
    """A cache of its own with built images; its tools are those of the user's cache."""

    cache: Path

    @property
    def archives(self) -> Path:
        """The folder of this machine's archives."""
        return self.cache / "securebench" / "images" / "archives"

    @property
    def images(self) -> Path:
        """The folder of everything that is kept about images."""
        return self.archives.parent

    def run(self, script: str, *arguments: str, **variables: str) -> str:
        """Run a script of images/ and return what it prints.

        Raises:
            CommandError: With what it says, when it fails.
        """
        go = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
        place = {"XDG_CACHE_HOME": str(self.cache), "GOCACHE": go.stdout.strip()}
        done = subprocess.run(
            [str(IMAGES / script), *arguments],
            env={**os.environ, **place, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandError(done.stderr)
        return done.stdout


def built(cache: Path, files: Mapping[str, bytes] | None = None) -> Built:
    """Lay out a cache with an operator's and a Pods' image, the second for both platforms."""
    place = Built(cache)
    content = files or {"hello": b"hello"}
    labels = {"securebench.dev/standin": "python:3.11-slim"}
    for name in ("operator", "pod"):
        reference = f"docker.io/securebench/securebench-{name}:0123456789ab"
        write_archive(
            place.archives / f"{name}-0123456789ab.tar", reference, content, labels=labels
        )
        other = place.images / "archives-arm64" / f"{name}-0123456789ab.tar"
        write_archive(other, f"{reference}-arm64", content, "arm64")
    (place.images / "tags.env").write_text(
        "SECUREBENCH_OPERATOR_IMAGE=securebench/securebench-operator:0123456789ab\n"
        "SECUREBENCH_POD_IMAGE=securebench/securebench-pod:0123456789ab\n",
        encoding="utf-8",
    )
    real = CACHE / "securebench" / "images" / "bin"
    real.mkdir(parents=True, exist_ok=True)
    (place.images / "bin").symlink_to(real)
    return place


def tool(name: str) -> str:
    """Return the path of crane, oras or syft, which is built when it is not there."""
    architecture = '"$(own_platform)"' if name == "crane" else ""
    command = ["bash", "-c", f"{_SOURCE}{name}_tool {architecture}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_OFFLINE = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)))


def offline(*words: str, **variables: str) -> str:
    """Run a program in a network namespace of its own and return what it prints.

    Raises:
        CommandError: With what it says, when it fails.
    """
    done = subprocess.run(
        [*_OFFLINE, *words], env={**os.environ, **variables}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        raise CommandError(done.stderr)
    return done.stdout
