"""The calls of the exec protocol with which a tester watches a run.

They read the journal, which the operator may be writing: the launches of attempts, where attempts
in flight are, and what launches wait for, which the run's loop keeps in a file. Only a part of the
journal leaves the volume: nothing that a verifier said or an agent printed. What went wrong is
quoted from the record, which is redacted. Output of running launches is read where couriers write
it: it is untrusted, bounded, and never more than something to look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final, NamedTuple

from securebench.benchmark.patch.judgement import SHOWN_PATHS
from securebench.benchmark.reading.rows import split_lines
from securebench.clock import SystemClock
from securebench.controller.packs import frozen
from securebench.controller.volume.journal import journal_entries
from securebench.controller.volume.store import RunStore, read_launch_waits
from securebench.errors import DigestMismatchError, InvalidInputError
from securebench.json_values import object_at, object_in, text_at
from securebench.protocol import exec_calls
from securebench.protocol.exec_calls import (
    MAX_ANSWER_BYTES,
    UNKNOWN_OPERATION,
    LaunchNumbers,
    LiveMark,
    Operation,
    OutputMark,
)
from securebench.protocol.volume import (
    LIVE_BYTES,
    LIVE_FILES,
    LIVE_OUTPUT,
    SharedWait,
)
from securebench.run.artifacts import LaunchPart, Part
from securebench.run.observe.launches import has_met_limit
from securebench.run.plan.model import AttemptKey, Role, pod_name
from securebench.run.records.reading import failure
from securebench.run.state.attempts import HarnessResult
from securebench.run.state.history import LaunchEnd, LaunchHistory, RunHistory, whole_history
from securebench.text import did_you_mean


def watch_answer(
    operation: str, root: Path, uid: str, words: Sequence[str], sink: IO[bytes]
) -> Mapping[str, object]:
    """Answer one call about a run.

    Args:
        operation: One of ``WATCH_OPERATIONS``.
        words: The other arguments, as the asker wrote them.
        sink: Where the bytes go.

    Raises:
        InvalidInputError: The arguments do not fit the operation.
    """
    store = RunStore(root, uid)
    match [operation, *words]:
        case [Operation.GET_LAUNCHES, "", exec_calls.NEAR_LIMITS]:
            return get_launches(store, "", SystemClock().now(), sink, with_noisy=True)
        case [Operation.GET_LAUNCHES, *task] if len(task) <= 1:
            return get_launches(store, "".join(task), SystemClock().now(), sink)
        case [Operation.GET_LIVE, *marks]:
            return get_live(store, marks, sink)
        case [Operation.GET_ACTIVE]:
            return get_active(store, SystemClock().now(), sink)
        case [Operation.GET_OUTPUT, task, *marks]:
            return get_output(store, task, marks, sink)
        case [Operation.LIST_TASKS]:
            return list_tasks(root, uid, sink)
    raise InvalidInputError(UNKNOWN_OPERATION)


def told_waits(folder: Path) -> Mapping[str, SharedWait]:
    """Return what the Pods of a run wait for, by their names."""
    return {pod: wait for wait in read_launch_waits(folder) for pod in wait.pods}


def _wait_fields(wait: SharedWait | None) -> dict[str, object]:
    """Return what an answer says of a launch that waits; nothing of one that does not."""
    return {} if wait is None else {"wait": wait.message, "has_begun": wait.has_begun}


Answer = dict[str, object]
Fields = dict[str, object]

_RECORD_FIELDS = {
    "task_id": "task_id",
    "outcome": "outcome",
    "failure_reason": "reason",
    "failure_phase": "phase",
    "failure_message": "message",
    "passed": "passed",
}
_COMMAND_FIELDS = ("exit_code", "timed_out", "duration_seconds", "phase", "memory_kills")


def get_launches(
    store: RunStore, wanted: str, now: float, sink: IO[bytes], *, with_noisy: bool = False
) -> Answer:
    """Send one JSON line for each attempt with its launches, in the order of the pack.

    Args:
        wanted: Id of a task, or ``#`` and its index from 0; empty for all attempts that have no
            passing verdict.
        now: Seconds since the epoch.
        sink: Where the lines go.
        with_noisy: Whether attempts that passed are among all if a launch of theirs met a limit;
            they come last.

    Returns:
        ``attempts`` sent, ``left_out`` because the answer would be too large, and ``now``.

    Raises:
        InvalidInputError: There is no such task.
    """
    sent, left_out, size = 0, 0, 0
    history = whole_history(journal_entries(store.folder))
    found = {key: [*map(launch_fields, history.launches[key])] for key in sorted(history.launches)}
    attempts = {
        key: attempt
        for key in found
        if _is_wanted(attempt := _attempt(store, key), wanted)
        or (with_noisy and any(map(has_met_limit, found[key])))
    }
    if with_noisy:
        # The others must fit.
        attempts = dict(sorted(attempts.items(), key=lambda item: item[1]["passed"] is True))
    _tell_waits(store, history, found)
    evidence = _BatchEvidence(found)
    for key, attempt in attempts.items():
        launches = evidence.lent(found[key])
        line = json.dumps({**attempt, "launches": launches}, sort_keys=True).encode() + b"\n"
        if size + len(line) > MAX_ANSWER_BYTES:
            left_out += 1
            continue
        sink.write(line)
        evidence.note_sent(launches)
        sent, size = sent + 1, size + len(line)
    if wanted and not sent:
        raise InvalidInputError(f"the run has launched no task {wanted!r}")
    return {"attempts": sent, "left_out": left_out, "sent": size, "now": now}


def _is_wanted(attempt: Fields, wanted: str) -> bool:
    if not wanted:
        return attempt["passed"] is not True
    return wanted in {attempt["task_id"], f"#{attempt['task']}"}


class _BatchEvidence:
    """Gives the evidence of a Pod that launches share to the first of them that is sent.

    Args:
        found: The launches of all attempts; the first of a batch has the evidence.
    """

    def __init__(self, found: Mapping[AttemptKey, list[Fields]]) -> None:
        self._of_first: dict[object, object] = {
            (*key, each["role"], each["launch"]): each.get("evidence")
            for key, launches in found.items()
            for each in launches
        }
        self._sent: set[object] = set()

    def lent(self, launches: Sequence[Fields]) -> list[Fields]:
        """Return an attempt's launches as they are sent next."""
        return [self._lent(each) for each in launches]

    def note_sent(self, launches: Iterable[Fields]) -> None:
        """Take note that an attempt's launches were sent."""
        self._sent |= {each["batch"] for each in launches}

    def _lent(self, launch: Fields) -> Fields:
        first = launch["batch"]
        if first is None:
            return launch
        return {**launch, "evidence": None if first in self._sent else self._of_first.get(first)}


