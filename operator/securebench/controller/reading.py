"""What agents left is read in a child process with limits of memory and time.

The process reads one thing at a time, so it is known what ended it. What lets it crash or reach one
of its limits twice in a row is the candidate's; the operator goes on (decision 0126). An end from
outside, as by the kernel when the node is short of memory, is nobody's: it counts as an outage. The
process is started at the first need, and again after its end.

Memory is limited by RLIMIT_DATA: Python then raises MemoryError, long before the kernel would have
to end processes of the container, which on cgroup v2 are ended together. Time is limited in seconds
of CPU (RLIMIT_CPU): a volume that does not answer lets a reading hang, and no candidate is blamed
for that. The process has the operator's user and files: it guards against what a text does to
memory and time, not against code of an agent, which no reader runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from securebench.controller.settings import Settings
from securebench.controller.volume_calls import on_volume_within
from securebench.errors import InvariantViolationError
from securebench.protocol.candidate import STREAMS
from securebench.sizes import MIB

logger = logging.getLogger(__name__)

MEMORY_BYTES: Final = 96 * MIB
"""Memory for one reading, beside about 53 MiB of the process itself: with about 80 MiB of an idle
operator well below half of its default limit of 512 MiB."""

MEMORY_FACTOR: Final = 4
"""Memory for a reading, in sizes of what is read (``tests/property/test_reading_memory.py``)."""

CPU_SECONDS: Final = 60
"""CPU time of one reading. The worst patch of 10 MiB takes 3 s on a busy node."""

READING_SECONDS: Final = 10.0
"""Seconds after which the volume counts as silent that holds up a reading: the start of the process
and the worst patch take less."""

TURN_SECONDS: Final = 0.5
"""Seconds for which a run reads before others that wait have their turn."""

ANSWER_BYTES: Final = 64 * MIB
"""Bytes of one answer; the largest one has the metadata of a verdict."""

LOADED: Final = ("securebench.controller.capture", "securebench.controller.run_ledger")
"""Modules that the process imports before it says that it is ready."""

_OVER_A_LIMIT: Final = 3
"""Exit code of the process where memory or the size of an answer is over its limit."""

_OWN_ENDS: Final = frozenset(
    {
        _OVER_A_LIMIT,
        *(
            -each
            for each in (
                signal.SIGXCPU,
                signal.SIGSEGV,
                signal.SIGBUS,
                signal.SIGABRT,
                signal.SIGILL,
                signal.SIGFPE,
            )
        ),
    }
)
"""Exit codes that come of what was read; SIGKILL comes from outside."""

_END_SECONDS: Final = 5.0
"""For an end that has begun: the pipes close before the exit code is there."""

_NO_CORE: Final = (0, 0)
_FIRST_VICTIM: Final = "1000"
"""Where the kernel has to end a process of the container, it is this one (proc(5))."""

T = TypeVar("T")
J = TypeVar("J")


class ReadingEndedError(Exception):
    """What was read has let the process that read it crash, or reach one of its limits."""


class Run(Protocol):
    """Does work that can be pickled, and returns what it returns. Blocks."""

    def __call__(self, work: Callable[[], T]) -> T:
        """Do it; ``ReadingEndedError`` if that ends the process."""
        ...


class Reading:
    """Lets the runs of the operator read by turns.

    Args:
        run: Does the work; a ``ReadingProcess``.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._turn = asyncio.Lock()

    async def turns(
        self, jobs: Sequence[J], work: Callable[[J], Callable[[], T]]
    ) -> AsyncIterator[list[tuple[J, T | None]]]:
        """Yield what came of jobs, in their order, after each turn of this run.

        Args:
            jobs: What to read.
            work: Returns what reads one of them.

        Yields:
            Jobs with their results; None for a job that has ended the process twice.
        """
        waiting, clock = deque(jobs), asyncio.get_running_loop().time
        while waiting:
            found: list[tuple[J, T | None]] = []
            async with self._turn:
                over_at = clock() + TURN_SECONDS
                while waiting and (not found or clock() < over_at):
                    job = waiting.popleft()
                    result = await on_volume_within(READING_SECONDS, self._result, work(job))
                    found.append((job, result))
            yield found

    def read(self, work: Callable[[], T]) -> T:
        """Read one thing. Blocks.

        Raises:
            ReadingEndedError: It has ended the process twice.
        """
        try:
            return self._run(work)
        except ReadingEndedError as error:
            logger.warning("%s; it is repeated", error)
        return self._run(work)

    def _result(self, work: Callable[[], T]) -> T | None:
        try:
            return self.read(work)
        except ReadingEndedError:
            return None


def reading_memory(settings: Settings) -> int:
    """Return the bytes that one reading may take: of a record with a patch and four streams."""
    bounds = settings.bounds
    largest = bounds.patch_bytes + 2 * len(STREAMS) * bounds.stream_bytes
    return max(MEMORY_BYTES, MEMORY_FACTOR * largest)


