"""The statement on a run's results: an in-toto Statement v1 with a predicate of ours.

Each part of the predicate comes from one file of the run, so that a reader of these files finds the
same. Where the predicate proposed for evaluations (in-toto/attestation, pull request 575) has a
field for something, ours has its name.

One of these files is ``attempts.jsonl``: every launch of the run, without anything that an agent
printed or a verifier said. The journal knows all launches, but may quote hidden values. The list is
made of it when the run ends, so that it can be handed on with the records.

Source: contract 15.9.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Final

from securebench.attestation.starts import StartList, resumed_runs, same_runs
from securebench.clock import rfc3339
from securebench.digests import PREFIX, json_digest
from securebench.json_values import number_at, object_at, object_in, objects_at, text_at
from securebench.run.state.attempts import AttemptHistory, FinishedState
from securebench.run.state.history import LaunchEnd, LaunchHistory, RunHistory

Raw = Mapping[str, object]
Fields = dict[str, object]

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://securebench.dev/attestation/run-result/v0.1"
EVALUATOR: Final = "https://securebench.dev/operator"

MAX_IMAGES: Final = 64
"""Images that a predicate lists; a digest covers all of them."""

RESULTS: Final = ("total", "verified", "passed", "outcomes")
"""What is taken over from the summary."""


def statement(digests: Mapping[str, str], predicate: Raw) -> Fields:
    """Return the statement.

    Args:
        digests: Hex SHA-256 of each file of the run that it is about, by name.
        predicate: The parts below, together.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": hex_}} for name, hex_ in digests.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }


def encode(value: Raw) -> bytes:
    """Return JSON in the form in which it is signed: sorted keys, no blanks, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def subjects(raw: Raw) -> dict[str, str]:
    """Return the digests of a statement by their names; nothing of what is malformed."""
    found = raw.get("subject")
    items = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
    return {text_at(item, "name"): text_at(object_at(item, "digest"), "sha256") for item in items}


def evaluator_fields(version: str) -> Fields:
    """Return who made the results and how sure that is.

    Args:
        version: Version of the operator that ended the run.
    """
    return {
        "evaluator": {"id": EVALUATOR, "version": {"securebench": version}},
        "assuranceLevel": "self_attested",
    }


def binding_fields(binding: Raw) -> Fields:
    """Return what ``run.json`` tells: what the run was bound to when it began."""
    index, spec = object_at(binding, "index"), object_at(binding, "spec")
    pack, harness = text_at(index, "pack"), text_at(index, "harness_digest")
    pack_digest = _digest_set(text_at(index, "pack_digest"))
    regraded, requester = text_at(index, "regrade_of"), text_at(index, "requester")
    return {
        "suite": {"name": pack, "version": str(binding.get("pack_version", ""))},
        "dataset": {"name": pack, "digest": pack_digest},
        "harness": {
            "name": text_at(object_at(spec, "harness"), "type"),
            "version": text_at(binding, "agent_version"),
            "digest": _digest_set(harness),
        },
        "model": {"name": text_at(object_at(object_at(spec, "harness"), "config"), "model")},
        "rows": {"digest": _digest_set(text_at(binding, "rows_digest"))},
        "policy": {"digest": _digest_set(text_at(binding, "policy_digest"))},
        "plan": {"digest": _digest_set(text_at(binding, "plan_digest"))},
        "verifierVersion": text_at(index, "verifier_version"),
        "run": {
            "name": text_at(index, "run"),
            "uid": text_at(index, "uid"),
            "runId": text_at(index, "run_id"),
            "startedAt": text_at(index, "started_at"),
            "ordinal": index.get("run_ordinal"),
            "resumeGeneration": index.get("resume_generation"),
            "operatorVersion": text_at(binding, "operator_version"),
            "isAudit": binding.get("audit") is True,
            "packAudit": text_at(binding, "pack_audit"),
            **({"regradeOf": regraded} if regraded else {}),
            **({"requestedBy": requester} if requester else {}),
        },
    }


def summary_fields(summary: Raw) -> Fields:
    """Return what ``summary.json`` tells."""
    return {
        "sampleSize": summary.get("total"),
        "results": {name: summary.get(name) for name in RESULTS},
    }


def attempt_fields(attempts: Sequence[AttemptFacts]) -> Fields:
    """Return what the list of attempts tells."""
    launches = [launch for attempt in attempts for launch in attempt.launches]
    images = sorted({launch.image for launch in launches} - {""})
    lost = Counter(launch.reason for launch in launches if launch.end == LaunchEnd.LOST)
    return {
        "attempts": {
            "begun": len(attempts),
            "finished": sum(bool(each.record_sha256) for each in attempts),
            "kept": sum(bool(each.kept_of) for each in attempts),
            "launches": len(launches),
            "lost": dict(sorted(lost.items())),
        },
        "images": {
            "names": images[:MAX_IMAGES],
            "count": len(images),
            "digest": _digest_set(json_digest({"images": images})),
        },
    }


def course_fields(history: RunHistory) -> Fields:
    """Return what only the journal tells: the isolation check's findings, and the end."""
    end = history.ended
    return {
        "isolation": [asdict(each) for each in history.findings],
        "evaluatedAt": rfc3339(end.at) if end is not None else "",
        "end": {
            "reason": end.reason if end is not None else "",
            "message": end.message if end is not None else "",
        },
    }


def start_fields(starts: StartList, count: int, binding: Raw) -> Fields:
    """Return what the list of started runs tells of the runs like this one.

    Args:
        starts: The list; it may have grown.
        count: How many of its lines there were when the run ended.
        binding: ``run.json``.
    """
    index, lines = object_at(binding, "index"), starts.first(count)
    uid, run_id = text_at(index, "uid"), text_at(index, "run_id")
    own = starts.of_uid(uid)
    return {
        "starts": {
            "count": count,
            "digest": {"sha256": lines[-1].digest if lines else ""},
            "runs": same_runs(lines, run_id, text_at(index, "pack_digest")),
        },
        "begunWithKey": text_at(own.start, "key_id") if own is not None else "",
        "resumed": [
            {"name": text_at(each, "run"), "uid": text_at(each, "uid")}
            for each in resumed_runs(lines, uid)
        ],
    }


def differing(predicate: Raw, found: Iterable[tuple[str, object]]) -> list[str]:
    """Return the names of fields whose value in a predicate is another than the one found."""
    return [name for name, value in found if predicate.get(name) != value]


def _digest_set(digest: str) -> dict[str, str]:
    return {"sha256": digest.removeprefix(PREFIX)} if digest else {}


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
