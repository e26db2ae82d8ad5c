"""What the operator reads of a candidate takes at most four times its size in memory.

Measured is the growth of the peak resident memory (VmHWM of /proc/self/status) of a process of its
own that only reads: the tests' own process says nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest

from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import judge_patch
from securebench.benchmark.patch.reader import SECTIONS
from securebench.controller.volume.store import RunStore
from securebench.protocol.candidate import CHANGED_FILE, TEXT_FILE
from securebench.protocol.volume import RECORD
from securebench.run.artifacts import Part
from securebench.run.verification.patch import CHANGED_BYTES
from support.memory_reading import CHECK, LAUNCH, candidate_file
from support.memory_shapes import PATCHES, STREAMS, changed
from support.places import launch_place

ANY = CandidatePolicy.of({})
MIB = 1 << 20
PATCH_BYTES = 4 * MIB
STREAM_BYTES = MIB
TIMES = 4
FLOOR_KIB = 8 * 1024
"""What a short text may take all the same; the bounds on sections and paths set it."""
ARENAS_KIB = 2 * 1024
"""CPython takes memory in arenas of 1 MiB. How much of the last one was free before the reading,
and how much of the last one is free behind it, is chance of what was imported: at most one arena
each is no growth of what is read."""


class Reading(NamedTuple):
    """What reading took."""

    kib: int
    seconds: float


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "support.memory_reading"]
    environment = {"PYTHONPATH": ":".join(sys.path), "MALLOC_ARENA_MAX": "1"}
    with subprocess.Popen(command, env=environment, text=True, stdin=PIPE, stdout=PIPE) as process:
        yield process
        process.communicate()


class Measure:
    """Hands jobs to the reading process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, reader: str, folder: Path) -> Reading:
        """Return what a reader took."""
        ask, answers = self._process.stdin, self._process.stdout
        assert ask is not None
        assert answers is not None
        ask.write(json.dumps([reader, str(folder)]) + "\n")
        ask.flush()
        return Reading(**json.loads(answers.readline()))


@pytest.fixture
def reading(reader: subprocess.Popen[str]) -> Measure:
    return Measure(reader)


def allowed_kib(size: int) -> int:
    return max(TIMES * size // 1024, FLOOR_KIB) + ARENAS_KIB


@pytest.mark.parametrize("shape", PATCHES)
def test_a_patch(shape: str, tmp_path: Path, reading: Measure) -> None:
    data = PATCHES[shape](PATCH_BYTES)
    candidate_file(tmp_path).write_bytes(data)

    assert reading("patch", tmp_path).kib <= allowed_kib(len(data))


def test_the_most_that_is_read_is_read() -> None:
    judgement = judge_patch(PATCHES["as many sections as are read"](PATCH_BYTES), ANY)

    assert judgement.problem is None
    assert len(judgement.paths) == SECTIONS


def texts(root: Path, patch: bytes, stream: bytes) -> int:
    """Write what two launches of an attempt leave; return its size."""
    store = RunStore(root, "u")
    store.make_launch_folders(LAUNCH)
    store.make_launch_folders(CHECK)
    folder = launch_place(store, LAUNCH)
    (folder / Part.CANDIDATE / TEXT_FILE).write_bytes(patch)
    places = (folder / Part.PRODUCER, launch_place(store, CHECK) / Part.VERIFICATION)
    for place in places:
        for name in ("stdout", "stderr"):
            (place / name).write_bytes(stream)
    return len(patch) + 4 * len(stream)


@pytest.mark.parametrize("shape", PATCHES)
def test_the_record_of_a_patch(shape: str, tmp_path: Path, reading: Measure) -> None:
    size = texts(tmp_path, PATCHES[shape](PATCH_BYTES), b"ok\n")

    assert reading("record", tmp_path).kib <= allowed_kib(size)


@pytest.mark.parametrize("shape", PATCHES)
def test_results_with_the_record_of_a_patch(shape: str, tmp_path: Path, reading: Measure) -> None:
    texts(tmp_path, PATCHES[shape](PATCH_BYTES), b"ok\n")
    reading("record", tmp_path)
    (record,) = tmp_path.rglob(RECORD)

    assert reading("export", tmp_path).kib <= FLOOR_KIB
    assert reading("publication", tmp_path).kib <= allowed_kib(record.stat().st_size)


@pytest.mark.parametrize("shape", STREAMS)
def test_streams(shape: str, tmp_path: Path, reading: Measure) -> None:
    size = texts(tmp_path, b"", STREAMS[shape](STREAM_BYTES))

    assert reading("streams", tmp_path).kib <= allowed_kib(size)
    assert reading("record", tmp_path).kib <= allowed_kib(size)


def test_the_paths_that_really_changed(tmp_path: Path, reading: Measure) -> None:
    data = changed(CHANGED_BYTES)
    assert len(data) <= CHANGED_BYTES
    (tmp_path / CHANGED_FILE).write_bytes(data)

    assert reading("step", tmp_path).kib <= allowed_kib(len(data))


def test_the_measure_sees_a_copy_too_many(tmp_path: Path, reading: Measure) -> None:
    candidate_file(tmp_path).write_bytes(b"x" * (5 * PATCH_BYTES))

    assert reading("patch", tmp_path).kib > allowed_kib(PATCH_BYTES)