def _tell_waits(
    store: RunStore, history: RunHistory, found: Mapping[AttemptKey, list[Fields]]
) -> None:
    """Say of launches that run according to the journal what they wait for.

    Args:
        found: The launches of all attempts; changed.
    """
    waits = told_waits(store.folder)
    for key, launches in found.items():
        for known, fields in zip(history.launches[key], launches, strict=True):
            if known.end is LaunchEnd.RUNNING:
                fields.update(_wait_fields(waits.get(pod_name(store.uid, known.pod))))


def _attempt(store: RunStore, key: AttemptKey) -> Fields:
    """Return what an attempt's record says of its end; empty values before there is one."""
    try:
        record = object_in(json.loads(b"".join(store.record_pieces(key))))
    except (OSError, ValueError):
        record = {}
    told = {name: record.get(field) for field, name in _RECORD_FIELDS.items()}
    why = failure(record) if record else None
    words = {} if why is None else {"why": why.reason, "said": why.said}
    return {**told, **words, **_dropped(record), "task": key.task, "attempt": key.attempt}


def _dropped(record: Mapping[str, object]) -> Fields:
    """Return what of a patch was not applied, each path with the reason."""
    metadata = object_at(record, "verifier_metadata")
    paths, reasons = (
        objects if isinstance(objects := metadata.get(f"patch_dropped_{name}"), list) else []
        for name in ("paths", "reasons")
    )
    total = metadata.get("patch_dropped_paths_total", len(paths))
    shown = [f"{path}: {why}" for path, why in zip(paths, reasons, strict=False)][:SHOWN_PATHS]
    return {"dropped": shown, "dropped_total": total} if shown else {}


