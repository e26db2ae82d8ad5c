"""The launches of a run's attempts as its journal has them, for testers.

Only a part of the journal leaves the volume: nothing that a verifier said or an agent printed. What
went wrong is quoted from the record, which is redacted. What a launch waits for that runs according
to the journal is in a file that the run's loop keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from securebench.benchmark.patch.judgement import SHOWN_PATHS
from securebench.controller.exec.journal_entries import (
    entry_attempt,
    entry_numbers,
    journal_entries,
)
from securebench.controller.exec.told_waits import begun_pod, told_waits, wait_fields
from securebench.errors import InvalidInputError
from securebench.json_values import object_at, object_in, text_at
from securebench.protocol.exec_calls import MAX_ANSWER_BYTES
from securebench.protocol.journal_lines import EntryName
from securebench.protocol.volume import RECORD
from securebench.run.layout import TASKS
from securebench.run.observe.launches import has_met_limit
from securebench.run.plan.keys import AttemptKey
from securebench.run.records.failures import failure

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
_RESULTS: Mapping[str, str] = {EntryName.PRODUCED: "production", EntryName.VERIFIED: "verification"}


_POD: Final = "pod"
"""Name of the Pod of a launch that was begun; the answer leaves it out."""


def get_launches(
    folder: Path, wanted: str, now: float, sink: IO[bytes], *, with_noisy: bool = False
) -> Answer:
    """Send one JSON line for each attempt with its launches, in the order of the pack.

    Args:
        folder: The run's folder.
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
    found = _launches(folder)
    attempts = {
        key: attempt
        for key in sorted(found)
        if _is_wanted(attempt := _attempt(folder, key), wanted)
        or (with_noisy and any(map(has_met_limit, found[key])))
    }
    if with_noisy:
        # The others must fit.
        attempts = dict(sorted(attempts.items(), key=lambda item: item[1]["passed"] is True))
    _tell_waits(folder, found)
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
        self._of_first: dict[tuple[object, ...], object] = {
            (*key, each["role"], each["launch"]): each.get("evidence")
            for key, launches in found.items()
            for each in launches
        }
        self._sent: set[tuple[object, ...]] = set()

    def lent(self, launches: Sequence[Fields]) -> list[Fields]:
        """Return an attempt's launches as they are sent next."""
        return [self._lent(each) for each in launches]

    def note_sent(self, launches: Iterable[Fields]) -> None:
        """Take note that an attempt's launches were sent."""
        self._sent |= {tuple(entry_numbers(each, "batch")) for each in launches}

    def _lent(self, launch: Fields) -> Fields:
        first = tuple(entry_numbers(launch, "batch"))
        if not first:
            return launch
        return {**launch, "evidence": None if first in self._sent else self._of_first.get(first)}


def _tell_waits(folder: Path, found: Mapping[AttemptKey, list[Fields]]) -> None:
    """Say of launches that run according to the journal what they wait for.

    Args:
        folder: The run's folder.
        found: The launches of all attempts; changed.
    """
    waits = told_waits(folder)
    for launch in (each for launches in found.values() for each in launches):
        wait = waits.get(str(launch.pop(_POD)))
        if launch["end"] == "running" and "read_at" not in launch:
            launch.update(wait_fields(wait))


def _attempt(folder: Path, key: AttemptKey) -> Fields:
    """Return what an attempt's record says of its end; empty values before there is one."""
    path = folder / TASKS / str(key.task) / "attempts" / str(key.attempt) / RECORD
    try:
        record = object_in(json.loads(path.read_bytes()))
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


def _launches(folder: Path) -> dict[AttemptKey, list[Fields]]:
    found: dict[AttemptKey, list[Fields]] = {}
    for kind, entry in journal_entries(folder):
        key = entry_attempt(entry)
        if key is None:
            continue
        launches = found.setdefault(key, [])
        if kind == EntryName.LAUNCH_BEGUN:
            launches.append(_begun(entry, folder.name))
        elif launches:
            _continue(launches, kind, entry)
    return {key: launches for key, launches in found.items() if launches}


def _continue(launches: list[Fields], kind: str, entry: Mapping[str, object]) -> None:
    last = launches[-1]
    if kind in _RESULTS:
        last |= _captured(entry, object_at(entry, _RESULTS[kind]))
    elif kind == EntryName.LAUNCH_LOST:
        lost = object_at(entry, "lost")
        words = {name: lost.get(name) for name in ("reason", "message")}
        last |= {"end": "lost", "ended_at": lost.get("at"), **words}
        last |= _evidence(entry)
    elif kind == EntryName.READ_BEGUN:
        last.setdefault("read_at", entry.get("at"))
    elif kind == EntryName.FINISHED:
        last["finished_at"] = entry.get("at")
        if last["end"] == "running":
            last |= {"end": "ended", **_evidence(entry)}


def _evidence(entry: Mapping[str, object]) -> Fields:
    """Return what an entry has of the Pod of the launch that it ends."""
    return {"evidence": entry["evidence"]} if entry.get("evidence") else {}


def _begun(entry: Mapping[str, object], uid: str) -> Fields:
    *_, role, number = entry_numbers(entry, "launch")
    return {
        "role": role,
        "launch": number,
        "begun_at": entry.get("at"),
        "batch": entry.get("batch"),
        "end": "running",
        _POD: begun_pod(entry, uid),
    }


def _captured(entry: Mapping[str, object], result: Mapping[str, object]) -> Fields:
    command = object_at(result, "command")
    return {
        "end": "captured",
        "ended_at": entry.get("at") or None,
        "reason": text_at(result, "problem"),
        "command": {name: command.get(name) for name in _COMMAND_FIELDS},
        "facts": object_at(result, "facts"),
        "evidence": entry.get("evidence"),
    }
