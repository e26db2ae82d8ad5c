"""A results volume with a file system of its own, which faults fill, freeze and make read-only."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.release import Raw, call
from support.waiting import until

BYTES = 512 * 1024**2
BLOCK_BYTES = 4096
FILLER = "filler"


class Disk(NamedTuple):
    """A file system in a file, and the PersistentVolume that Pods see it as.

    Attributes:
        name: Of the PersistentVolume and of its class.
        folder: Where it is mounted on this machine.
    """

    name: str
    folder: Path

    @property
    def values(self) -> dict[str, object]:
        """Of a release of the chart whose results volume it is."""
        return {
            "persistence.storageClassName": self.name,
            "persistence.size": str(BYTES),
            "persistence.keep": False,
        }

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Leave no byte free for a while."""
        filler = self.folder / FILLER
        with filler.open("wb") as file:
            try:
                _fill(file.fileno())
                yield
            finally:
                filler.unlink()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let every write hang for a while."""
        call("fsfreeze", "--freeze", str(self.folder))
        try:
            yield
        finally:
            call("fsfreeze", "--unfreeze", str(self.folder))

    @contextmanager
    def read_only(self, end_writers: Callable[[], object]) -> Iterator[None]:
        """Take no writes for a while.

        Args:
            end_writers: Ends the processes that have files open for writing; called until the
                kernel finds none.
        """

        def is_read_only() -> bool:
            end_writers()
            return self._remount("ro") == 0

        until(is_read_only, f"{self.folder} has files open for writing", step_seconds=0.05)
        try:
            yield
        finally:
            assert self._remount("rw") == 0

    def _remount(self, mode: str) -> int:
        words = ("mount", "--options", f"remount,{mode}", str(self.folder))
        return subprocess.run(words, capture_output=True, check=False).returncode

    def offer_again(self) -> None:
        """Let another claim have it, with its data, now that the first one is gone."""
        patch = [{"op": "remove", "path": "/spec/claimRef"}]
        call("kubectl", "patch", "pv", self.name, "--type=json", "-p", json.dumps(patch))

    def manifest(self) -> Raw:
        """Return its PersistentVolume, whose data stays when its claim goes."""
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name},
            "spec": {
                "capacity": {"storage": str(BYTES)},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": self.name,
                "hostPath": {"path": str(self.folder), "type": "Directory"},
            },
        }


def _fill(descriptor: int) -> None:
    """Take every free block of a file system for a file."""
    size, step = 0, BYTES
    while step >= BLOCK_BYTES:
        try:
            os.posix_fallocate(descriptor, size, step)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            step //= 2
        else:
            size += step


@contextmanager
def disk(parent: Path) -> Iterator[Disk]:
    """Make a disk below a folder, and take it away."""
    name = f"chaos-{uuid.uuid4().hex[:6]}"
    image, made = parent / f"{name}.img", Disk(name, parent / name)
    with image.open("wb") as file:
        file.truncate(BYTES)
    # Without blocks that only root may fill: it is full for all at once.
    call("mkfs.ext4", "-q", "-m", "0", str(image))
    made.folder.mkdir()
    call("mount", "--options", "loop", str(image), str(made.folder))
    try:
        made.folder.chmod(0o777)
        call("kubectl", "create", "-f", "-", stdin=json.dumps(made.manifest()).encode())
        yield made
    finally:
        call("kubectl", "delete", "pv", name, "--wait=false", "--ignore-not-found")
        # Pods that end have it until they are gone.
        call("umount", "--lazy", str(made.folder))
        image.unlink()
