"""A small coverage-guided mutation loop: bounded by time, with a corpus in the tree.

The changes follow from the seed; how far the loop gets depends on the machine. ``FUZZ_SECONDS`` is
the time per target, ``FUZZ_SEED`` gives other inputs, ``FUZZ_KEEP=1`` writes inputs that reach new
lines to ``corpus/<target>/``; ``minimise`` deletes those that later ones make redundant.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, NamedTuple

from fuzz.mutations import mutated

CORPUS = Path(__file__).parent / "corpus"

CPU_SECONDS = 5.0
"""Processor time that one input may take, traced; a hundred times what the slowest needs."""

WALL_SECONDS = 60.0
"""Wall time that one input may take: something blocks. Far above CPU_SECONDS: machines are busy."""

MEMORY_BYTES = 512 * 1024**2
"""Address space that inputs may take beyond what the process has at the start."""

TRACED_SHARE = 0.4
"""Share of the inputs whose lines are looked at; it makes them several times slower."""

Check = Callable[[bytes, Path], None]
Repair = Callable[[bytes, Random], bytes]


class HangError(BaseException):
    """An input took too long; no product code can catch it."""


def unchanged(data: bytes, _: Random) -> bytes:
    return data


@dataclass(frozen=True)
class Target:
    """Something that reads untrusted bytes.

    Args:
        name: Folder of its corpus.
        check: Reads one input; raises for everything that is not a refusal. Gets an empty folder.
        seeds: First inputs, beside the corpus.
        tokens: Words of the format.
        repair: Makes a mutated input plausible again (checksums).
        traced: Modules, as file name ends, whose lines guide the search.
    """

    name: str
    check: Check
    seeds: Sequence[bytes] = ()
    tokens: Sequence[bytes] = ()
    repair: Repair = unchanged
    traced: Sequence[str] = ("/securebench/",)


class Stats(NamedTuple):
    inputs: int
    edges: int
    pool: int


class Coverage:
    """Pairs of lines that follow each other in the traced modules."""

    def __init__(self, traced: Sequence[str]) -> None:
        self._traced = tuple(traced)
        self._known: dict[CodeType, bool] = {}
        self._last = 0
        self._seen: set[int] = set()
        self.all: set[int] = set()

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace; what was traced before (a coverage tool) goes on afterwards."""
        self._seen, self._last = set(), 0
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    @property
    def reached(self) -> frozenset[int]:
        """What the last input reached."""
        return frozenset(self._seen)

    def is_new(self) -> bool:
        """Tell whether the last input reached something new."""
        fresh = not self._seen <= self.all
        self.all |= self._seen
        return fresh

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        code = frame.f_code
        if code not in self._known:
            self._known[code] = any(part in code.co_filename for part in self._traced)
        return self._line if self._known[code] else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            here = hash((frame.f_code, frame.f_lineno))
            self._seen.add(self._last ^ here)
            self._last = here >> 1
        return self._line


def corpus_of(target: Target) -> list[bytes]:
    """Return the committed inputs of a target in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))]


def replay(target: Target, data: bytes) -> None:
    """Check one input in a folder of its own, within the bounds.

    Raises:
        AssertionError: The target misbehaved; ends with the input.
    """
    with tempfile.TemporaryDirectory() as folder, limited():
        guarded(target, data, Path(folder))


def guarded(target: Target, data: bytes, root: Path) -> None:
    try:
        with timed():
            target.check(data, root)
    except (Exception, HangError) as error:
        problem = f"{target.name}: {type(error).__name__}: {error}"
        raise AssertionError(f"{problem}\ninput: {data!r}") from error


@contextmanager
def timed() -> Iterator[None]:
    """Raise HangError after too much processor time, or wall time where something blocks."""

    def stop(*_: object) -> None:
        raise HangError("the input takes too long")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, CPU_SECONDS),
              (signal.SIGALRM, signal.ITIMER_REAL, WALL_SECONDS))  # fmt: skip
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for (number, _, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def limited() -> Iterator[None]:
    """Let what needs too much memory fail with a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass
class Campaign:
    """One run of the loop over a target."""

    target: Target
    seed: str
    pool: list[bytes] = field(default_factory=list)
    inputs: int = 0

    def __post_init__(self) -> None:
        self._random = Random(f"{self.seed} {self.target.name}")  # noqa: S311 - no secret
        self._coverage = Coverage(self.target.traced)
        self._known = {hashlib.sha256(data).digest() for data in corpus_of(self.target)}

    def run(self, seconds: float) -> Stats:
        """Try inputs until the time is over.

        Raises:
            AssertionError: The target misbehaved; ends with the input.
        """
        end = time.monotonic() + seconds
        with limited(), scratch() as root:
            for data in [*corpus_of(self.target), *self.target.seeds]:
                self._try(data, root, is_traced=True)
            while time.monotonic() < end:
                self._try(self.next_input(), root, is_traced=self._random.random() < TRACED_SHARE)
        return Stats(self.inputs, len(self._coverage.all), len(self.pool))

    def next_input(self) -> bytes:
        """Return a changed input of the pool."""
        newest = self.pool[-8:] if self._random.random() < 0.3 else self.pool
        base = self._random.choice(newest)
        other = self._random.choice(self.pool)
        data = mutated(self._random, base, other, self.target.tokens)
        return self.target.repair(data, self._random)

    def _try(self, data: bytes, root: Path, *, is_traced: bool) -> None:
        self.inputs += 1
        emptied(root)
        with self._coverage.tracing() if is_traced else nullcontext():
            guarded(self.target, data, root)
        if is_traced and (self._coverage.is_new() or not self.pool):
            self.pool.append(data)
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        digest = hashlib.sha256(data)
        if os.environ.get("FUZZ_KEEP") != "1" or digest.digest() in self._known:
            return
        folder = CORPUS / self.target.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / digest.hexdigest()[:16]).write_bytes(data)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder in memory where there is one: every input makes files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder, "input")


def emptied(root: Path) -> None:
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()
