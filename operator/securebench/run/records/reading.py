"""Records as programs read them from candidates.jsonl: values that may lack anything. Pure.

A line ends at a line feed and nowhere else. A file that was joined from two, or edited, may have
several records of one attempt: the first counts, and the reader reports the others.

In order: parsing; what an attempt used of a model provider; whether the records of two runs can be
compared, which needs the same decisive digests (the harness is what is compared, so its digest is
not one of them); two runs compared after each part of the baseline's tasks; why an attempt did not
pass, from its record.

Source: decision 0037.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from securebench.benchmark.families.registry import text_verifier
from securebench.json_values import as_number, object_at, text_at
from securebench.protocol.messages import decode_value
from securebench.stats.cost import Tokens, Use
from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL
from securebench.stats.sequential import Course, DoneTask, Look, course
from securebench.text import snippet

Record = Mapping[str, object]


class RecordKey(NamedTuple):
    """Identifies the attempt of a record."""

    task_id: str
    attempt: int


def record_key(record: Record) -> RecordKey:
    """Return the attempt of a record."""
    attempt = record.get("attempt")
    return RecordKey(str(record.get("task_id")), attempt if isinstance(attempt, int) else 1)


def parse_record(line: bytes) -> Record | None:
    """Return the record of a line, or None for a damaged one."""
    try:
        record = decode_value(line.removeprefix(BOM_UTF8))
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


_NAMED = 3
"""Attempts that a message names."""


@dataclass(slots=True)
class RecordFlaws:
    """What is wrong with the lines of a file.

    Attributes:
        damaged: Lines that are no records.
        repeated: Attempts whose record stands there more than once, in the order of the lines.
        contradicting: Attempts with records that differ.
    """

    damaged: int = 0
    repeated: list[RecordKey] = field(default_factory=list)
    contradicting: list[RecordKey] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.damaged or self.repeated or self.contradicting)

    def sentences(self, file: str) -> Iterator[str]:
        """Yield what a user should know of them.

        Args:
            file: Its name.
        """
        if self.damaged:
            yield f"{self.damaged} damaged lines of {file} left out"
        if self.repeated:
            yield f"{file} repeats {_listed(self.repeated)}: each counts once"
        if self.contradicting:
            listed = _listed(self.contradicting)
            yield f"{file} has records that contradict one another of {listed}: the first counts"


def _listed(keys: Iterable[RecordKey]) -> str:
    names = [f"task {key.task_id!r}, attempt {key.attempt}" for key in dict.fromkeys(keys)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more


def distinct_records(lines: Iterable[bytes], flaws: RecordFlaws) -> Iterator[Record]:
    """Yield the first record of each attempt.

    Args:
        lines: Lines of ``candidates.jsonl``.
        flaws: Gets what is wrong with them; complete when the last record was yielded.
    """
    return first_of_each(map(parse_record, lines), flaws)


def first_of_each(records: Iterable[Record | None], flaws: RecordFlaws) -> Iterator[Record]:
    """Do the same of records that were parsed; None is a damaged line."""
    seen: dict[RecordKey, int] = {}
    for record in records:
        if record is None:
            flaws.damaged += 1
            continue
        key, content = record_key(record), hash(json.dumps(record, sort_keys=True))
        if key not in seen:
            seen[key] = content
            yield record
        elif seen[key] == content:
            flaws.repeated.append(key)
        else:
            flaws.contradicting.append(key)


MAX_MODELS: Final = 8
"""A record lists no more; with as many there may have been others (records.md)."""

_USAGE = ("requests", "input_tokens", "cached_tokens", "output_tokens")


def record_use(record: Record) -> Use | None:
    """Return models and tokens of an attempt, all its launches together; None without a provider.

    The models are those that the launch asked which produced the candidate, else the one that was
    configured.
    """
    metadata = object_at(record, "producer_metadata")
    usage = metadata.get("usage")
    if not isinstance(usage, Mapping):
        return None
    tokens = Tokens(*(whole_number(usage.get(name)) for name in _USAGE))
    asked = metadata.get("provider_models")
    models = tuple(map(str, asked)) if isinstance(asked, list) else ()
    if len(models) >= MAX_MODELS:
        return Use((*models, "others"), tokens)
    configured = metadata.get(f"{metadata.get('harness')}_model")
    return Use(models or ((configured,) if isinstance(configured, str) else ()), tokens)


def whole_number(value: object) -> int:
    """Return a count or price as records and summaries have it; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class DecisiveDigests(NamedTuple):
    """Digests of a record that a fair comparison shares; empty where the record lacks one.

    Args:
        pack: Contract 15.6.
        verifier: Version of the verifier.
        policy: Limits, isolation and verification rules.
    """

    pack: str
    verifier: str
    policy: str


