"""Where the attempts in flight of a run are and what they wait for, for testers who watch.

The journal says which launch of an attempt was begun; what its Pod waits for is in a file that the
run's loop keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from securebench.controller.exec.journal_entries import (
    entry_attempt,
    entry_numbers,
    journal_entries,
)
from securebench.controller.exec.told_waits import begun_pod, told_waits, wait_fields
from securebench.json_values import object_at, text_at
from securebench.protocol.exec_calls import MAX_ANSWER_BYTES
from securebench.protocol.journal_lines import EntryName
from securebench.run.plan.keys import AttemptKey, Role

Answer = dict[str, object]
Fields = dict[str, object]

_RUNNING: Final = {Role.HARNESS.value: "harness", Role.VERIFIER.value: "verifier"}

_POD: Final = "pod"
"""Name of the Pod of a launch that was begun; the answer leaves it out."""


def get_active(folder: Path, now: float, sink: IO[bytes]) -> Answer:
    """Send one JSON line for each attempt that was begun and has no record, in pack order.

    Args:
        folder: The run's folder.
        now: Seconds since the epoch.
        sink: Where the lines go.

    Returns:
        ``attempts`` sent, ``left_out`` because the answer would be too large, and ``now``.
    """
    sent, left_out, size = 0, 0, 0
    active = _active(folder)
    waits = told_waits(folder)
    for _, fields in sorted(active.items()):
        wait = wait_fields(waits.get(str(fields.pop(_POD, ""))))
        line = json.dumps({**fields, **wait}, sort_keys=True).encode() + b"\n"
        if size + len(line) > MAX_ANSWER_BYTES:
            left_out += 1
            continue
        sink.write(line)
        sent, size = sent + 1, size + len(line)
    return {"attempts": sent, "left_out": left_out, "sent": size, "now": now}


def _active(folder: Path) -> dict[AttemptKey, Fields]:
    active: dict[AttemptKey, Fields] = {}
    for kind, entry in journal_entries(folder):
        key = entry_attempt(entry)
        if key is None:
            continue
        step = _step(kind, entry, folder.name)
        if kind == EntryName.FINISHED:
            active.pop(key, None)
        elif step:
            before = active.get(key, {})
            active[key] = {**before, "reason": "", _POD: "", **step, **key._asdict()}
    return active


def _step(kind: str, entry: Mapping[str, object], uid: str) -> Fields:
    """Return what an entry says of the step; what it does not say stays as it was."""
    match kind:
        case EntryName.LAUNCH_BEGUN:
            *_, role, launch = entry_numbers(entry, "launch")
            found = {"step": _RUNNING.get(str(role)), "launch": launch, "since": entry.get("at")}
            return {**found, _POD: begun_pod(entry, uid)}
        case EntryName.READ_BEGUN:
            return {"step": "reading", "since": entry.get("at")}
        case EntryName.PRODUCED:
            return {"step": "produced", "since": entry.get("at")}
        case EntryName.VERIFIED:
            return {"step": "verified", "since": entry.get("at")}
        case EntryName.LAUNCH_LOST:
            lost = object_at(entry, "lost")
            return {"step": "lost", "since": lost.get("at"), "reason": text_at(lost, "reason")}
    return {}
