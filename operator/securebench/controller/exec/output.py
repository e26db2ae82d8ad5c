"""What one attempt prints while it is in flight: both streams of its harness, for testers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from securebench.controller.exec.live_output import numbered, read_added
from securebench.controller.exec.task_ids import task_index
from securebench.protocol.exec_calls import LaunchNumbers, OutputMark
from securebench.protocol.volume import LIVE_BYTES, LIVE_FILES, RECORD, RUN
from securebench.run import layout


class _Stream(NamedTuple):
    attempt: int
    launch: int
    name: str


def get_output(
    root: Path, uid: str, task: str, marks: Sequence[str], sink: IO[bytes]
) -> Mapping[str, object]:
    """Send what was added to the streams of a task's unfinished attempt.

    Args:
        root: Root of the volume.
        uid: Uid of the BenchmarkRun.
        task: Id of the task, or ``#`` and its index from 0; any text while the run has not begun.
        marks: ``ATTEMPT.LAUNCH.STREAM:OFFSET`` of what the asker has already.
        sink: Gets the bytes of all parts, one after the other.

    Returns:
        ``task``, ``attempt`` and ``launch``, which are 0 while there is none, ``finished`` where
        every attempt that was begun has its record, and ``parts``, a list of ``stream``,
        ``offset`` and ``sent``.

    Raises:
        InvalidInputError: There is no such task, or a mark of another form.
    """
    given = map(OutputMark.decode, marks)
    known = {_Stream(mark.attempt, mark.launch, mark.stream): mark.offset for mark in given}
    folder = root / layout.run_folder(uid)
    if not (folder / RUN).exists():
        return {**LaunchNumbers(0, 0, 0)._asdict(), "finished": False, "parts": []}
    numbers, is_finished = _current(folder, task_index(root, uid, task))
    answer = {**numbers._asdict(), "finished": is_finished}
    if is_finished or not numbers.launch:
        return {**answer, "parts": []}
    return {**answer, "parts": list(_parts(folder, numbers, known, sink))}


def _parts(
    folder: Path, numbers: LaunchNumbers, known: Mapping[_Stream, int], sink: IO[bytes]
) -> Iterator[dict[str, object]]:
    for stream, file in LIVE_FILES.items():
        offset = known.get(_Stream(numbers.attempt, numbers.launch, stream), 0)
        data = read_added(folder, numbers, file, offset, LIVE_BYTES)
        if data:
            sink.write(data)
            yield {"stream": stream, "offset": offset, "sent": len(data)}


def _current(folder: Path, task: int) -> tuple[LaunchNumbers, bool]:
    """Return the last launch of the first unfinished attempt, else of the last attempt."""
    attempts = folder / layout.TASKS / str(task) / "attempts"
    number = 0
    for number in numbered(attempts):
        if not (attempts / str(number) / RECORD).exists():
            launches = numbered(attempts / str(number) / layout.LAUNCHES)
            return LaunchNumbers(task, number, launches[-1] if launches else 0), False
    return LaunchNumbers(task, number, 0), number > 0