_DIFFERENT = DecisiveDigests(
    pack="their packs have different digests",
    verifier="they were graded by different versions of the verifier",
    policy="their limits, isolation or verification rules differ",
)
_UNKNOWN = DecisiveDigests(
    pack="records without pack_digest do not say which pack they are of",
    verifier="records without verifier_version do not say what graded them",
    policy="records without digests.policy do not say their limits and rules",
)


def decisive_digests(record: Record) -> DecisiveDigests:
    """Return the digests of a record that a fair comparison shares."""
    return DecisiveDigests(
        pack=text_at(record, "pack_digest"),
        verifier=text_at(record, "verifier_version"),
        policy=text_at(object_at(record, "digests"), "policy"),
    )


def incomparable(
    baseline: AbstractSet[DecisiveDigests], candidate: AbstractSet[DecisiveDigests]
) -> Iterator[str]:
    """Yield why two runs cannot be compared fairly; nothing for runs that can.

    A digest that a record lacks may be any: it equals none, not even another one that is lacking.

    Args:
        baseline: Those of all records of a run.
        candidate: Those of another one.
    """
    for old, new, unknown, different in zip(
        _by_field(baseline), _by_field(candidate), _UNKNOWN, _DIFFERENT, strict=True
    ):
        if "" in old | new:
            yield unknown
        elif old != new:
            yield different


def _by_field(digests: AbstractSet[DecisiveDigests]) -> list[set[str]]:
    return [set(values) for values in zip(*digests, strict=True)]


AttemptVerdicts = Mapping[str, Mapping[int, bool | None]]
"""By task in the order of the records, then by attempt; None for an attempt that was lost. What was
cancelled is left out."""


def compare_in_looks(
    baseline: AttemptVerdicts,
    candidate: AttemptVerdicts,
    changed: Collection[str],
    looks: int,
    level: float = LEVEL,
) -> Course:
    """Compare two runs after each part of the baseline's tasks.

    A task is done when the candidate has a record of each attempt that counts and none of them was
    cancelled. Looks end at the first task that is not done, also once the candidate has ended:
    whoever cancels a run cannot choose what is tested.

    Args:
        baseline: Of a run that has ended; alone gives the tasks, their order and the attempts that
            count (those with a verdict), so that nothing which the candidate does moves a look.
        candidate: Of a run that perhaps goes on.
        changed: Tasks whose row differs; they are done and count for nothing.
        looks: How many looks are planned.
        level: What all looks together may spend.
    """
    old = {task: _counted(attempts) for task, attempts in baseline.items()}
    counted = {task: attempts for task, attempts in old.items() if attempts}
    done = takewhile(lambda task: counted[task].keys() <= candidate.get(task, {}).keys(), counted)
    tasks = [
        None if task in changed else _done_task(counted[task], candidate[task]) for task in done
    ]
    return course(tasks, len(counted), looks, level)


def _counted(attempts: Mapping[int, bool | None]) -> dict[int, bool]:
    return {number: passed for number, passed in attempts.items() if passed is not None}


def _done_task(old: Mapping[int, bool], new: Mapping[int, bool | None]) -> DoneTask:
    verdicts = [passed for number in old if (passed := new[number]) is not None]
    return DoneTask(
        TaskVerdicts(len(old), sum(old.values())), TaskVerdicts(len(verdicts), sum(verdicts))
    )


def look_evidence(look: Look, tasks: int) -> str:
    """Return what a look rests on, in brackets.

    Args:
        look: The look.
        tasks: Tasks of the whole comparison.
    """
    sign = "<=" if look.is_decisive else ">"
    attempts = "1 lost attempt counts" if look.lost == 1 else f"{look.lost} lost attempts count"
    lost = f", {attempts} against it" if look.lost else ""
    return f"(p = {look.p_value:.3g} {sign} {look.level:.3g}, {look.tasks} of {tasks} tasks{lost})"


QUOTE_CHARACTERS: Final = 300
"""Maximum length of a quoted output line or answer."""

WRONG_ANSWER: Final = "wrong_answer"
CHECKS_FAILED: Final = "checks_failed"
NO_VERIFIER: Final = "no_verifier"
"""Reasons that the command line prints for records without ``failure_reason``."""

_PYTEST_ERROR: Final = "E  "
"""Begins the lines of pytest that say what went wrong."""

