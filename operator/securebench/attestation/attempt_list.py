"""Every launch of a run, without anything that an agent printed or a verifier said.

The journal knows them all, but may quote hidden values. This list is made of it when the run ends,
so that it can be handed on with the records: a line of JSON for each attempt, in pack order.

Source: contract 15.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from securebench.json_values import number_at, object_at, object_in, objects_at, text_at
from securebench.protocol.volume import EntryName

Raw = Mapping[str, object]

RUNNING, CAPTURED, LOST, ENDED = "running", "captured", "lost", "ended"
"""How a launch ended; ``ended`` with its attempt, ``running`` where the run ended before."""

_RESULTS: Mapping[str, tuple[str, str]] = {
    EntryName.PRODUCED: ("harness", "production"),
    EntryName.VERIFIED: ("verifier", "verification"),
}


class AttemptNumbers(NamedTuple):
    """An attempt of a task: tasks count from 0 in pack order, attempts from 1."""

    task: int
    attempt: int


@dataclass(slots=True)
class LaunchFacts:
    """A launch.

    Attributes:
        role: ``harness`` or ``verifier``.
        launch: Its number, from 1 per attempt and role.
        begun_at: Seconds since the epoch.
        end: How it ended.
        reason: Why it was lost; empty for another end.
        image: Image id of the container that ran untrusted code; empty where it is not known.
    """

    role: str
    launch: int
    begun_at: float | None
    end: str = RUNNING
    reason: str = ""
    image: str = ""


@dataclass(slots=True)
class AttemptFacts:
    """An attempt with its launches.

    Attributes:
        record_sha256: Hex digest of its line in ``candidates.jsonl``; empty without one.
        outcome: As the journal names it; empty without a record.
        reason: failure_reason or empty.
        passed: The verdict, or None.
        kept_of: Uid of the run from which the record was taken over; empty for none.
    """

    task: int
    attempt: int
    launches: list[LaunchFacts] = field(default_factory=list)
    record_sha256: str = ""
    outcome: str = ""
    reason: str = ""
    passed: bool | None = None
    kept_of: str = ""


@dataclass(slots=True)
class JournalFacts:
    """Facts about a run, folded from its journal entry by entry.

    Attributes:
        attempts: Those that have begun or have a record.
        findings: Each result of the isolation check once, in their order.
        end: The last entry; None while the run is active.
    """

    attempts: dict[AttemptNumbers, AttemptFacts] = field(default_factory=dict)
    findings: list[Raw] = field(default_factory=list)
    end: Raw | None = None

    def in_order(self) -> list[AttemptFacts]:
        """Return the attempts in the order of the pack."""
        return [self.attempts[key] for key in sorted(self.attempts)]

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the list, with newlines."""
        return map(_encode, self.in_order())

    def apply_body(self, body: bytes) -> None:
        """Record the JSON of a line of the journal.

        Raises:
            ValueError: It holds no entry.
        """
        found = _loaded(body)
        self.apply(text_at(found, "type"), object_at(found, "entry"))

    def apply(self, kind: str, entry: Raw) -> None:
        """Record an entry; those about neither launches, isolation nor the end are ignored.

        Raises:
            ValueError: It is no such entry.
        """
        match kind:
            case EntryName.ISOLATED:
                self.findings += [entry] if entry not in self.findings else []
            case EntryName.RUN_ENDED:
                self.end = entry
            case EntryName.LAUNCH_BEGUN:
                attempt, role, number = self._launch(entry)
                attempt.launches.append(LaunchFacts(role, number, number_at(entry, "at")))
            case EntryName.LAUNCH_LOST:
                self._lose(object_at(entry, "lost"))
            case EntryName.PRODUCED | EntryName.VERIFIED:
                self._capture(entry, *_RESULTS[kind])
            case EntryName.FINISHED | EntryName.KEPT:
                self._finish(entry)

    def _launch(self, entry: Raw) -> tuple[AttemptFacts, str, int]:
        match entry.get("launch"):
            case [int(task), int(attempt), str(role), int(number)]:
                return self._attempt(task, attempt), role, number
        raise ValueError("names no launch")

    def _attempt(self, task: int, attempt: int) -> AttemptFacts:
        key = AttemptNumbers(task, attempt)
        return self.attempts.setdefault(key, AttemptFacts(*key))

    def _lose(self, lost: Raw) -> None:
        attempt, role, number = self._launch(lost)
        for launch in _named(attempt, role, number):
            launch.end, launch.reason = LOST, text_at(lost, "reason")

    def _capture(self, entry: Raw, role: str, name: str) -> None:
        result = object_at(entry, name)
        for launch in _named(self._keyed(entry), role, result.get("launch")):
            launch.end = CAPTURED
            launch.image = text_at(object_at(result, "facts"), "image_id")

    def _finish(self, entry: Raw) -> None:
        finish = object_at(entry, "finish")
        attempt, passed = self._keyed(finish), finish.get("passed")
        attempt.record_sha256 = text_at(entry, "record_sha256")
        attempt.outcome = text_at(finish, "outcome")
        attempt.reason = text_at(finish, "reason")
        attempt.passed = passed if isinstance(passed, bool) else None
        attempt.kept_of = text_at(entry, "run_uid")
        for launch in attempt.launches:
            launch.end = ENDED if launch.end == RUNNING else launch.end

    def _keyed(self, entry: Raw) -> AttemptFacts:
        match entry.get("key"):
            case [int(task), int(attempt)]:
                return self._attempt(task, attempt)
        raise ValueError("names no attempt")


def _named(attempt: AttemptFacts, role: str, number: object) -> Iterator[LaunchFacts]:
    return (each for each in attempt.launches if (each.role, each.launch) == (role, number))


def decode_attempt(line: bytes) -> AttemptFacts:
    """Return the attempt of a line.

    Raises:
        ValueError: It is none.
    """
    raw = _loaded(line)
    passed = raw.get("passed")
    found = AttemptFacts(
        task=_number(raw, "task"),
        attempt=_number(raw, "attempt"),
        launches=[_decode_launch(each) for each in objects_at(raw, "launches")],
        record_sha256=text_at(raw, "record_sha256"),
        outcome=text_at(raw, "outcome"),
        reason=text_at(raw, "reason"),
        passed=passed if isinstance(passed, bool) else None,
        kept_of=text_at(raw, "kept_of"),
    )
    if _encode(found) != line:
        raise ValueError("is not as the operator writes an attempt")
    return found


def _loaded(text: bytes) -> Raw:
    """Return a JSON object; fast, since form and digest of the lines are checked by themselves."""
    try:
        return object_in(json.loads(text))
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _decode_launch(raw: Raw) -> LaunchFacts:
    return LaunchFacts(
        role=text_at(raw, "role"),
        launch=_number(raw, "launch"),
        begun_at=number_at(raw, "begun_at"),
        end=text_at(raw, "end"),
        reason=text_at(raw, "reason"),
        image=text_at(raw, "image"),
    )


def _number(raw: Raw, name: str) -> int:
    value = raw.get(name)
    return value if type(value) is int else -1


def _encode(attempt: AttemptFacts) -> bytes:
    """Return the line; ``dataclasses.asdict`` would copy every value, for ten times as long."""
    launches = [{name: getattr(each, name) for name in _LAUNCH} for each in attempt.launches]
    raw = {name: getattr(attempt, name) for name in _ATTEMPT} | {"launches": launches}
    return json.dumps(raw, sort_keys=True).encode() + b"\n"


_LAUNCH = tuple(each.name for each in fields(LaunchFacts))
_ATTEMPT = tuple(each.name for each in fields(AttemptFacts))
