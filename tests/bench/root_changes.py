"""Measures what it costs that the changes of a root file system are the candidate.

``sudo python tests/bench/root_changes.py IMAGE`` takes a folder or an archive of an image (``docker
save`` or OCI), makes containers of it by overlayfs as root without capabilities, and lets an agent
write so many files. Prints for each number of files the seconds of each step and the bytes of the
archive. Needs root, Go and util-linux; no cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

ROOT = Path(__file__).parents[2]
COUNTS = (0, 1, 1000, 50_000)
FILE_BYTES = 2048
EXCLUDED = ["/opt/securebench", "/tests", "/logs"]
BOUNDS = {"workspace_bytes": 1 << 30, "workspace_files": 100_000}
START_SECONDS = 0.3
"""For the courier to ask for its signal."""

ENTER = """set -e
mkdir -p "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mkdir -p "$2/root/proc" "$2/root/dev" "$2/root/opt/securebench/own"
mount -t proc proc "$2/root/proc"
mount --rbind /dev "$2/root/dev"
mount --bind "$2/own" "$2/root/opt/securebench/own"
touch "$2/own/log"
mount --bind "$2/own/log" "$2/root/dev/termination-log"
exec chroot "$2/root" /opt/securebench/own/supervise run --spec "$3"
"""
COURIER = """set -e
mount -t proc proc "$1/proc"
exec chroot "$1" /supervise courier --spec "$2"
"""
WRITE = """i=0; mkdir -p /srv/new; content=$(printf '%2047s' x)
while [ $i -lt COUNT ]; do
  [ $((i % 500)) = 0 ] && mkdir -p /srv/new/$((i / 500))
  echo "$content" > /srv/new/$((i / 500))/$i; i=$((i + 1))
done"""


class Cost(NamedTuple):
    """Of one candidate.

    Attributes:
        find: Seconds to read the root file system before and after the agent, and to write.
        seal: Seconds to check the archive and to write it anew.
        make: Seconds to make the changes in the verifier, its tools found twice.
        size_bytes: Of the sealed archive.
    """

    find: float
    seal: float
    make: float
    size_bytes: int


class Bench:
    """One image on one machine.

    Args:
        image: Its root file system.
        folder: For everything else.
    """

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self._folder = folder
        self._program = folder / "supervise"
        subprocess.run(
            ["go", "build", "-o", str(self._program), "."],
            cwd=ROOT / "images" / "supervise",
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )

    def cost(self, count: int) -> Cost:
        """Return what a candidate of so many new files costs."""
        agent, find = self._container(
            "agent",
            {"root": {"excluded": EXCLUDED, "bytes": 1 << 30, "entries": 100_000}},
            ["sh", "-c", WRITE.replace("COUNT", str(count))],
        )
        sealed, seal = self._seal(agent / "own" / "root.tar")
        digest = json.loads((sealed / "dev/termination-log").read_text())["digest"]
        changes = {
            "path": "/opt/securebench/own/candidate/root.tar",
            "digest": digest,
            "excluded": EXCLUDED,
            "tools": ["bash", "sh", "env"],
        }
        archive = sealed / "work/candidate/root.tar"
        _, make = self._container("verifier", {"changes": changes}, ["true"], archive)
        return Cost(find, seal, make, archive.stat().st_size)

    def floor(self) -> float:
        """Return the seconds of a container without any of it."""
        return self._container("floor", {}, ["true"])[1]

    def _container(
        self, name: str, own: dict[str, Any], command: Sequence[str], archive: Path | None = None
    ) -> tuple[Path, float]:
        folder = self._fresh(name)
        (folder / "own/candidate").mkdir(parents=True)
        shutil.copy(self._program, folder / "own/supervise")
        if archive is not None:
            shutil.copy(archive, folder / "own/candidate/root.tar")
        streams = {"folder": "/opt/securebench/own", "head_bytes": 1000, "tail_bytes": 1000}
        spec = {
            "version": 1,
            "streams": streams,
            "temporary": "",
            "probes": [],
            "probe_timeout_seconds": 1,
            "max_processes": 0,
            "phases": [{"name": "main", "command": command, "workdir": "/"}],
            **own,
        }
        words = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", ENTER, "sh"]
        begun = time.monotonic()
        subprocess.run([*words, str(self._image), str(folder), json.dumps(spec)], check=True)
        seconds = time.monotonic() - begun
        message = json.loads((folder / "own/log").read_text())
        if message["code"] or message["exit_code"]:
            raise RuntimeError(message)
        return folder, seconds - message["duration_seconds"]

    def _seal(self, archive: Path) -> tuple[Path, float]:
        folder = self._fresh("courier")
        for name in ("work/output", "work/candidate", "work/producer", "proc", "dev"):
            (folder / name).mkdir(parents=True)
        shutil.copy(self._program, folder / "supervise")
        shutil.copy(archive, folder / "work/output/root.tar")
        small = {"text_bytes": 1, "patch_bytes": 1, "stream_bytes": 1000, **BOUNDS}
        extraction = {"mode": "root_diff", "kind": "root"}
        seal = {"extraction": extraction, "limit_bytes": 1, "exclude": ["opt/securebench"]}
        spec = {"version": 1, "limits": small, "seal": seal}
        words = ["unshare", "--mount", "sh", "-c", COURIER, "sh", str(folder), json.dumps(spec)]
        courier = subprocess.Popen(words)
        time.sleep(START_SECONDS)
        begun = time.monotonic()
        courier.send_signal(signal.SIGTERM)
        if courier.wait():
            message = "the courier sealed nothing"
            raise RuntimeError(message)
        return folder, time.monotonic() - begun

    def _fresh(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack the layers of an image into a folder of its own and return that."""
    root = folder / "image"
    root.mkdir()
    with tarfile.open(archive) as image:
        for name in _layers(image):
            layer = image.extractfile(name)
            if layer is not None:
                _apply(layer, root)
    return root