_OURS: Final = "securebench: "
"""Begins lines that SecureBench adds to the output of a check."""

_OF_THE_AGENT = frozenset({"agent", "resource", "provider"})
"""Outcomes that the harness's exit code and output help to explain, if no check ran."""


class Failure(NamedTuple):
    """Why an attempt did not pass.

    Args:
        reason: The record's ``failure_reason``, or one of this module's reasons.
        said: Details from the record's message, the output or the answer; may be empty.
    """

    reason: str
    said: str


def failure(record: Record) -> Failure | None:
    """Return why the attempt of a record did not pass, or None if it passed."""
    if record.get("passed") is True:
        return None
    return Failure(_reason(record), _details(record))


def reason_counts(records: Iterable[Record]) -> Counter[str]:
    """Count the attempts that did not pass, by reason."""
    found = map(failure, records)
    return Counter(item.reason for item in found if item is not None)


def counts_line(total: int, counts: Counter[str]) -> str:
    """Summarise the attempts that did not pass, the most frequent reason first.

    Args:
        total: Number of all attempts.
        counts: From ``reason_counts``; not empty.
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{reason} {count}" for reason, count in ordered)
    return f"{counts.total()} of {total} attempts without a pass: {listed}"


def _reason(record: Record) -> str:
    reason, outcome = record.get("failure_reason"), record.get("outcome")
    if isinstance(reason, str) and reason:
        return reason
    if outcome == "scored":
        return (
            CHECKS_FAILED if text_verifier(str(record.get("task_type"))) is None else WRONG_ANSWER
        )
    return outcome if isinstance(outcome, str) and outcome else NO_VERIFIER


def _details(record: Record) -> str:
    details = snippet(str(record.get("failure_message") or ""))
    for part in _parts(record):
        if part and part not in details:
            details = f"{details}; {part}" if details else part
    return details


def _parts(record: Record) -> tuple[str, ...]:
    if _reason(record) == WRONG_ANSWER:
        answer = snippet(str(record.get("candidate_text") or ""))
        return (f'the answer was "{answer[:QUOTE_CHARACTERS]}"',)
    verifier = (*_reward_details(record), *_exit_details(record, "verifier"))
    if verifier:
        return (*verifier, *_failed_agent(record))
    if record.get("outcome") not in _OF_THE_AGENT:
        return ()
    return tuple(_exit_details(record, "producer"))


def _reward_details(record: Record) -> Iterator[str]:
    """Yield how far the reward of a script is from a pass."""
    needed = as_number(object_at(record, "verifier_metadata").get("threshold"))
    score = as_number(record.get("score"))
    if needed is not None and score is not None and record.get("outcome") == "scored":
        yield f"the score is {score:.4g}, needed are {needed:.4g}"


def _failed_agent(record: Record) -> Iterator[str]:
    """Yield how the agent ended whose candidate was checked, if it said that it failed."""
    code = _exit_code(record, "producer")
    if code:
        line = _quote(record, "producer")
        yield f"the agent ended with exit code {code}" + (f", {line}" if line else "")


def _exit_details(record: Record, who: str) -> Iterator[str]:
    code = _exit_code(record, who)
    if code is None:
        return
    yield f"exit code {code}"
    line = _quote(record, who)
    if line:
        yield line


def _exit_code(record: Record, who: str) -> int | None:
    metadata = record.get(f"{who}_metadata")
    code = metadata.get("exit_code") if isinstance(metadata, Mapping) else None
    return code if isinstance(code, int) else None


def _quote(record: Record, who: str) -> str:
    """Return the line that says most about how a program ended, with its stream, or nothing."""
    found = {stream: _lines(record.get(f"{who}_{stream}")) for stream in ("stderr", "stdout")}
    for choose in (_last_of_others, _last):
        for stream, lines in found.items():
            line = _pytest_error(lines) or choose(lines)
            if line:
                return f"{stream}: {snippet(line)[:QUOTE_CHARACTERS]}"
    return ""


def _lines(text: object) -> list[str]:
    lines = text.splitlines() if isinstance(text, str) else []
    return [line for line in lines if line.strip()]


def _pytest_error(lines: Sequence[str]) -> str:
    found = (line for line in lines if line.startswith(_PYTEST_ERROR))
    return next(found, "").removeprefix(_PYTEST_ERROR)


def _last_of_others(lines: Sequence[str]) -> str:
    return _last([line for line in lines if not line.startswith(_OURS)])


def _last(lines: Sequence[str]) -> str:
    return lines[-1] if lines else ""