def launch_fields(launch: LaunchHistory) -> Fields:
    """Return what an answer says of a launch, besides what it waits for."""
    result, lost = launch.result, launch.lost
    fields: Fields = {
        "role": launch.key.role.value,
        "launch": launch.key.launch,
        "begun_at": launch.begun_at,
        "batch": launch.batch,
        "end": launch.end.value,
    }
    if result is not None:
        fields |= {
            "ended_at": launch.ended_at or None,
            "reason": result.problem,
            "command": {name: getattr(result.command, name) for name in _COMMAND_FIELDS},
            "facts": asdict(result.facts),
            "evidence": None,
        }
    if lost is not None:
        fields |= {"ended_at": lost.at, "reason": lost.reason, "message": lost.message}
    if launch.evidence is not None:
        containers = [asdict(each) for each in launch.evidence.containers]
        fields["evidence"] = {**asdict(launch.evidence), "containers": containers}
    if launch.finished_at is not None:
        fields["finished_at"] = launch.finished_at
    return fields


def get_active(store: RunStore, now: float, sink: IO[bytes]) -> Answer:
    """Send one JSON line for each attempt that was begun and has no record, in pack order.

    Args:
        now: Seconds since the epoch.
        sink: Where the lines go.

    Returns:
        ``attempts`` sent, ``left_out`` because the answer would be too large, and ``now``.
    """
    sent, left_out, size = 0, 0, 0
    history = whole_history(journal_entries(store.folder))
    waits = told_waits(store.folder)
    for attempt in history.attempts.values():
        if attempt.finish is not None or attempt.key not in history.launches:
            continue
        launch = history.launches[attempt.key][-1]
        fields = {**_step(launch), "launch": launch.key.launch, **attempt.key._asdict()}
        if fields["step"] in _STEPS_OF_POD:
            fields |= _wait_fields(waits.get(pod_name(store.uid, launch.pod)))
        line = json.dumps(fields, sort_keys=True).encode() + b"\n"
        if size + len(line) > MAX_ANSWER_BYTES:
            left_out += 1
            continue
        sink.write(line)
        sent, size = sent + 1, size + len(line)
    return {"attempts": sent, "left_out": left_out, "sent": size, "now": now}


_STEPS_OF_POD: Final = frozenset({Role.HARNESS.value, Role.VERIFIER.value})


def _step(launch: LaunchHistory) -> Fields:
    """Return where an attempt in flight is, by its last launch."""
    since: float | None
    reason = ""
    if launch.end is LaunchEnd.RUNNING:
        step, since = launch.key.role.value, launch.begun_at
    elif launch.lost is not None:
        step, since, reason = "lost", launch.lost.at, launch.lost.reason
    else:
        is_harness = isinstance(launch.result, HarnessResult)
        step, since = "produced" if is_harness else "verified", launch.ended_at
    return {"step": step, "since": since, "reason": reason}


