"""What the agents of a run have printed so far, for a tester who watches.

Read from the volume, where the couriers of running launches write it. It is untrusted, bounded,
and never more than something to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from securebench.files.untrusted import UnreadableError, open_regular, open_root
from securebench.protocol.exec_calls import LaunchNumbers, LiveMark
from securebench.protocol.volume import LIVE_BYTES, LIVE_OUTPUT, RECORD
from securebench.run import layout


def get_live(run: Path, marks: Sequence[str], sink: IO[bytes]) -> Mapping[str, object]:
    """Send what was added to the live output of every unfinished attempt's last launch.

    Args:
        run: Folder of the run.
        marks: ``TASK.ATTEMPT.LAUNCH:OFFSET`` of what the asker has already.
        sink: Gets the bytes of all parts, one after the other.

    Returns:
        ``parts``, a list of ``task``, ``attempt``, ``launch``, ``offset`` and ``sent``.

    Raises:
        InvalidInputError: A mark of another form.
    """
    known = dict(map(LiveMark.decode, marks))
    parts: list[dict[str, int]] = []
    left = LIVE_BYTES
    for numbers in _unfinished(run / layout.TASKS):
        offset = known.get(numbers, 0)
        data = read_added(run, numbers, LIVE_OUTPUT, offset, left)
        if data:
            sink.write(data)
            left -= len(data)
            parts.append({**numbers._asdict(), "offset": offset, "sent": len(data)})
        if not left:
            break
    return {"parts": parts}


def _unfinished(tasks: Path) -> Iterator[LaunchNumbers]:
    for task in numbered(tasks):
        attempts = tasks / str(task) / "attempts"
        for attempt in numbered(attempts):
            folder = attempts / str(attempt)
            launches = numbered(folder / layout.LAUNCHES)
            if launches and not (folder / RECORD).exists():
                yield LaunchNumbers(task, attempt, launches[-1])


def numbered(folder: Path) -> list[int]:
    """Return the numbers that are names in a folder, the smallest first."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []


def read_added(run: Path, numbers: LaunchNumbers, name: str, offset: int, limit: int) -> bytes:
    """Return what a file of a launch's live output has from an offset on.

    Args:
        run: Folder of the run.
        numbers: The launch.
        name: One of ``LIVE_FILES``.
        offset: In bytes.
        limit: Most bytes to return.
    """
    task, attempt, launch = numbers
    path = (
        f"{layout.TASKS}/{task}/attempts/{attempt}/{layout.LAUNCHES}/{launch}"
        f"/{layout.PRODUCER_NAME}/{name}"
    )
    try:
        with open_root(run) as folder, open_regular(folder, path) as file:
            file.seek(offset)
            return file.read(limit)
    except UnreadableError:
        return b""
