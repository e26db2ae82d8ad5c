"""Builders of image archives and of repositories, as small as they can be."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

Layer = Mapping[str, bytes]
"""Content by path; ``.wh.NAME`` removes NAME of the layers below."""

DATES = {
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


def tar(files: Layer) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def docker_archive(
    path: Path,
    reference: str,
    layers: Sequence[Layer],
    config: Mapping[str, object] | None = None,
    *,
    zipped: bool = False,
) -> Path:
    blobs = [gzip.compress(tar(layer)) if zipped else tar(layer) for layer in layers]
    names = [f"{hashlib.sha256(blob).hexdigest()}.tar" for blob in blobs]
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": names}]
    members = {
        "config.json": json.dumps(config or {}).encode(),
        "manifest.json": json.dumps(manifest).encode(),
        **dict(zip(names, blobs, strict=True)),
    }
    path.write_bytes(tar(members))
    return path


def oci_archive(
    path: Path, annotations: Mapping[str, str], layers: Sequence[Layer], *, nested: bool = False
) -> str:
    """Write an OCI layout and return the digest of the image's manifest."""
    members: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        members[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = {
        "config": blob(json.dumps({"config": {"Env": ["A=1"]}}).encode()),
        "layers": [blob(gzip.compress(tar(layer), mtime=0)) for layer in layers],
    }
    entry = blob(json.dumps(manifest).encode())
    digest = str(entry["digest"])
    if nested:
        entry = blob(json.dumps({"manifests": [entry]}).encode())
    members["index.json"] = json.dumps(
        {"manifests": [{**entry, "annotations": annotations}]}
    ).encode()
    path.write_bytes(tar(members))
    return digest


class Work:
    """A repository with a working tree.

    Args:
        folder: Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", "--template=")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **DATES,
        }
        return subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def commit(self, files: Layer, message: str = "x") -> str:
        for name, content in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def forget(self) -> None:
        """Remove what a Dockerfile should remove: logs and notes of the last commands."""
        subprocess.run(
            ["rm", "-rf", ".git/logs", ".git/COMMIT_EDITMSG", ".git/ORIG_HEAD"],
            cwd=self.folder,
            check=True,
        )

    def layer(self, prefix: str) -> dict[str, bytes]:
        """Return all files as a layer below a folder of the image."""
        return {
            f"{prefix}/{path.relative_to(self.folder).as_posix()}": path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
