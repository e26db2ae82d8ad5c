"""Every launch of a run, without anything that an agent printed or a verifier said.

The journal knows them all, but may quote hidden values. This list is made of it when the run ends,
so that it can be handed on with the records: a line of JSON for each attempt, in pack order.

Source: contract 15.9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from securebench.json_values import number_at, object_in, objects_at, text_at
from securebench.run.state.attempts import AttemptHistory, FinishedState
from securebench.run.state.history import LaunchEnd, LaunchHistory, RunHistory

Raw = Mapping[str, object]


@dataclass(slots=True)
class LaunchFacts:
    """A launch.

    Attributes:
        role: ``harness`` or ``verifier``.
        launch: Its number, from 1 per attempt and role.
        begun_at: Seconds since the epoch.
        end: How it ended, as of ``LaunchEnd``; ``running`` where the run ended before.
        reason: Why it was lost; empty for another end.
        image: Image id of the container that ran untrusted code; empty where it is not known.
    """

    role: str
    launch: int
    begun_at: float | None
    end: str = LaunchEnd.RUNNING.value
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


def attempt_list(history: RunHistory) -> list[AttemptFacts]:
    """Return the attempts of a whole history that have begun or have a record, in pack order."""
    return [
        _attempt_facts(attempt, history.launches.get(key, ()))
        for key, attempt in history.attempts.items()
        if key in history.launches or attempt.finish is not None
    ]


def _attempt_facts(attempt: AttemptHistory, launches: Iterable[LaunchHistory]) -> AttemptFacts:
    found = AttemptFacts(*attempt.key, launches=[_launch_facts(each) for each in launches])
    if isinstance(attempt.state, FinishedState):
        finish = attempt.state.finish
        found.record_sha256, found.kept_of = attempt.state.record_sha256, attempt.state.kept_of
        found.outcome, found.reason = finish.outcome.value, finish.reason
        found.passed = finish.passed
    return found


def _launch_facts(launch: LaunchHistory) -> LaunchFacts:
    return LaunchFacts(
        launch.key.role.value,
        launch.key.launch,
        launch.begun_at,
        launch.end.value,
        launch.lost.reason if launch.lost is not None else "",
        launch.result.facts.image_id if launch.result is not None else "",
    )


def encode_attempts(attempts: Iterable[AttemptFacts]) -> Iterator[bytes]:
    """Yield the lines of the list, with newlines."""
    return map(_encode, attempts)


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