def _layers(image: tarfile.TarFile) -> list[str]:
    if "manifest.json" in image.getnames():
        return [str(name) for name in _json(image, "manifest.json")[0]["Layers"]]
    entry = _json(image, "index.json")["manifests"][0]
    manifest = _json(image, _blob(entry["digest"]))
    return [_blob(layer["digest"]) for layer in manifest["layers"]]


def _json(image: tarfile.TarFile, name: str) -> Any:
    file = image.extractfile(name)
    return None if file is None else json.load(file)


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _apply(layer: IO[bytes], root: Path) -> None:
    with tarfile.open(fileobj=layer) as entries:
        for entry in entries:
            path = root / entry.name
            if path.name.startswith(".wh."):
                gone = path.with_name(path.name.removeprefix(".wh."))
                if gone.is_dir() and not gone.is_symlink():
                    shutil.rmtree(gone)
                else:
                    gone.unlink(missing_ok=True)
            elif not entry.isdev():
                entries.extract(entry, root, numeric_owner=True, filter="fully_trusted")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path, help="folder or archive of an image")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="*", default=COUNTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        image = options.image if options.image.is_dir() else unpacked(options.image, folder)
        entries = sum(1 for _ in image.rglob("*"))
        bench = Bench(image, folder)
        floor = statistics.median(bench.floor() for _ in range(options.rounds))
        print(f"{entries} entries in the image; a container without it: {floor:.2f} s")
        print(f"{'files':>7}  {'find':>7}  {'seal':>7}  {'make':>7}  {'bytes':>11}")
        for count in options.counts:
            costs = [bench.cost(count) for _ in range(options.rounds)]
            find, seal, make = (
                statistics.median(getattr(each, step) for each in costs)
                for step in ("find", "seal", "make")
            )
            line = f"{count:>7}  {find - floor:6.2f}s  {seal:6.2f}s  {make - floor:6.2f}s"
            print(f"{line}  {costs[0].size_bytes:>11}")


if __name__ == "__main__":
    main()