def get_live(store: RunStore, marks: Sequence[str], sink: IO[bytes]) -> Mapping[str, object]:
    """Send what was added to the live output of every unfinished attempt's last launch.

    Args:
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
    for numbers in _unfinished(store):
        offset = known.get(numbers, 0)
        data = _read_added(store, numbers, LIVE_OUTPUT, offset, left)
        if data:
            sink.write(data)
            left -= len(data)
            parts.append({**numbers._asdict(), "offset": offset, "sent": len(data)})
        if not left:
            break
    return {"parts": parts}


def _unfinished(store: RunStore) -> Iterator[LaunchNumbers]:
    for task in store.tasks():
        for attempt in store.attempts(task):
            launches = store.launches(AttemptKey(task, attempt))
            if launches and not store.has_record(AttemptKey(task, attempt)):
                yield LaunchNumbers(task, attempt, launches[-1])


def _read_added(
    store: RunStore, numbers: LaunchNumbers, name: str, offset: int, limit: int
) -> bytes:
    """Return what a file of a launch's live output has from an offset on.

    Args:
        numbers: The launch.
        name: One of ``LIVE_FILES``.
        offset: In bytes.
        limit: Most bytes to return.
    """
    try:
        with store.artifacts.opened(LaunchPart(store.uid, *numbers, Part.PRODUCER), name) as file:
            file.seek(offset)
            return file.read(limit)
    except (FileNotFoundError, DigestMismatchError):
        return b""


class _Stream(NamedTuple):
    attempt: int
    launch: int
    name: str


def get_output(
    store: RunStore, task: str, marks: Sequence[str], sink: IO[bytes]
) -> Mapping[str, object]:
    """Send what was added to the streams of a task's unfinished attempt.

    Args:
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
    if not store.exists():
        return {**LaunchNumbers(0, 0, 0)._asdict(), "finished": False, "parts": []}
    numbers, is_finished = _current(store, _task_index(store, task))
    answer = {**numbers._asdict(), "finished": is_finished}
    if is_finished or not numbers.launch:
        return {**answer, "parts": []}
    return {**answer, "parts": list(_parts(store, numbers, known, sink))}


def _parts(
    store: RunStore, numbers: LaunchNumbers, known: Mapping[_Stream, int], sink: IO[bytes]
) -> Iterator[dict[str, object]]:
    for stream, file in LIVE_FILES.items():
        offset = known.get(_Stream(numbers.attempt, numbers.launch, stream), 0)
        data = _read_added(store, numbers, file, offset, LIVE_BYTES)
        if data:
            sink.write(data)
            yield {"stream": stream, "offset": offset, "sent": len(data)}


def _current(store: RunStore, task: int) -> tuple[LaunchNumbers, bool]:
    """Return the last launch of the first unfinished attempt, else of the last attempt."""
    number = 0
    for number in store.attempts(task):
        if not store.has_record(AttemptKey(task, number)):
            launches = store.launches(AttemptKey(task, number))
            return LaunchNumbers(task, number, launches[-1] if launches else 0), False
    return LaunchNumbers(task, number, 0), number > 0


def list_tasks(root: Path, uid: str, sink: IO[bytes]) -> Answer:
    """Send the ids of all rows of a run's pack as a JSON list, in pack order.

    Raises:
        InvalidInputError: The run has not begun.
    """
    ids = task_ids(root, uid)
    data = json.dumps(ids).encode()
    sink.write(data)
    return {"tasks": len(ids), "sent": len(data)}


def _task_index(store: RunStore, task: str) -> int:
    """Return the index of a task, which ``#INDEX`` names too; that form goes first.

    Raises:
        InvalidInputError: The run has not begun, or its pack has no such task.
    """
    number = task.removeprefix("#")
    index = int(number) if number != task and number.isdecimal() else None
    if index is not None and store.has_task(index):
        # Who follows a task asks often, and task files are large.
        return index
    ids = task_ids(store.root, store.uid)
    if index is not None and index < len(ids):
        return index
    if task in ids:
        return ids.index(task)
    raise InvalidInputError(f"the run's pack has no task {task!r}{did_you_mean([task], ids)}")


def task_ids(root: Path, uid: str) -> list[str]:
    """Return the ids of all rows of a run's pack, in pack order.

    Raises:
        InvalidInputError: The run has not begun.
    """
    store = RunStore(root, uid)
    if not store.exists():
        raise InvalidInputError("the run has not begun yet")
    binding = store.binding()
    pack = frozen(root, text_at(binding, "pack_digest"))
    with pack.tasks.open("rb") as lines:
        return [text_at(object_in(json.loads(line.content)), "id") for line in split_lines(lines)]
