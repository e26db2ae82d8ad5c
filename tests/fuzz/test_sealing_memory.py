"""Whatever an agent leaves: the courier needs a fraction of its memory limit, and says what it is.

Peaks are high-water marks of the courier, which the kernel counts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from securebench.protocol.candidate import KINDS, CandidateBounds
from securebench.run.api.field_types import quantity
from securebench.run.pods.volumes import COURIER_LIMITS, MEMORY
from support.courier import started

LIMIT = int(quantity(COURIER_LIMITS[MEMORY]))
BOUNDS = CandidateBounds()
ENTRIES = BOUNDS.workspace_files
MAX_NAMES_BYTES = 32 << 20
"""Of paths and targets of links, as `images/supervise/internal/untrusted/walk.go` has it."""
SOME = ENTRIES // 10
"""Of shapes that need less for each entry than the worst, which is there in full."""


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[Path]:
    for name in ("workspace", "candidate", "output", "producer"):
        (tmp_path / name).mkdir()
    yield tmp_path
    shutil.rmtree(tmp_path)


def sealed(
    volumes: Path, mode: str, kind: str, bounds: CandidateBounds = BOUNDS
) -> tuple[int, dict[str, object]]:
    """Seal; return the peak in bytes and the termination message."""
    spec = {
        "version": 1,
        "limits": asdict(bounds),
        "seal": {
            "extraction": {"mode": mode, "path": None, "kind": kind},
            "limit_bytes": KINDS[kind].limit(bounds),
            "exclude": ["securebench"],
        },
    }
    peak = 0
    with started(volumes, json.dumps(spec)) as process:
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            # The kernel's count at the end has the memory of the process that started it, too.
            peak = max(peak, high_water(process.pid))
    assert process.returncode == 0
    return peak, json.loads((volumes / "log").read_bytes())


def high_water(pid: int) -> int:
    """Return the most memory that a process has had; 0 when it has ended."""
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    return 0


def nested(root: Path, levels: int, name: str) -> int:
    """Make folders inside each other; return a descriptor of the innermost."""
    folder = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    return folder


def touch(folder: int, name: str) -> None:
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=folder))


def long_names_below_a_long_path(root: Path) -> None:
    folder = nested(root, 15, "n" * 240)
    for number in range(2 * MAX_NAMES_BYTES // 3800):
        touch(folder, f"{number:06d}" + "f" * 180)
    os.close(folder)


def long_links_below_a_long_path(root: Path) -> None:
    folder = nested(root, 15, "n" * 240)
    for number in range(2 * MAX_NAMES_BYTES // 7900):
        os.symlink("t" * 4095, f"{number:06d}" + "l" * 180, dir_fd=folder)
    os.close(folder)


def folders_of_the_longest_names(root: Path) -> None:
    for number in range(ENTRIES):
        (root / (f"{number:06d}" + "d" * 249)).mkdir()


def many_links(root: Path) -> None:
    for number in range(SOME):
        (root / f"{number:06d}").symlink_to("t" * 310)


def names_of_wide_characters(root: Path) -> None:
    for number in range(SOME):
        (root / (f"{number:06d}" + "😀" * 62)).touch()


def as_deep_as_may_be(root: Path) -> None:
    os.close(nested(root, 255, "d" * 15))


def one_large_file(root: Path) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(64 << 20)


SHAPES: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "long names below a long path": (long_names_below_a_long_path, "candidate_too_large"),
    "long links below a long path": (long_links_below_a_long_path, "candidate_too_large"),
    "folders of the longest names": (folders_of_the_longest_names, None),
    "many links": (many_links, None),
    "names of wide characters": (names_of_wide_characters, None),
    "as deep as may be": (as_deep_as_may_be, None),
    "one large file": (one_large_file, None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_workspace_takes_a_fraction_of_the_couriers_memory(name: str, volumes: Path) -> None:
    make, problem = SHAPES[name]
    make(volumes / "workspace")

    peak, message = sealed(volumes, "workspace", "workspace")

    print(f"{name}: {peak / 2**20:.0f} MiB")  # noqa: T201 - the figure is what is asked for
    assert message["problem"] == problem
    assert peak < LIMIT / 2


TEXTS: dict[str, bytes] = {
    "plain": b"x" * BOUNDS.patch_bytes,
    "one wide character": b"x" * (BOUNDS.patch_bytes - 4) + "😀".encode(),
    "wide characters": "😀".encode() * (BOUNDS.patch_bytes // 4),
}


@pytest.mark.parametrize("name", TEXTS)
def test_streams_and_a_patch_take_less_than_the_couriers_memory(name: str, volumes: Path) -> None:
    for stream in ("stdout", "stdout.tail", "stderr", "stderr.tail", "diff"):
        (volumes / "output" / stream).write_bytes(TEXTS[name])

    peak, message = sealed(volumes, "git_diff", "patch")

    print(f"{name}: {peak / 2**20:.0f} MiB")  # noqa: T201 - the figure is what is asked for
    assert message["problem"] is None
    assert peak < LIMIT


def test_more_files_than_by_default_take_little_more(volumes: Path) -> None:
    """An administrator may allow any number of files; the bound on their names stays."""
    folder = os.open(volumes / "workspace", os.O_RDONLY)
    peaks = []
    for number in range(3 * ENTRIES):
        touch(folder, f"{number:06d}")
        if number + 1 in {ENTRIES, 3 * ENTRIES}:
            bounds = replace(BOUNDS, workspace_files=100 * ENTRIES)
            peak, message = sealed(volumes, "workspace", "workspace", bounds)
            assert message["problem"] is None
            peaks.append(peak)
            (volumes / "producer/sealed.json").unlink()
    os.close(folder)

    each = (peaks[1] - peaks[0]) / (2 * ENTRIES)
    most = peaks[0] + MAX_NAMES_BYTES / 4 * each
    print(f"{each:.0f} bytes a file, at most {most / 2**20:.0f} MiB")  # noqa: T201 - the figure
    assert most < LIMIT