class ReadingProcess:
    """A child process that does one work at a time.

    Args:
        memory_bytes: What one work may take, beside what the process has before.
        cpu_seconds: CPU time of one work.
        answer_bytes: Most bytes of one answer.
    """

    def __init__(
        self,
        memory_bytes: int = MEMORY_BYTES,
        cpu_seconds: int = CPU_SECONDS,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self._limits = (memory_bytes, cpu_seconds, answer_bytes)
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __call__(self, work: Callable[[], T]) -> T:
        """Do work in the process and return what it returns; both can be pickled.

        Raises:
            ReadingEndedError: The process has crashed or reached one of its limits.
            OSError: The process cannot be started, or was ended from outside.
        """
        request = pickle.dumps(work)
        with self._lock:
            if self._child is None:
                self._child = _Child(*self._limits)
            try:
                is_done, found = self._child.ask(request)
            except (EOFError, OSError):
                code, self._child = self._child.end(), None
                if code in _OWN_ENDS:
                    said = f"a reading ended its process with code {code}"
                    raise ReadingEndedError(said) from None
                said = f"the process that reads was ended from outside with code {code}"
                raise OSError(said) from None
        if not is_done:
            raise found
        result: T = found
        return result

    def close(self) -> None:
        """End the process; it is started again when there is work."""
        with self._lock:
            if self._child is not None:
                self._child.end()
                self._child = None


class _Child:
    """The process with the pipes to it."""

    def __init__(self, memory_bytes: int, cpu_seconds: int, answer_bytes: int) -> None:
        requests, self._requests = Pipe(duplex=False)
        self._answers, answers = Pipe(duplex=False)
        given = (requests.fileno(), answers.fileno())
        words = ", ".join(map(str, (*given, memory_bytes, cpu_seconds, answer_bytes)))
        program = f"from {__name__} import serve; serve({words})"
        with requests, answers:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-c", program],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                start_new_session=True,
            )
        try:
            self._answers.recv_bytes()
        except EOFError:
            raise OSError(f"the process that reads did not start: {self.end()}") from None

    def ask(self, request: bytes) -> tuple[bool, Any]:
        """Hand work over; return whether it was done, and its result or error."""
        self._requests.send_bytes(request)
        answer: tuple[bool, Any] = pickle.loads(self._answers.recv_bytes())  # noqa: S301 - of our own process
        return answer

    def end(self) -> int:
        """End the process, if it has not; return its exit code, negative for a signal."""
        self._requests.close()
        self._answers.close()
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def serve(
    requests: int, answers: int, memory_bytes: int, cpu_seconds: int, answer_bytes: int
) -> None:
    """Do what comes by one pipe, within limits, until it is closed; answer by the other one.

    Args:
        requests: Descriptor of the pipe with work.
        answers: Descriptor of the pipe for results.
        memory_bytes: What one work may take.
        cpu_seconds: CPU time of one work.
        answer_bytes: Most bytes of one answer.
    """
    asked, answered = Connection(requests, writable=False), Connection(answers, readable=False)
    for name in LOADED:
        import_module(name)
    resource.setrlimit(resource.RLIMIT_CORE, _NO_CORE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_VICTIM, encoding="ascii")
    answered.send_bytes(b"ready")
    while True:
        try:
            request = asked.recv_bytes()
        except EOFError:
            return
        _limit(memory_bytes, cpu_seconds)
        try:
            answer = _answer(request)
        except MemoryError:
            os._exit(_OVER_A_LIMIT)
        if len(answer) > answer_bytes:
            os._exit(_OVER_A_LIMIT)
        answered.send_bytes(answer)


def _limit(memory_bytes: int, cpu_seconds: int) -> None:
    """Set what the next work may take, on top of what the process has."""
    data = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if line.startswith("VmData")
    )
    used = math.ceil(time.process_time())
    for kind, limit in (
        (resource.RLIMIT_DATA, data + memory_bytes),
        (resource.RLIMIT_CPU, used + cpu_seconds),
    ):
        _, most = resource.getrlimit(kind)
        is_bounded = most != resource.RLIM_INFINITY
        resource.setrlimit(kind, (min(limit, most) if is_bounded else limit, most))


def _answer(request: bytes) -> bytes:
    try:
        return pickle.dumps((True, pickle.loads(request)()))  # noqa: S301 - of the operator
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again where the work comes from
        error.add_note(traceback.format_exc())
        return pickle.dumps((False, _portable(error)))


def _portable(error: Exception) -> Exception:
    """Return an error that the operator can make again, with the words of one that it cannot."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - of any class
        return InvariantViolationError("".join(traceback.format_exception(error)))
    return error
