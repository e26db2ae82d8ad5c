"""What the operator does with a hostile patch, in a process of its own, with and without a bound.

Each reading starts in a fresh interpreter, so that its peak memory is its own and what a twin takes
off is taken off there alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from securebench.benchmark.patch import judgement, reader
from securebench.protocol.volume import RECORD
from securebench.run.records import record_line
from support import memory_reading
from support.memory_shapes import PATCHES

NO_BOUND = 1 << 60
BACKTRACKING = (
    rb'(?:"(?:[^"\\\x00-\x1f\x7f]|\\(?:[abtnvfr"\\]|[0-3][0-7]{2}))*"|[^\x00-\x20\x7f"\\]+)'
)
"""Names as the operator matched them once: it remembers a way back for each byte."""


def names_that_backtrack() -> None:
    """Match the names of a header with a way back for each byte."""
    reader._HEADER = re.compile(b"diff --git (" + BACKTRACKING + b") (" + BACKTRACKING + b")")


def sections_without_bound() -> None:
    """Read all sections and paths of a patch."""
    reader.SECTIONS = reader.PATHS_BYTES = NO_BOUND


def lists_without_bound() -> None:
    """Keep every path in a record, however long that makes it."""
    sections_without_bound()
    judgement.LISTED_PATHS = judgement.LISTED_BYTES = NO_BOUND
    minimal = record_line._minimal
    record_line._STEPS = tuple(step for step in record_line._STEPS if step is not minimal)


WEAKENINGS: Mapping[str, Callable[[], None]] = {
    "names": names_that_backtrack,
    "sections": sections_without_bound,
    "lists": lists_without_bound,
}


@dataclass(frozen=True, slots=True)
class Read:
    """What came of a reading.

    Attributes:
        kib: Growth of the process's peak resident memory.
        problem: Why the patch is not applied; empty for one that is.
        record_bytes: Length of the attempt's record; 0 where none was written.
    """

    kib: int
    problem: str = ""
    record_bytes: int = 0


def judged(shape: str, size: int, weakening: str = "") -> Read:
    """Judge a patch of a shape as a capture does.

    Args:
        shape: Of ``support.memory_shapes``.
        size: Bytes of the patch.
        weakening: What is taken off before; a key of ``WEAKENINGS``.
    """
    return _apart(_judge, shape, size, weakening)


def recorded(shape: str, size: int, weakening: str = "") -> Read:
    """Write the record of an attempt with such a patch; arguments as above."""
    return _apart(_record, shape, size, weakening)


def _apart(work: Callable[[Path, str, int], Read], shape: str, size: int, weakening: str) -> Read:
    with (
        TemporaryDirectory(prefix="securebench-reading-") as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        return pool.submit(_weakened, work, Path(folder), shape, size, weakening).result()


def _weakened(
    work: Callable[[Path, str, int], Read], folder: Path, shape: str, size: int, weakening: str
) -> Read:
    if weakening:
        WEAKENINGS[weakening]()
    return work(folder, shape, size)


def _judge(folder: Path, shape: str, size: int) -> Read:
    memory_reading.candidate_file(folder).write_bytes(PATCHES[shape](size))
    kib, answer = _grown(lambda: memory_reading.patch(folder))
    _, sealed = answer
    return Read(kib, sealed.problem)


def _record(folder: Path, shape: str, size: int) -> Read:
    memory_reading.candidate_file(folder).write_bytes(PATCHES[shape](size))
    kib, _ = _grown(lambda: memory_reading.record(folder))
    (line,) = folder.rglob(RECORD)
    return Read(kib, record_bytes=line.stat().st_size)


def _grown(work: Callable[[], Any]) -> tuple[int, Any]:
    """Return how much the peak of this process grew by some work, in KiB, and its result."""
    _forget_peak()
    before = memory_reading.peak_kib()
    result = work()
    return memory_reading.peak_kib() - before, result


def _forget_peak() -> None:
    """Set the process's peak to what it holds now: making the patch took memory too (proc(5))."""
    Path("/proc/self/clear_refs").write_text("5")


def weakly_judged(folder: Path, shape: str, size: int, weakening: str) -> Read:
    """Judge a patch of a shape in this process, a bound taken off; arguments as ``judged``'s."""
    return _weakened(_judge, folder, shape, size, weakening)
