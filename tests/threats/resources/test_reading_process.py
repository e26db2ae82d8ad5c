"""F10: what is read without a bound ends the process that reads it, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from securebench.controller.reading import ReadingEndedError, ReadingProcess
from support import memory_reading
from threats.honest import GOLD_PATCH
from threats.resources.patch_readings import Read, weakly_judged

MEBIBYTE: Final = 1 << 20
MANY = "many sections"
"""Without the bound on sections, it takes 50 times its size."""
PATCH_BYTES = 4 * MEBIBYTE
LIMIT_BYTES = 48 * MEBIBYTE
NO_LIMIT = 1 << 40

pytestmark = pytest.mark.short


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadingProcess]:
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    process = ReadingProcess(LIMIT_BYTES)
    yield process
    process.close()


def hostile(folder: Path) -> partial[Read]:
    """Return the reading of a patch by a reader whose bound on sections is off."""
    return partial(weakly_judged, folder, MANY, PATCH_BYTES, "sections")


def assert_honest_is_read(process: ReadingProcess, folder: Path) -> None:
    memory_reading.candidate_file(folder).write_bytes(GOLD_PATCH.encode())
    is_blank, judged = process(partial(memory_reading.patch, folder))
    assert (is_blank, judged.problem) == (False, "")


# a reading without a bound


def test_a_448_attack(process: ReadingProcess, tmp_path: Path) -> None:
    with pytest.raises(ReadingEndedError):
        process(hostile(tmp_path))
    assert_honest_is_read(process, tmp_path)


@pytest.mark.usefixtures("process")
def test_a_448_twin_without_a_limit(tmp_path: Path) -> None:
    unlimited = ReadingProcess(NO_LIMIT)
    try:
        assert unlimited(hostile(tmp_path)).kib > LIMIT_BYTES // 1024
    finally:
        unlimited.close()


def test_a_448_honest(process: ReadingProcess, tmp_path: Path) -> None:
    assert_honest_is_read(process, tmp_path)
